# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import random
import sys

import pytest
import tomllib

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError

# The file that the packages generate: NVIDIA/nvidia-container-toolkit, api/config/v1/toml_test.go (d34b304).
DEFAULT = """\
#accept-nvidia-visible-devices-as-volume-mounts = false
disable-require = false

[nvidia-container-cli]
#debug = "/var/log/nvidia-container-toolkit.log"
environment = []
ldconfig = "@/sbin/ldconfig" # the host's
#no-cgroups = false

[nvidia-container-runtime]
log-level = "info"
runtimes = [
  "runc", # first
  "crun",
]

[nvidia-container-runtime.modes.cdi]
default-kind = "nvidia.com/gpu"
"""


@pytest.mark.parametrize(
    ("path", "item", "old", "new"),
    [
        ("disable-require", True, "disable-require = false", "disable-require = true"),
        (
            "nvidia-container-cli.ldconfig",
            "@/sbin/ldconfig.real",
            'ldconfig = "@/sbin/ldconfig" # the host\'s',
            'ldconfig = "@/sbin/ldconfig.real" # the host\'s',
        ),
        # After the commented default
        (
            "nvidia-container-cli.no-cgroups",
            True,
            "#no-cgroups = false\n",
            "#no-cgroups = false\nno-cgroups = true\n",
        ),
        (
            "nvidia-container-runtime.runtimes",
            ["crun"],
            'runtimes = [\n  "runc", # first\n  "crun",\n]',
            'runtimes = ["crun"]',
        ),
        # At the end of its table
        ("swarm-resource", "GPU", "disable-require = false\n", 'disable-require = false\nswarm-resource = "GPU"\n'),
        (
            "nvidia-container-runtime.modes.cdi.spec-dirs",
            ["/etc/cdi"],
            'default-kind = "nvidia.com/gpu"\n',
            'default-kind = "nvidia.com/gpu"\nspec-dirs = ["/etc/cdi"]\n',
        ),
        ("nvidia-container-runtime.log-level", None, 'log-level = "info"\n', ""),
    ],
)
def test_only_the_line_of_the_value_changes(path: str, item: object, old: str, new: str) -> None:
    assert DEFAULT.count(old) == 1
    assert toml_editor.changed(DEFAULT, tuple(path.split(".")), item) == DEFAULT.replace(old, new)


def test_missing_table_is_added_at_the_end_and_removed_again() -> None:
    path = ("features", "disable-imex-channel-creation")
    new = toml_editor.changed(DEFAULT, path, True)
    assert new == f"{DEFAULT}\n[features]\ndisable-imex-channel-creation = true\n"
    assert toml_editor.restored(new, path, None, table=True) == DEFAULT
    assert toml_editor.changed("", path, True) == "[features]\ndisable-imex-channel-creation = true\n"


def test_former_lines_are_restored_with_their_comments() -> None:
    path = ("nvidia-container-runtime", "runtimes")
    former = toml_editor.lines_of(DEFAULT, path)
    assert former == ["runtimes = [", '  "runc", # first', '  "crun",', "]"]
    new = toml_editor.changed(DEFAULT, path, ["crun"])
    assert toml_editor.restored(new, path, former, table=False) == DEFAULT


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("[a.b]\nc = 1\n", "a.b", "a.b is a table"),
        ("[[a.b]]\nc = 1\n", "a.b", "a.b is a table"),
        (f"a = {'1' * 5000}\n", "b", "not valid TOML"),
        (f"a = {'[' * 5000}\n", "b", "not valid TOML"),
        ("[[a]]\nb = 1\n", "a.b", "cannot be changed"),
        ("a = 1\n", "a.b", "cannot be changed"),
        ("a = \n", "a", "not valid TOML: Invalid value (at line 1"),
    ],
)
def test_what_cannot_be_changed_safely_is_an_error(text: str, path: str, words: str) -> None:
    with pytest.raises(TomlError) as error:
        toml_editor.changed(text, tuple(path.split(".")), 2)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "path", "new"),
    [
        ('"a b"."c=d" = 1\n', ("a b", "c=d"), '"a b"."c=d" = 2\n'),
        ("a.b = 1 # one\n", ("a", "b"), "a.b = 2 # one\n"),
        ('a = """\n[b]\nc = 0\n"""\n[b]\nc = 1\n', ("b", "c"), 'a = """\n[b]\nc = 0\n"""\n[b]\nc = 2\n'),
        ("  [b]  # table\n  c=1", ("b", "c"), "  [b]  # table\n  c=2"),
        ('["x.y"]\nc = 1\n', ("x.y", "c"), '["x.y"]\nc = 2\n'),
    ],
)
def test_unusual_notations(text: str, path: tuple[str, ...], new: str) -> None:
    assert toml_editor.changed(text, path, 2) == new


def test_random_changes_change_one_value_and_can_be_undone() -> None:
    chance = random.Random(20)
    values = [True, False, 7, "plain", 'quoted " and \\ and é', ["a", "b"], [], "/var/log/x#y.log"]
    tables = [(), ("one",), ("one", "two"), ("three",), ("a.b", "c")]
    for _round in range(150):
        tree: dict = {}
        for table in tables:
            node = tree
            for key in table:
                node = node.setdefault(key, {})
            for key in chance.sample(["k1", "k2", "k-3"], chance.randrange(4)):
                node[key] = chance.choice(values)
        text = "".join(
            f"{line}{chance.choice(['', ' # note', '  '])}\n" if " = " in line else f"{line}\n"
            for line in toml_editor.document(tree).splitlines()
        )
        assert toml_editor._pruned(tomllib.loads(text)) == toml_editor._pruned(tree)
        table = chance.choice([*tables, ("new",), ("new", "deep")])
        path, item = (*table, chance.choice(["k1", "k2", "k-3"])), chance.choice([*values, None])
        former, had = toml_editor.lines_of(text, path), toml_editor.has_table(text, table)
        new = toml_editor.changed(text, path, item)
        assert toml_editor.get(tomllib.loads(new), path) == item
        kept = [line for line in text.splitlines() if line and line not in (former or [])]
        lines = iter(new.splitlines())
        assert all(line in lines for line in kept), "lines are missing or in another order"
        if former or item is not None:
            assert tomllib.loads(toml_editor.restored(new, path, former, table=not had)) == tomllib.loads(text)


