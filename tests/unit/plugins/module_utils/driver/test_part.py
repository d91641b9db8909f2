# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import part as site_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import variables as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import reboot_reasons
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import platform, remove_package
from ansible_collections.gpufleet.hosts.tests.unit.plugins.site_samples import (
    KERNEL,
    KEY,
    VERSION,
    bare,
    converged,
    file,
)

OLD = "535.261.03"
IN_USE = {"pid": 42, "command": "train", "devices": [], "open": True, "container": None, "container_name": None}
ALLOWED = {"reboot_policy": "when_required"}
DIFFERS = [
    f"module {OLD} is loaded, but the driver's libraries have version {VERSION}: new GPU processes fail until you "
    "reload the module or reboot the host",
    f"module {OLD} is loaded, but the module on disk for kernel {KERNEL} has version {VERSION}",
]
USED = "the loaded modules are in use by process 42 (train)"
REBOOT = f"reboot the host: {'; '.join([*DIFFERS, USED])}"
VERIFY = "repeat the driver verification that failed in an earlier run"
MARKER, UNVERIFIED = owned.DRIVER_REBOOT_MARKER, owned.DRIVER_UNVERIFIED_MARKER


def present(there: dict, values: dict | None = None, *, is_controller: bool = False) -> dict:
    """Plan a driver that needs no query."""
    request = driver_request.read(values or {})
    return site_driver.present(
        there, request, values or {}, platform(KEY), versions=None, streams=None, is_controller=is_controller
    )


def outdated(*holders: dict, **more) -> dict:
    """Describe a host whose driver was upgraded while it was loaded."""
    modules = ["nvidia", "nvidia_modeset", "nvidia_uvm"]
    there = converged(driver={"loaded": OLD}, modules_loaded=modules, holders=list(holders), **more)
    there["reboot_reasons"] = reboot_reasons.reasons(there)
    return there


def attempt(reasons: list[str], boot: str = "before") -> dict:
    """Describe the record of a reboot."""
    return {MARKER: file(json.dumps({"boot": boot, "reasons": reasons}))}


# --- the reboot ---------------------------------------------------------------------------------------------------


def test_driver_in_use_is_replaced_by_a_reboot():
    part = present(outdated(IN_USE), ALLOWED)
    assert (part["acts"], part["changes"], part["errors"]) == (True, [REBOOT], [])
    assert (part["plan"]["acts"], part["plan"]["reboot"]["go"]) == (False, True)
    assert part["outcome"].next_loaded == VERSION
    record = json.loads(part["plan"]["reboot"]["attempt"])
    assert record == {"boot": "0f6e2b3c/4", "reasons": ["library_differs", "module_differs"], "kernel": KERNEL}


KEPT = [
    ({}, False, {}, "nvidia_driver_reboot_policy is never"),
    (ALLOWED, True, {}, "this host is the Ansible controller; reboot it yourself"),
    (ALLOWED, False, attempt(["library_differs", "module_differs"]), "another reboot would not help"),
]


@pytest.mark.parametrize(("values", "is_controller", "files", "why"), KEPT)
def test_refused_reboot_is_only_reported(values, is_controller, files, why):
    part = present(outdated(IN_USE, files=files), values, is_controller=is_controller)
    assert (part["acts"], part["changes"], part["errors"]) == (False, [], [])
    assert (part["plan"]["reboot"]["go"], part["outcome"].next_loaded) == (False, OLD)
    assert part["report"]["reboot_required_reasons"] == [*DIFFERS, USED]
    assert why in part["report"]["not_rebooted_because"]
    assert part["plan"]["report"] == part["report"]


def test_driver_that_can_be_reloaded_needs_no_reboot():
    part = present(outdated(), ALLOWED)
    assert part["changes"] == [
        "stop nvidia-persistenced.service during the reload",
        "unload nvidia_uvm, nvidia_modeset, nvidia",
        "load nvidia, nvidia_modeset, nvidia_uvm",
    ]
    assert part["outcome"].next_loaded == VERSION


def test_other_changes_come_before_the_reboot():
    there = outdated(IN_USE)
    there["files"][owned.MODULES_LOAD] = file(None)
    assert present(there, ALLOWED)["changes"] == [f"write {owned.MODULES_LOAD}", REBOOT]


def test_missing_package_is_installed_before_the_reboot_is_decided():
    there = outdated(IN_USE)
    remove_package(there, "nvidia-smi")
    part = present(there, ALLOWED)
    assert (part["outcome"].installs, part["plan"]["reboot"]["go"]) == (True, True)
    assert "install the driver: nvidia-smi" in part["changes"]
    assert REBOOT not in part["changes"]


