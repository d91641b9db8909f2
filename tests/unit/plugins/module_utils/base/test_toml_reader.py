# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reader of TOML for a Python without tomllib gives the result of tomllib."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import toml_reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.toml_reader import TomlValueError

CONFIG = """\
disable-require = false
#accept-nvidia-visible-devices-envvar-when-unprivileged = true
supported-driver-capabilities = "compat32,compute" # a comment

[nvidia-container-cli]
environment = []
ldconfig = '@/sbin/ldconfig'
[nvidia-container-runtime]
runtimes = [
  "runc", # first
  "crun",
]
[nvidia-container-runtime.modes.cdi]
"default-kind" = "nvidia.com/gpu"
annotation-prefixes = ["cdi.k8s.io/"]
modes.x = 12
[plugins."io.containerd.cri.v1.runtime".containerd]
a.b = -1_000
[[plugins.list]]
name = "one \\"quoted\\" \\u00e9 \\U0001F600"
[[plugins.list]]
name = "two"
[plugins.list.below]
x = true
[engine]
cdi_spec_dirs = ["/srv/cdi", {append = true}, {}]
table = { "a b" = [1], c.d = 'x' }
"""


@pytest.mark.parametrize("text", ["", "\n# nothing\n", "a = 1", CONFIG, CONFIG.replace("\n", "\r\n")])
def test_both_readers_agree(text):
    assert toml_reader.read_plain(text) == toml_reader.read(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [("a", 1), ("a = ", 1), ("a = 1 2", 1), ("x = 1\nx = 2", 2), ("\n[a\n", 2), ('a = "\\x"', 1), ("a = 1\n[a.b]", 2),
     ("a = [1 2]", 1), ('a = "open\n', 1), ("= 1", 1)],
)  # fmt: skip
def test_invalid_text_is_an_error_that_names_the_line(text, line):
    with pytest.raises(TomlValueError, match=f"line {line}"):
        toml_reader.read_plain(text)
    with pytest.raises(TomlValueError):
        toml_reader.read(text)


@pytest.mark.parametrize("text", ["a = " + "1" * 5000, "a = " + "[" * 5000, "a = {b = " * 5000])
def test_numbers_and_lists_of_any_size_end_in_no_traceback(text):
    try:
        toml_reader.read(text)
    except TomlValueError as error:
        assert len(str(error)) <= 200


def test_other_values_are_none_without_tomllib():
    assert toml_reader.read_plain("a = 1.5\nb = 1979-05-27\nc = 2") == {"a": None, "b": None, "c": 2}
    with pytest.raises(TomlValueError, match="line 2"):
        toml_reader.read_plain('x = 1\na = """\ntext"""')


TEXT = "ab \"\\'é#[]=,"
KEYS = st.text(alphabet="abc-_ .\"'é", min_size=1, max_size=6)
SCALARS = st.one_of(st.booleans(), st.integers(-(10**9), 10**9), st.text(alphabet=TEXT, max_size=8))
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3))


@given(
    st.dictionaries(KEYS, VALUES, max_size=4),
    st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=3), max_size=3),
)
def test_written_values_are_read_again(top, tables):
    def lines(values):
        return [f"{json.dumps(key)} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]

    tables = {f"t{key}": values for key, values in tables.items() if f"t{key}" not in top}
    text = "\n".join(
        [*lines(top), *(line for key, values in tables.items() for line in (f"[{json.dumps(key)}]", *lines(values)))]
    )
    assert toml_reader.read_plain(text) == toml_reader.read(text) == {**top, **tables}


def test_get_returns_none_where_there_is_no_table():
    assert toml_reader.get({"a": {"b": 1}}, "a", "b") == 1
    assert toml_reader.get({"a": 1}, "a", "b") is None
