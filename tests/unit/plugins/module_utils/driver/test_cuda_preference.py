# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The apt preference that keeps NVIDIA's repository from upgrading a driver from another source."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository, record_of_role
from ansible_collections.gpufleet.hosts.tests.unit.plugins import declared
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    FROM_NVIDIA,
    FROM_UBUNTU,
    host,
    platform,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.toolkit_samples import (
    KEY,
    add,
    bare,
    configure,
    name,
    nvidia,
    repository,
)

FILE = nvidia_repository.APT_PREFERENCE_FILE
ENTRY = "/etc/apt/sources.list.d/gpufleet-nvidia-cuda.sources"
# The packages of a desktop installation. Role nvidia_driver installs other packages.
UBUNTUS = dict.fromkeys(("nvidia-driver-580", "libnvidia-compute-580", "nvidia-dkms-580"), "580.95.05-0ubuntu0.24.04.1")
UBUNTUS_SERVER = {"libnvidia-compute-580-server": "580.95.05-0ubuntu0.24.04.1"}
DEBIANS = dict.fromkeys(("libcuda1", "nvidia-smi", "nvidia-kernel-dkms"), "535.261.03-1~deb12u1")
NVIDIAS = dict.fromkeys(("libnvidia-compute-580", "nvidia-dkms-580-open"), "580.95.05-0ubuntu1")
NVIDIAS_ON_DEBIAN = dict.fromkeys(("libnvidia-ml1", "libcuda1", "nvidia-driver-cuda", "nvidia-open"), "580.95.05-1")


def files(done: dict[str, t.Any]) -> dict[str, str]:
    return {file["path"]: file["state"] for file in (done["transaction"] or {"files": []})["files"]}


@pytest.mark.parametrize(
    ("key", "packages", "written"),
    [
        ("ubuntu-24.04", UBUNTUS, True),
        ("ubuntu-24.04", UBUNTUS_SERVER, True),
        ("debian-12", DEBIANS, True),
        ("ubuntu-24.04", NVIDIAS, True),
        ("debian-12", NVIDIAS_ON_DEBIAN, False),
        ("ubuntu-24.04", {}, False),
        ("ubuntu-24.04", {"nvidia-container-toolkit": "1.18.0-1"}, False),
        ("el-9", {"nvidia-driver-cuda": "580.95.05-1.el9"}, False),
        ("sles-15", {"nvidia-compute-G06": "580.95.05-1"}, False),
    ],
)
def test_a_preference_is_written_if_the_driver_comes_from_another_source(
    key: str, packages: dict[str, str], written: bool
) -> None:
    done = nvidia(bare(key, packages=packages), "12.6")
    assert done["problems"] == []
    assert files(done) == ({FILE: "present"} if written else {})
    if written:
        lines = done["transaction"]["files"][0]["content"].splitlines()
        assert lines[-3:] == [
            "Package: dkms *nvidia* libcuda* libnvcuvid* libnvoptix*",
            "Pin: release o=NVIDIA",
            "Pin-Priority: 100",
        ]


@pytest.mark.parametrize(("origin", "written"), [(FROM_NVIDIA, False), (FROM_UBUNTU, True)])
def test_origin_decides_for_packages_with_names_of_both_sources(origin: dict[str, t.Any], written: bool) -> None:
    origins = {name: [origin] for name in NVIDIAS}
    done = nvidia(bare("ubuntu-24.04", packages=NVIDIAS, package_origins=origins), "12.6")
    assert files(done) == ({FILE: "present"} if written else {})


def having(packages: dict[str, str], **more: t.Any) -> dict[str, t.Any]:
    """Return an Ubuntu host with a toolkit and these packages."""
    wanted = nvidia(bare("ubuntu-24.04", packages=packages), "12.6")
    there = bare("ubuntu-24.04", packages={**packages, "cuda-toolkit-12-6": "12.6.3-1"}, **more)
    for file in [*wanted["transaction"]["files"], wanted["profile"]]:
        add(there, file["path"], file["content"])
    configure(there, repository("ubuntu-24.04"))
    add(there, owned.TOOLKIT_VERIFIED, "/usr/local/cuda-12.6\n")
    return add(there, record_of_role.TOOLKIT, {"packages": ["cuda-toolkit-12-6"], "key": KEY})


@pytest.mark.parametrize("packages", [{}, UBUNTUS, UBUNTUS_SERVER])
def test_a_converged_host_has_no_changes(packages: dict[str, str]) -> None:
    done = nvidia(having(packages), "12.6")
    assert (done["problems"], done["transaction"], done["acts"]) == ([], None, False)


def test_the_preference_is_added_after_a_driver_was_installed() -> None:
    there = having(UBUNTUS)
    del there["files"][FILE]
    done = nvidia(there, "12.6")
    assert files(done) == {FILE: "present"}
    assert (done["transaction"]["repositories"], done["transaction"]["install"]) == ([], [])


@pytest.mark.parametrize("gone", ["driver", "entry", "for the driver's own"])
def test_an_unneeded_preference_is_removed(gone: str) -> None:
    there = having(UBUNTUS)
    if gone == "driver":
        for package in UBUNTUS:
            del there["packages"][package]
    elif gone == "entry":
        del there["files"][ENTRY]
    else:
        add(there, owned.DRIVER_APT_PREFERENCES, "x")
    assert files(nvidia(there, "12.6")) == {FILE: "absent"}


def test_no_preference_is_written_beside_the_pin_of_role_nvidia_driver() -> None:
    there = add(bare("ubuntu-24.04", packages=UBUNTUS_SERVER), owned.DRIVER_APT_PREFERENCES, "x")
    assert files(nvidia(there, "12.6")) == {}
    # apt uses the first matching file, in the order of their names.
    assert owned.DRIVER_APT_PREFERENCES < FILE


def test_no_preference_is_written_for_an_existing_entry() -> None:
    there = bare("ubuntu-24.04", packages=UBUNTUS)
    name(there, repository("ubuntu-24.04"), "/etc/apt/sources.list.d/mine.list")
    assert files(nvidia(there, "12.6")) == {}


def test_the_observation_includes_the_preference() -> None:
    assert FILE in declared.FILES


def test_the_preference_is_removed_before_nvidias_driver_is_installed() -> None:
    there = add(host("ubuntu-24.04"), FILE, "x")
    todo = driver_plan.plan(there, {"source": "nvidia"}, platform("ubuntu-24.04")).todo
    # The transaction changes files before it installs packages, and restores them if it fails.
    assert [file["path"] for file in todo.transaction.files if file["state"] == "absent"] == [FILE]


def test_role_nvidia_driver_replaces_the_preference_with_its_pin() -> None:
    there, data = add(host("debian-12", packages=dict(DEBIANS)), FILE, "x"), platform("debian-12")

    def changed(available: dict[str, t.Any] | None) -> dict[str, t.Any]:
        todo = driver_plan.plan(there, {"source": "distribution"}, data, available).todo
        return files({"transaction": {"files": todo.transaction.files}})

    # Before a version is selected, no pin exists, so the toolkit's preference must be kept.
    first = changed(None)
    assert not {owned.DRIVER_APT_PREFERENCES, FILE} & set(first)
    query = driver_plan.plan(there, {"source": "distribution"}, data).todo.query
    done = changed(dict.fromkeys(query, tuple(set(DEBIANS.values()))))
    assert (done[owned.DRIVER_APT_PREFERENCES], done[FILE]) == ("present", "absent")