@pytest.mark.parametrize(
    ("text", "path", "new"),
    [
        # A number sign, a bracket or an equals sign in a quoted key
        ('[plugins."a#b"]\nk = 1\n', ("k",), 'k = 2\n[plugins."a#b"]\nk = 1\n'),
        ('[plugins."a#b"]\nk = 1\n', ("plugins", "a#b", "k"), '[plugins."a#b"]\nk = 2\n'),
        ("[plugins.'a]b']\n# text\n", ("plugins", "a]b", "k"), "[plugins.'a]b']\nk = 2\n# text\n"),
        ('[[x."a#]"]]\nk = 1\n[y]\nk = 1\n', ("y", "k"), '[[x."a#]"]]\nk = 1\n[y]\nk = 2\n'),
        ('"#a=" = 1\n', ("#a=",), '"#a=" = 2\n'),
        # Lines of Windows
        ("version = 1\r\n", ("version",), "version = 2\r\n"),
        (
            "# text\r\n[a]\r\nb = 1 # one\r\n\r\n[c]\r\n",
            ("a", "d"),
            "# text\r\n[a]\r\nb = 1 # one\r\nd = 2\r\n\r\n[c]\r\n",
        ),
        ("[a]\r\n", ("b", "c"), "[a]\r\n\r\n[b]\r\nc = 2\r\n"),
        ("a = 1\r\nb = 1\n", ("a",), "a = 2\r\nb = 1\n"),
        # The comment of the next table stays with it.
        ("[a]\nb = 1\n\n# about c\n[c]\n", ("a", "d"), "[a]\nb = 1\nd = 2\n\n# about c\n[c]\n"),
        ("[a] # empty\n\n# about c\n[c]\n", ("a", "d"), "[a] # empty\nd = 2\n\n# about c\n[c]\n"),
        ("# about c\n[c]\nd = 1\n", ("b",), "b = 2\n# about c\n[c]\nd = 1\n"),
        # A table whose parts are not together, inline tables, dotted keys
        ("[a.b]\nc = 1\n[d]\n[a.e]\nc = 1\n", ("a", "e", "c"), "[a.b]\nc = 1\n[d]\n[a.e]\nc = 2\n"),
        ("[a.b]\nc = 1\n[d]\n[a]\nc = 1\n", ("a", "f"), "[a.b]\nc = 1\n[d]\n[a]\nc = 1\nf = 2\n"),
        ("a = {b = 1} # x\n", ("a", "b"), "a = {b = 2} # x\n"),
        ("a = {b = 1} # x\n", ("a", "c"), "a = {b = 1,c = 2} # x\n"),
        ("a.b.c = 1\nd = 1\n", ("a", "b", "e"), "a.b.c = 1\na.b.e = 2\nd = 1\n"),
        ("[x]\na.b = 1\n\n[y]\n", ("x", "a", "c"), "[x]\na.b = 1\na.c = 2\n\n[y]\n"),
        ("[a]\n  b = [ 1, # one\n    3 ] # three\n", ("a", "b"), "[a]\n  b = 2 # three\n"),
        # No line break at the end
        ("a = 1", ("b",), "a = 1\nb = 2"),
        ("[a]", ("a", "b"), "[a]\nb = 2"),
        ("a = 1  ", ("b",), "a = 1  \nb = 2"),
        ("a = 1", ("c", "d"), "a = 1\n\n[c]\nd = 2\n"),
    ],
)
def test_comments_order_and_line_ends_of_any_valid_file_stay(text: str, path: tuple[str, ...], new: str) -> None:
    assert toml_editor.changed(text, path, 2) == new
    assert toml_editor.get(tomllib.loads(new), path) == 2
    former, had = toml_editor.lines_of(text, path), toml_editor.has_table(text, path[:-1])
    back = toml_editor.restored(new, path, former, table=not had)
    assert tomllib.loads(back) == tomllib.loads(text)
    if "[ 1, # one" not in text:
        assert back.rstrip("\r\n") == text.rstrip("\r\n")


@pytest.mark.parametrize("value", [[{"a": 1}, {"a.b": "c#d"}], {"x y": {"z": [1, 2.5]}}, [], ["a\x7f\n\"'"], 'new"\\'])
@pytest.mark.parametrize("text", ["", "k = 1\n", "[a]\nb = 1\n"])
def test_values_of_any_type_are_written(text: str, value: object) -> None:
    new = toml_editor.changed(text, ("k",), value)
    assert tomllib.loads(new)["k"] == value
    assert toml_editor.changed(new, ("k",), None).strip() == text.replace("k = 1\n", "").strip()


def test_without_tomlkit_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomlkit", None)
    assert toml_editor.parse("a = 1\n") == {"a": 1}
    with pytest.raises(TomlError, match=rf"on the controller.*Install it: {sys.executable} -m pip install tomlkit$"):
        toml_editor.changed("a = 1\n", ("a",), 2)
