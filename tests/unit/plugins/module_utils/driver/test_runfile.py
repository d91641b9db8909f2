# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import runfile
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import KERNELS, host, platform

K80 = "0x102d"
SUM = "sha256:" + "0" * 64

KINDS = [
    ("580.95.05", "open", ["--kernel-module-type=open"]),
    ("560.28.03", "proprietary", ["--kernel-module-type=proprietary"]),
    ("550.54.15", "open", ["-m=kernel-open"]),
    ("515.43.04", "proprietary", ["-m=kernel"]),
    ("510.108.03", "proprietary", []),
    ("470.256.02", "proprietary", []),
]


@pytest.mark.parametrize(("version", "flavor", "kind"), KINDS)
def test_branch_determines_flavor_option(version, flavor, kind):
    assert runfile.options(host(), version, flavor, True) == [
        "--silent",
        "--dkms",
        "--no-nouveau-check",
        *kind,
    ]
    assert "--dkms" not in runfile.options(host(), version, flavor, False)


def test_old_gpu_gets_proprietary_modules_from_installer():
    there = host("debian-12", (K80,), headers=(KERNELS["debian-12"],), packages={"dkms": "3.0.10-8"})
    request = {"source": "runfile", "version": "470.256.02", "runfile_checksum": SUM}
    result = driver_plan.plan(there, request, platform("debian-12"))
    assert (result.errors, result.flavor) == ([], "proprietary")
    assert result.todo.runfile["options"] == ["--silent", "--dkms", "--no-nouveau-check"]


# --- with loaded modules ---

OPTION = "--allow-installation-with-running-driver"
DAEMON = {"pid": 41, "command": "nvidia-persiste", "devices": ["/dev/nvidia0"], "container": None}
JOB = {"pid": 42, "command": "train", "devices": ["/dev/nvidia0"], "container": "4f1c", "container_name": "job"}


def upgrade(version: str, old: str, holders: list[dict], **more) -> DriverPlan:
    """Plan another version for a running driver that NVIDIA's installer installed."""
    kernel = KERNELS["debian-12"]
    there = host(
        "debian-12",
        headers=(kernel,),
        packages={"dkms": "3.0.10-8"},
        modules={kernel: old},
        driver={"library": old, "loaded": old, "runfile": True},
        modules_loaded=["nvidia", "nvidia_uvm"],
        **more,
    )
    there["holders"] = holders
    request = {"source": "runfile", "version": version, "runfile_checksum": SUM}
    return driver_plan.plan(there, request, platform("debian-12"))


@pytest.mark.parametrize("holders", [[], [DAEMON], [DAEMON, JOB]], ids=["unused", "daemon", "job"])
@pytest.mark.parametrize("version", ["550.54.15", "580.126.09"])
def test_installer_runs_with_loaded_driver(version, holders):
    result = upgrade(version, "535.183.01", holders)
    assert result.errors == []
    assert OPTION in result.todo.runfile["options"]


def test_old_installer_is_refused_while_in_use():
    result = upgrade("535.261.03", "535.183.01", [DAEMON, JOB], module_users={"nvidia": ["gdrdrv", "nvidia_uvm"]})
    (error,) = result.errors
    for word in (
        "installer for version 535.261.03 fails while the loaded modules are in use",
        "process 42 (train) in container job",
        "module gdrdrv, which needs nvidia",
        "Stop these users first ('systemctl stop nvidia-persistenced.service')",
        "nvidia_driver_version to a version of branch 550 or newer",
    ):
        assert word in error
    assert result.acts is False


def test_old_installer_runs_while_not_in_use():
    options = upgrade("535.261.03", "535.183.01", []).todo.runfile["options"]
    assert options == ["--silent", "--dkms", "--no-nouveau-check", "-m=kernel-open"]
    again = upgrade("535.261.03", "535.261.03", [DAEMON, JOB])
    assert (again.errors, again.todo.runfile) == ([], None)


# --- a driver that the installer installed ---

SLES, NEW = KERNELS["sles-15"], "6.4.0-150700.53.28-default"
REBUILT = {"source": "runfile", "version": "580.95.05", "runfile_checksum": SUM}


def installed_by_installer(key: str, wish: dict, modules: dict, flavor: str | None = None, **more) -> DriverPlan:
    """Plan again for a driver of NVIDIA's installer. `flavor`: of the module for the running kernel."""
    driver = {"library": "580.95.05", "runfile": True, "on_disk_flavor": flavor}
    there = host(key, modules=modules, driver=driver, **more)
    return driver_plan.plan(there, {**REBUILT, **wish}, None if key == "gentoo-2" else platform(key))


