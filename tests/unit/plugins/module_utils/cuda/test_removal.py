# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import plan as cuda_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import removal as cuda_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record
from ansible_collections.gpufleet.hosts.tests.unit.plugins.toolkit_samples import DISTRIBUTIONS, KEY, add, bare

RPM_KEY = f"gpg-pubkey-{KEY[-8:].lower()}"
OURS = ["cuda-nvcc-12-6", "cuda-toolkit-12-6", "cuda-toolkit-13-0", "libgomp1"]


def seen(recorded: dict[str, t.Any] | None, *more: str, key: str = "debian-12", **changes: t.Any) -> dict[str, t.Any]:
    """Return a host with the toolkits and more packages. `recorded` is the role's record."""
    there = bare(key, **changes)
    there["installed_packages"] = dict.fromkeys(sorted({"vim", *OURS, *more}), "1 all")
    for path in (cuda_plan.PROFILE_FILE, *nvidia_repository.FILES):
        add(there, path, "x")
    if recorded is not None:
        add(there, packages_record.TOOLKIT, recorded)
    return there


def removal(there: dict[str, t.Any]) -> dict[str, t.Any]:
    return cuda_removal.plan(there, DISTRIBUTIONS)


def test_only_recorded_packages_are_removed() -> None:
    done = removal(seen({"packages": OURS, "key": KEY}, "cuda-toolkit-11-8", "g++"))
    assert done["packages"] == ["cuda-toolkit-12-6", "cuda-toolkit-13-0"]
    assert done["leftovers"] == ["cuda-nvcc-12-6", "libgomp1"]
    assert done["release"] == []
    assert done["files"] == [cuda_plan.PROFILE_FILE, packages_record.TOOLKIT, *nvidia_repository.FILES]
    assert done["acts"]
    assert done["reasons"] == ["toolkits that this role did not install are kept: cuda-toolkit-11-8"]
    assert done["summary"] == [
        "remove cuda-toolkit-12-6, cuda-toolkit-13-0",
        "remove dependencies that nothing else needs: cuda-nvcc-12-6, libgomp1",
        f"remove {', '.join(done['files'])}",
    ]


def test_a_removal_without_changes_has_a_reason() -> None:
    done = removal(bare("debian-12"))
    assert (done["acts"], done["summary"], done["reasons"]) == (
        False,
        [],
        ["this role has not installed anything on this host"],
    )


def test_a_requested_compiler_is_removed_with_the_distributions_toolkit() -> None:
    came = ["nvidia-cuda-toolkit", "g++", "libcudart11.0"]
    done = removal(seen({"packages": came}, *came))
    assert (done["packages"], done["release"]) == (["nvidia-cuda-toolkit"], ["g++"])
    assert done["leftovers"] == ["g++", "libcudart11.0"]
    assert done["files"] == [cuda_plan.PROFILE_FILE, packages_record.TOOLKIT]


def test_without_a_record_no_package_is_removed() -> None:
    done = removal(seen(None))
    assert (done["packages"], done["leftovers"]) == ([], [])
    assert done["files"] == [cuda_plan.PROFILE_FILE]


def test_a_bare_host_needs_no_removal() -> None:
    assert not removal(bare())["acts"]


@pytest.mark.parametrize("driver", [{}, {"key": KEY}])
def test_a_repository_that_the_driver_uses_is_kept(driver: dict[str, t.Any]) -> None:
    there = seen({"packages": [*OURS, RPM_KEY], "key": KEY}, RPM_KEY, key="el-9")
    add(there, packages_record.DRIVER, {"packages": ["libnvidia-ml"], **driver})
    done = removal(there)
    stays = bool(driver)
    assert (set(nvidia_repository.FILES) & set(done["files"]) == set()) is stays
    assert done["rpm_keys"] == ([] if stays else [RPM_KEY])
    assert RPM_KEY not in done["leftovers"]
    assert bool(done["reasons"]) is stays


def test_packages_of_an_interrupted_run_are_removed() -> None:
    begun = {"packages": [], "pending": ["vim"], "asked": ["cuda-toolkit-12-6"], "key": KEY}
    there = seen(begun, "libcuda1")
    add(there, packages_record.DRIVER, {"packages": ["libcuda1"]})
    done = removal(there)
    # The user installed cuda-toolkit-13-0.
    assert done["packages"] == ["cuda-toolkit-12-6"]
    assert done["leftovers"] == ["cuda-nvcc-12-6", "libgomp1"]
    assert done["reasons"] == ["toolkits that this role did not install are kept: cuda-toolkit-13-0"]


@pytest.mark.parametrize("asked", [["nvidia-cuda-toolkit", "g++"], ["nvidia-cuda-toolkit"]])
def test_a_compiler_that_the_role_did_not_request_is_kept(asked: list[str]) -> None:
    came = ["nvidia-cuda-toolkit", "g++"]
    done = removal(seen({"pending": ["vim", *OURS], "asked": asked}, *came))
    assert (done["packages"], done["release"]) == (["nvidia-cuda-toolkit"], asked[1:])


def test_removal_requires_root() -> None:
    there = seen({"packages": OURS}, uid=1000)
    assert "This role needs root, but it runs as uid 1000. Set `become: true`." in removal(there)["problems"][0]


@pytest.mark.parametrize("other", [packages_record.DRIVER, packages_record.TOOLKIT])
def test_each_role_records_its_own_packages_and_the_shared_key(other: str) -> None:
    mine = packages_record.TOOLKIT if other == packages_record.DRIVER else packages_record.DRIVER
    there = bare("el-9")
    add(there, other, {"packages": ["others", RPM_KEY], "key": KEY})
    begun = packages_record.begin(there, mine, ["vim"], key=KEY)
    add(there, mine, begun)
    after = json.loads(packages_record.finish(there, mine, [], ["vim", "others", "mine", RPM_KEY]))
    assert after == {"files": {}, "key": KEY, "packages": [RPM_KEY, "mine"]}
