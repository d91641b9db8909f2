# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import subprocess
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda_toolkit_plan import PROFILE_FILE, plan, profile

PLATFORMS = {"debian-12": {"version": "11.8", "packages": ["nvidia-cuda-toolkit"]}}


def host(*packages: str, **more: t.Any) -> dict[str, t.Any]:
    return {
        "os": {"key": "debian-12", "name": "Debian 12"},
        "uid": 0,
        "packages": {name: {} for name in packages},
        "driver": {"library": None},
        "apt": {"missing_components": []},
        "files": {},
        **more,
    }


def resolve(seen: dict[str, t.Any], **more: t.Any) -> dict[str, t.Any]:
    wanted = {"source": "distribution", "version": "", "path": "/usr/local/cuda", "environment": True, **more}
    return plan(seen, platforms=PLATFORMS, **wanted)


def test_the_distributions_toolkit_beside_the_driver() -> None:
    done = resolve(host("libcuda1"))
    assert (done["problems"], done["packages"], done["profile"]) == ([], ["nvidia-cuda-toolkit"], None)
    assert done["nvcc"] == "/usr/bin/nvcc"
    assert done["reason"] == "CUDA 11.8 of Debian 12"


def test_nothing_is_left_to_do_afterwards() -> None:
    done = resolve(host("libcuda1", "nvidia-cuda-toolkit", uid=1000), version="11.8")
    assert (done["problems"], done["packages"], done["profile"]) == ([], [], None)


@pytest.mark.parametrize(
    ("seen", "more", "words"),
    [
        (host(), {}, "this role never installs a driver. Apply role nvidia_driver first."),
        (host(driver={"library": "580.1"}), {}, "beside the driver 580.1 that did not come from packages"),
        (host("libcuda1"), {"version": "12.4"}, "cuda_toolkit_version=12.4: Debian 12 has 11.8 and no other"),
        (host(os={"key": "el-9", "name": "EL 9"}), {}, "the toolkit of EL 9 is not known (known: debian-12)"),
        (host("libcuda1", apt={"missing_components": ["non-free"]}), {}, "are not enabled: non-free"),
        (host("libcuda1", uid=1000), {}, "this needs root, and the host was seen as user 1000"),
    ],
)
def test_what_speaks_against_it_is_said_before_any_change(
    seen: dict[str, t.Any], more: dict[str, t.Any], words: str
) -> None:
    assert words in " ".join(resolve(seen, **more)["problems"])


def test_a_preinstalled_toolkit_gets_on_path_and_off_again() -> None:
    there = resolve(host(), source="preinstalled", path="/usr/local/cuda-12.4/")
    text = profile("/usr/local/cuda-12.4/bin")
    assert (there["problems"], there["packages"]) == ([], [])
    assert there["nvcc"] == "/usr/local/cuda-12.4/bin/nvcc"
    assert there["profile"] == {"state": "present", "content": text}
    with_file = host(files={PROFILE_FILE: {"exists": True, "content": text}})
    assert resolve(with_file, source="preinstalled", path="/usr/local/cuda-12.4")["profile"] is None
    off = {"state": "absent", "content": ""}
    assert resolve(with_file, source="preinstalled", environment=False)["profile"] == off


@pytest.mark.parametrize(("environment", "state"), [("false", None), ("no", None), ("true", "present")])
def test_a_truth_value_may_be_a_text(environment: str, state: str | None) -> None:
    done = resolve(host(), source="preinstalled", environment=environment)
    assert (done["profile"] or {}).get("state") == state


def test_a_version_may_be_a_number() -> None:
    assert resolve(host("libcuda1"), version=11.8)["problems"] == []


def test_path_gets_the_directory_once_and_nothing_else_is_set() -> None:
    text = profile("/opt/x/bin")
    script = f'PATH=/usr/bin:/bin; before=$(set | wc -l); {text}{text}echo "$PATH"'
    done = subprocess.run(["/bin/sh", "-euc", script], capture_output=True, text=True, check=True)
    assert done.stdout == "/opt/x/bin:/usr/bin:/bin\n"
    assert "LD_LIBRARY_PATH" not in text