@pytest.mark.parametrize(
    ("key", "more", "runs", "builds"),
    [
        ("sles-15", {}, True, []),
        ("sles-15", {"packages": {"dkms": "3.0-1"}}, False, [SLES]),
        # The packages of an unknown platform are not observed, but the modules of DKMS are.
        ("gentoo-2", {"kernel": SLES}, True, []),
        ("gentoo-2", {"kernel": SLES, "dkms": [{"name": "nvidia", "version": "580.95.05"}]}, False, [SLES]),
        ("gentoo-2", {"kernel": SLES, "dkms": [{"name": "nvidia", "version": "570.86.15"}]}, True, []),
    ],
)
def test_the_installer_runs_again_for_another_kernel_without_dkms(key, more, runs, builds):
    result = installed_by_installer(key, {}, {}, headers=(SLES,), **more)
    assert (result.errors, bool(result.todo.runfile), result.todo.build) == ([], runs, builds)
    again = installed_by_installer(key, {}, {SLES: "580.95.05"}, headers=(SLES,), **more)
    assert (again.errors, again.acts and (again.applies["runfile"] or again.applies["build"])) == ([], False)


@pytest.mark.parametrize("headers", [(NEW,), (SLES, NEW)], ids=["next", "both"])
def test_without_dkms_the_next_kernel_is_only_reported(headers):
    modules = {SLES: "580.95.05"} if SLES in headers else {}
    result = installed_by_installer("sles-15", {}, modules, headers=headers, next_kernel=NEW)
    assert (result.errors, result.todo.runfile, result.todo.build) == ([], None, [])
    assert (
        f"kernel {NEW}, which boots next, has no module of driver 580.95.05: without DKMS, NVIDIA's installer builds "
        "modules only for the running kernel. Run this role again after the boot"
    ) in result.reasons


@pytest.mark.parametrize(
    ("flavor", "installed", "option"),
    [
        ("proprietary", "open", "--kernel-module-type=proprietary"),
        ("open", "proprietary", "--kernel-module-type=open"),
        ("open", "open", None),
        # The flavor of installed modules changes only on request.
        ("auto", "proprietary", None),
        ("auto", "open", None),
        # No module for the running kernel.
        ("open", None, None),
    ],
)
def test_the_installer_runs_again_for_another_flavor(flavor, installed, option):
    kernel = KERNELS["debian-12"]
    modules = {kernel: "580.95.05"} if installed else {}
    result = installed_by_installer(
        "debian-12", {"flavor": flavor}, modules, installed, headers=(kernel,), packages={"dkms": "3.0.10-8"}
    )
    assert result.errors == []
    assert (result.todo.runfile["options"][-1] if result.todo.runfile else None) == option
    assert installed is None or (result.flavor == installed) is (option is None)


# --- the record ---

V, FORMER = "580.95.05", "570.86.15"


@pytest.mark.parametrize(
    ("driver", "expected", "is_outdated"),
    [
        ({"library": V, "on_disk": V, "runfile": True}, {"installed": V}, True),
        ({"library": V, "on_disk_next": V, "runfile": True}, {"installed": V}, True),
        # The installer was killed.
        ({"library": V, "runfile": True}, {"pending": V}, False),
        ({"library": V}, {"pending": V}, False),
        ({"runfile": True}, {"pending": V}, False),
        # The installer failed and left nothing, or the previous driver.
        ({}, {}, True),
        ({"library": FORMER, "on_disk": FORMER, "runfile": True}, {}, True),
    ],
)
def test_the_driver_state_tells_how_an_installer_run_ended(driver, expected, is_outdated):
    there = recorded({"pending": V}, driver=driver)
    assert json.loads(runfile.record_after(there)) == expected
    text = runfile.outdated_record(there)
    assert (text is not None) is is_outdated
    assert text is None or json.loads(text) == expected


def recorded(content: object, **changes) -> dict:
    return host(files={owned.DRIVER_RUNFILE_RECORD: {"exists": True, "content": json.dumps(content)}}, **changes)


def test_a_successful_installer_run_is_recorded():
    there = recorded({"installed": FORMER, "pending": V}, driver={"library": V, "runfile": True})
    assert json.loads(runfile.record_after(there, V)) == {"installed": V}


def test_the_former_version_stays_recorded_until_the_installer_succeeds():
    there = recorded(
        {"installed": FORMER}, driver={"library": FORMER, "runfile": True}, headers=(KERNELS["debian-12"],)
    )
    request = {"source": "runfile", "version": V, "runfile_checksum": SUM}
    begun = json.loads(driver_plan.plan(there, request, platform("debian-12")).todo.runfile["record"])
    assert begun == {"installed": FORMER, "pending": V}
    failed = recorded(begun, driver={"library": FORMER, "runfile": True})
    assert json.loads(runfile.record_after(failed)) == {"installed": FORMER}


@pytest.mark.parametrize("content", [None, [], "text", {"installed": None}, {"packages": ["vim"]}])
def test_a_damaged_record_is_empty(content):
    assert runfile.read_record(recorded(content)) == {"installed": None, "pending": None}
    assert runfile.outdated_record(recorded(content)) is None