def test_reboots_of_others_are_not_planned():
    there = converged(reboot_flag={"present": True, "packages": ["libc6"]})
    there["reboot_reasons"] = reboot_reasons.reasons(there)
    assert [reason["id"] for reason in there["reboot_reasons"]] == ["distribution"]
    part = present(there, ALLOWED)
    assert (part["acts"], part["report"]["reboot_required_reasons"]) == (False, [])


RECORDS = [
    ("no reason any more", converged(files=attempt(["module_differs"])), {}, [f"remove {MARKER}"]),
    ("no record", converged(files={MARKER: file(None)}), {}, []),
    ("same reasons", outdated(IN_USE, files=attempt(["library_differs", "module_differs"])), ALLOWED, []),
    ("other reasons", outdated(IN_USE, files=attempt(["nouveau_bound"])), ALLOWED, [REBOOT]),
    ("no GPU", bare(gpus=(), files=attempt(["module_differs"])), {}, []),
]


@pytest.mark.parametrize(("there", "values", "expected"), [row[1:] for row in RECORDS], ids=[row[0] for row in RECORDS])
def test_record_of_a_reboot_is_removed_when_it_is_resolved(there, values, expected):
    part = present(there, values)
    assert (part["changes"], part["acts"]) == (expected, bool(expected))


# --- the verification ---------------------------------------------------------------------------------------------

PENDING = {UNVERIFIED: file("")}
VERIFICATIONS = [
    ("pending", converged(files=PENDING), {}, True, [VERIFY]),
    ("passed", converged(files={UNVERIFIED: file(None)}), {}, False, []),
    ("not to be loaded", converged(files=PENDING), {"activate": False}, False, []),
    ("after a reboot", outdated(IN_USE, files=PENDING), {}, False, []),
    ("no GPU", bare(gpus=(), files=PENDING), {}, False, []),
    # A change is verified anyway.
    (
        "with a change",
        converged(files=PENDING, modules_loaded=["nvidia"]),
        {},
        True,
        ["load nvidia_uvm"],
    ),
]


@pytest.mark.parametrize(
    ("there", "values", "verifies", "expected"),
    [row[1:] for row in VERIFICATIONS],
    ids=[row[0] for row in VERIFICATIONS],
)
def test_failed_verification_is_repeated(there, values, verifies, expected):
    part = present(there, values)
    assert part["plan"]["verifies"] is verifies
    assert (part["changes"], part["acts"]) == (expected, bool(expected))


def test_record_and_verification_are_both_planned():
    part = present(converged(files={**PENDING, **attempt(["module_differs"])}))
    assert part["changes"] == [f"remove {MARKER}", VERIFY]


# --- the report ---------------------------------------------------------------------------------------------------


def test_report_of_a_loaded_driver():
    report = present(converged(driver={"kernel_module_flavor": "open"}))["report"]
    assert report.pop("reasons")[0] == "source distribution: the installed driver packages come from it"
    assert report == {
        "version": VERSION,
        "flavor": "open",
        "source": "distribution",
        "reboot_required_reasons": [],
        "not_rebooted_because": None,
    }


VERSIONS = [
    (converged(driver={"loaded": None}, modules_loaded=[]), VERSION, "proprietary", "distribution"),
    (bare(), None, "proprietary", "distribution"),
    (bare(gpus=()), None, None, None),
]


@pytest.mark.parametrize(("there", "version", "flavor", "source"), VERSIONS, ids=["not loaded", "bare", "no GPU"])
def test_report_without_a_loaded_driver(there, version, flavor, source):
    report = present(there)["report"]
    assert (report["version"], report["flavor"], report["source"]) == (version, flavor, source)
    assert report["reasons"]


def test_report_of_a_removal():
    there = converged(driver={"kernel_module_flavor": "proprietary"}, reboot_required_reasons=["a newer kernel"])
    removal = site_driver.removal(there, platform(KEY))
    assert (removal["acts"], removal["changes"]) == (True, [f"remove {owned.MODULES_LOAD}, {owned.UVM_RULE}"])
    assert removal["report"] == {
        "version": VERSION,
        "flavor": "proprietary",
        "source": "distribution",
        "reasons": removal["reasons"],
        "reboot_required_reasons": ["a newer kernel"],
        "not_rebooted_because": None,
    }
    assert "packages that this role did not install are kept" in removal["reasons"][0]


def test_removal_on_a_bare_host_does_nothing():
    removal = site_driver.removal(bare(), platform(KEY))
    assert (removal["acts"], removal["changes"]) == (False, [])
    assert removal["report"]["reasons"] == ["this role has not installed anything on this host"]


def test_platform_without_data_is_an_error():
    there = bare()
    there["os"] |= {"key": None, "name": "Some Linux"}
    request = driver_request.read({})
    part = site_driver.present(there, request, {}, None, versions=None, streams=None, is_controller=False)
    assert part["errors"]
    assert (part["query"], part["changes"]) == (None, [])
    assert site_driver.removal(there, None)["acts"] is False
