# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import H100, KERNELS, host, platform, resolve

SWITCHES = {"nvswitches": ["0000:83:00.0"]}
FULL = {"source": "nvidia", "imex": True}
RELEASES = {"550": "550.163.01-1", "570": "570.172.08-1", "580": "580.95.05-1", "590": "590.44.01-1"}
# Installed packages, the request, and the packages to remove: only those whose names change with the branch.
MOVES = [
    *((key, {"branch": "570"}, {"branch": "580"}, ["libnvidia-nscq-570", "nvidia-fabric-manager", "nvidia-imex-570"])
      for key in ("el-8", "el-9", "el-10", "amazon-2023", "sles-15")),
    *((key, {"branch": "580"}, {"branch": "570"}, ["libnvidia-nscq", "nvidia-fabricmanager", "nvidia-imex"])
      for key in ("el-8", "el-9", "el-10", "amazon-2023", "sles-15")),
    *((key, {"branch": "570"}, {"branch": "580"}, ["libnvidia-nscq-570", "nvidia-fabricmanager-570", "nvidia-imex-570"])
      for key in ("debian-12", "debian-13")),
    *((key, {"branch": "580"}, {"branch": "570"}, ["libnvidia-nscq", "nvidia-fabricmanager", "nvidia-imex"])
      for key in ("debian-12", "debian-13")),
    ("debian-12", {"branch": "570"}, {"branch": "550"},
     ["libnvidia-nscq-570", "nvidia-driver-cuda", "nvidia-fabricmanager-570", "nvidia-imex-570"]),
    ("debian-12", {"branch": "550"}, {"branch": "570"},
     ["libnvidia-nscq-550", "nvidia-fabricmanager-550", "nvidia-imex-550", "nvidia-smi"]),
    ("ubuntu-24.04", {"branch": "580"}, {"branch": "570"},
     ["libnvidia-cfg1-580", "libnvidia-compute-580", "libnvidia-nscq", "nvidia-compute-utils-580",
      "nvidia-dkms-580-open", "nvidia-fabricmanager", "nvidia-imex", "nvidia-utils-580"]),
    ("ubuntu-24.04", {"branch": "580"}, {"branch": "590"},
     ["libnvidia-cfg1-580", "libnvidia-compute-580", "nvidia-compute-utils-580", "nvidia-dkms-580-open",
      "nvidia-utils-580"]),
    ("ubuntu-24.04", {"branch": "590"}, {"branch": "580"},
     ["libnvidia-cfg1", "libnvidia-compute", "nvidia-dkms-open"]),
    ("el-9", {"branch": "580"}, {"branch": "590"}, []),
    ("el-9", {}, {"flavor": "proprietary"}, ["kmod-nvidia-open-dkms"]),
    ("el-9", {"flavor": "proprietary"}, {"branch": "590", "flavor": "open"}, ["kmod-nvidia-latest-dkms"]),
    ("debian-12", {}, {"flavor": "proprietary"}, ["nvidia-kernel-open-dkms"]),
    ("ubuntu-24.04", {}, {"flavor": "proprietary"}, ["nvidia-dkms-580-open"]),
    ("sles-15", {}, {"flavor": "proprietary"}, ["nvidia-open-driver-G06-signed-cuda-kmp-default"]),
    ("el-9", {}, {"version": "580.82.07"}, []),
    # A package of the same branch stays, even if it is no longer requested.
    ("el-9", {}, {"fabric_manager": "disabled", "version": "580.82.07"}, []),
    ("ubuntu-24.04", {"components": ["compute", "video"]}, {"components": ["compute"], "version": "580.82.07"}, []),
]  # fmt: skip


@pytest.mark.parametrize(("key", "before", "after", "expected"), MOVES)
def test_branch_change_removes_renamed_packages(key, before, after, expected):
    bare = host(key, (H100,), nvidia=SWITCHES, headers=(KERNELS[key],))
    first = resolve(bare, {**FULL, **before}, platform(key))
    assert first.replaced == []
    version = RELEASES[first.branch]
    others = {"nvidia-container-toolkit": "1.18.0-1", "dkms": "3.1.0-1", "nvidia-gds": "13.0-1", "vim": "9"}
    there = host(key, (H100,), nvidia=SWITCHES, headers=(KERNELS[key],), driver={"library": version.partition("-")[0]},
                 packages={**others, **dict.fromkeys(first.packages, version), "dkms": "3.1.0-1"})  # fmt: skip
    result = resolve(there, {**FULL, **after}, platform(key))
    assert (result.errors, result.replaced) == ([], expected)
    assert set(expected) <= set(result.removable)


def test_prebuilt_modules_of_other_kernels_stay():
    older = "linux-modules-nvidia-580-server-open-6.8.0-71-generic"
    there = host("ubuntu-24.04", packages={older: "6.8.0-71.71+1"}, driver={"library": "580.95.05"})
    for request, goes in (({}, False), ({"flavor": "proprietary"}, True), ({"branch": "570"}, True)):
        replaced = resolve(there, request, platform("ubuntu-24.04")).replaced
        assert replaced == ([older] if goes else [])
