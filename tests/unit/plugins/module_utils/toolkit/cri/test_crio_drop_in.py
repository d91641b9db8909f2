# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drop-in of CRI-O: its text, and the OCI runtime that the vendor's runtime calls."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import crio_drop_in
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import HABANA
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError

BINARY = "/usr/bin/nvidia-container-runtime"


def test_crio_gets_a_drop_in_with_the_options_of_its_runtime() -> None:
    texts = {
        "a": '[crio.runtime]\ndefault_runtime = "runc"\n[crio.runtime.runtimes.runc]\nruntime_path = "/usr/bin/runc"\n',
        "b": '[crio.runtime]\ndefault_runtime = "crun"\n'
        '[crio.runtime.runtimes.crun]\nmonitor_path = "/usr/bin/conmon"\n',
    }
    runtime = {"monitor_path": "/usr/bin/conmon", "runtime_path": BINARY, "runtime_type": "oci"}
    drop_in, called = crio_drop_in.crio(texts)
    assert toml_editor.parse(str(drop_in)) == {"crio": {"runtime": {"runtimes": {"nvidia": runtime}}}}
    bare = toml_editor.parse(str(crio_drop_in.crio({}, default_runtime=True)[0]))["crio"]["runtime"]
    assert (bare["default_runtime"], bare["runtimes"]["nvidia"]["runtime_path"]) == ("nvidia", BINARY)
    assert called is None
    # Somebody else has registered it.
    there = f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{BINARY}"\n'
    assert crio_drop_in.crio({"a": there}) == (None, None)
    assert crio_drop_in.crio({"a": there}, default_runtime=True)[0]


@pytest.mark.parametrize(
    ("path", "called"),
    [("/usr/libexec/crio/crun", "/usr/libexec/crio/crun"), ("/usr/bin/crun", None), ("", None)],
)
def test_oci_runtime_that_cannot_be_found_by_its_name_is_returned(path: str, called: str | None) -> None:
    own = f'[crio.runtime]\ndefault_runtime = "crun"\n[crio.runtime.runtimes.crun]\nruntime_path = "{path}"\n'
    drop_in, found = crio_drop_in.crio({"10-crio.conf": own})
    assert found == called
    assert BINARY in str(drop_in)


def test_file_that_is_not_toml_is_named() -> None:
    words = "is not valid TOML: Invalid value (at end of document). Nothing was changed. Correct the file, and run "
    with pytest.raises(TomlError) as caught:
        crio_drop_in.crio({"/etc/crio/crio.conf": "", "/etc/crio/crio.conf.d/a.conf": "x = "})
    assert str(caught.value).startswith(f"/etc/crio/crio.conf.d/a.conf {words}")


@pytest.mark.parametrize(
    ("default", "base"),
    [("nvidia", "crun"), ("other", "crun"), ("runc", "runc"), ("foreign", "foreign")],
)
def test_runtimes_of_this_collection_are_no_base_of_one_another_in_crio(default: str, base: str) -> None:
    text = f"""\
[crio.runtime]
default_runtime = "{default}"
[crio.runtime.runtimes.nvidia]
runtime_path = "{BINARY}"
[crio.runtime.runtimes.other]
runtime_path = "{BINARY}.cdi"
"""
    text += "".join(
        f'[crio.runtime.runtimes.{name}]\nruntime_path = "/usr/libexec/crio/{name}"\nmonitor_path = "{name}"\n'
        for name in ("crun", "runc", "foreign")
    )
    drop_in, _called = crio_drop_in.crio({"/etc/crio/crio.conf": text}, runtime=HABANA)
    habana = toml_editor.parse(drop_in or "")["crio"]["runtime"]["runtimes"]["habana"]
    assert habana["monitor_path"] == base
    assert habana["monitor_env"][-1].endswith(":/usr/libexec/crio")
