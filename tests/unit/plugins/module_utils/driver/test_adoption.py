# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Holds on the packages of an adopted driver."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import driver_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source as driver_source
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    record_of_role,
    selectors_of_allowed_packages,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    A100,
    KERNELS,
    all_files,
    host,
    platform,
)

V = "580.95.05"
UBUNTU, EL, SLES = f"{V}-0ubuntu0.24.04.1", f"3:{V}-1.el9", f"{V}-1"
PLUGIN = {"python3-dnf-plugin-versionlock": "4.3.0-16.el9"}
# Packages that the role does not install: desktop packages, and those of RPM Fusion and SUSE for X.
PACKAGES = {
    "ubuntu-24.04": dict.fromkeys(
        (
            "libnvidia-compute-580",
            "nvidia-dkms-580-open",
            "nvidia-driver-580-open",
            "nvidia-utils-580",
            "xserver-xorg-video-nvidia-580",
        ),
        UBUNTU,
    ),
    "el-9": dict.fromkeys(("akmod-nvidia", "xorg-x11-drv-nvidia", "xorg-x11-drv-nvidia-cuda-libs"), EL),
    "sles-15": dict.fromkeys(("nvidia-gl-G06", "x11-video-nvidiaG06"), SLES),
}
# Packages of other software, or of another driver version.
OTHERS = {
    "nvidia-container-toolkit": "1.18.0-1",
    "libnvidia-old-570": "570.86.15-1",
    "linux-modules-nvidia-580-open-6.8.0-88-generic": "6.8.0-88.89",
    "vim": f"{V}-1",
}
KEYS = sorted(PACKAGES)


def having(key: str, held=(), record=None, files=None, patterns=(), **changes) -> dict:
    """Describe a host with a driver that the role did not install."""
    there = host(
        key,
        (A100,),
        **{
            "packages": {**PACKAGES[key], **OTHERS, **PLUGIN},
            "held": held,
            "driver": {"loaded": V, "library": V, "kernel_module_flavor": "open"},
            "modules": {KERNELS[key]: V},
            "modules_loaded": ["nvidia", "nvidia_uvm"],
            "package_state": {"held_patterns": list(patterns)},
            **changes,
        },
    )
    there["files"] = {path: {"exists": True, "content": text} for path, text in (files or {}).items()}
    if record is not None:
        there["files"][owned.DRIVER_RECORD] = {"exists": True, "content": record}
    return there


def planned(key: str, there: dict, **request) -> DriverPlan:
    result = driver_plan.plan(there, request, platform(key))
    assert (result.errors, result.action, result.source) == ([], "adopt", "preinstalled")
    # No packages and no queries.
    assert (result.todo.query, result.todo.prerequisites) == ([], [])
    assert {name for name, value in vars(result.todo.transaction).items() if value} <= {"hold", "release", "files"}
    return result


def newly_held(there: dict, result: DriverPlan) -> list[str]:
    """Return the packages that the transaction holds."""
    selectors = [selectors_of_allowed_packages.parse(text) for text in result.todo.transaction.hold]
    packages = there["packages"].items()
    return sorted(
        name
        for name, package in packages
        if not package["held"] and selectors_of_allowed_packages.is_selected(selectors, name, package["version"])
    )


def after(key: str, there: dict, result: DriverPlan) -> dict:
    """Return the host after the run."""
    work, held = result.todo.transaction, {name for name, package in there["packages"].items() if package["held"]}
    new = newly_held(there, result)
    own = (record_of_role.read(there, owned.DRIVER_RECORD)["holds"] + new) if there["files"] else new
    files = {path: item["content"] for path, item in there["files"].items() if path != owned.DRIVER_RECORD}
    for file in all_files(result):
        files.pop(file["path"], None)
        files.update({file["path"]: file["content"]} if file["state"] == "present" else {})
    own = [name for name in own if name not in work.release]
    return having(key, (held | set(new)) - set(work.release), recorded(*own), files)


def recorded(*names: str) -> str:
    return json.dumps({"packages": [], "files": {}, "holds": sorted(names)})


@pytest.mark.parametrize("key", KEYS)
def test_adopted_driver_is_held_once(key):
    bare = having(key)
    result = planned(key, bare)
    names = sorted(PACKAGES[key])
    work = result.todo.transaction
    assert (work.hold, work.release, newly_held(bare, result)) == (names, [], names)
    assert f"hold {', '.join(names)}" in result.changes
    files = [owned.DRIVER_UNATTENDED_UPGRADES] if key.startswith("ubuntu") else []
    assert [file["path"] for file in all_files(result)] == files
    there = after(key, bare, result)
    second = planned(key, there)
    assert (second.acts, second.changes) == (False, [])
    assert driver_source.installed(there, platform(key)) == "preinstalled"


def test_modules_without_libraries_are_refused():
    there = having("el-9", driver={"loaded": None, "library": None, "on_disk": V, "on_disk_flavor": "open"})
    result = driver_plan.plan(there, {}, platform("el-9"))
    assert len(result.errors) == 1
    assert f"kernel modules {V} are installed, but the driver's libraries are missing" in result.errors[0]


@pytest.mark.parametrize("key", KEYS)
def test_user_holds_stay(key):
    hers, *rest = sorted(PACKAGES[key])
    there = after(key, having(key, (hers,)), planned(key, having(key, (hers,))))
    assert record_of_role.read(there, owned.DRIVER_RECORD)["holds"] == rest
    released = planned(key, there, hold=False)
    assert (released.todo.transaction.hold, released.todo.transaction.release) == ([], rest)
    gone = [file["path"] for file in all_files(released) if file["state"] == "absent"]
    assert gone == ([owned.DRIVER_UNATTENDED_UPGRADES] if key.startswith("ubuntu") else [])
    free = after(key, there, released)
    assert record_of_role.read(free, owned.DRIVER_RECORD)["holds"] == []
    assert not planned(key, free, hold=False).acts
    # Only the user's holds: nothing to release.
    assert not planned(key, having(key, (hers,)), hold=False).acts


@pytest.mark.parametrize("key", KEYS)
def test_absent_keeps_the_adopted_driver(key):
    there = after(key, having(key), planned(key, having(key)))
    plan = driver_removal.plan(there, platform(key))
    # Module package_transaction releases the recorded holds.
    assert (plan["errors"], plan["acts"], plan["record"]) == ([], True, True)
    assert not any(plan[name] for name in ("packages", "unload", "services", "disable", "runfile", "files"))
    assert any("this role did not install" in reason for reason in plan["reasons"])


WITHOUT = [
    ({"packages": {}}, "no packages"),
    ({"packages": OTHERS}, "packages of another version"),
    ({"driver": {"loaded": V, "library": V, "runfile": True}}, "by NVIDIA's installer"),
]


@pytest.mark.parametrize(("changes", "case"), WITHOUT)
@pytest.mark.parametrize("key", KEYS)
def test_driver_without_packages_is_not_held(key, changes, case):
    for request in ({}, {"hold": False}):
        assert not planned(key, having(key, **changes), **request).acts, case


def test_driver_on_unknown_platform_is_not_held():
    there = having("el-9")
    there["os"]["key"] = None
    assert not driver_plan.plan(there, {}, None).acts


def test_missing_lock_plugin_is_reported():
    there = having("el-9", packages=PACKAGES["el-9"])
    result = planned("el-9", there)
    assert result.acts is False
    (reason,) = [text for text in result.reasons if "not held" in text]
    assert "python3-dnf-plugin-versionlock" in reason
    assert "nvidia_driver_hold to false" in reason
    assert not any("not held" in text for text in planned("el-9", there, hold=False).reasons)


OLD = f"akmod-nvidia-3:{V}-1.el9.*"


@pytest.mark.parametrize(("record", "expected"), [(["akmod-nvidia"], ["akmod-nvidia"]), (["xorg-x11-drv-nvidia"], [])])
def test_own_lock_of_replaced_version_is_removed(record, expected):
    newer = dict.fromkeys(PACKAGES["el-9"], "3:590.44.01-1.el9")
    driver = {"loaded": "590.44.01", "library": "590.44.01"}
    there = having("el-9", packages={**newer, **PLUGIN}, driver=driver, record=recorded(*record), patterns=[OLD])
    work = planned("el-9", there).todo.transaction
    # The new version is held again.
    assert (work.hold, work.release) == (sorted(newer), expected)


def test_own_zypper_lock_of_removed_package_is_removed():
    names = sorted(PACKAGES["sles-15"])
    there = having("sles-15", names, recorded(*names, "nvidia-video-G06"), patterns=["nvidia-video-G06", "nvidia-mine"])
    work = planned("sles-15", there).todo.transaction
    assert (work.hold, work.release) == (names, ["nvidia-video-G06"])


def test_adopting_own_driver_releases_holds():
    packages = {"nvidia-utils-580-server": UBUNTU, "libnvidia-compute-580-server": UBUNTU}
    files = {owned.DRIVER_APT_PREFERENCES: "Pin: version", owned.DRIVER_UNATTENDED_UPGRADES: "x"}
    record = json.dumps({"packages": ["nvidia-utils-580-server"], "files": {}})
    there = having("ubuntu-24.04", list(packages), record, files, packages=packages)
    work = planned("ubuntu-24.04", there, source="preinstalled", hold=False).todo.transaction
    assert work.release == ["nvidia-utils-580-server"]
    states = {file["path"]: file["state"] for file in work.files}
    assert states == {owned.DRIVER_UNATTENDED_UPGRADES: "absent", owned.DRIVER_APT_PREFERENCES: "present"}
    (pin,) = [file["content"] for file in work.files if file["path"] == owned.DRIVER_APT_PREFERENCES]
    assert "Pin: version" not in pin


# --- Ubuntu's prebuilt modules ------------------------------------------------------------------------------------
# `ubuntu-drivers install` installs the packages without -server, with prebuilt modules.

NEXT = "6.8.0-90-generic"
IMAGE = {"linux-image-generic": "6.8.0-88.89"}
LIBRARIES = dict.fromkeys(("libnvidia-compute-580", "nvidia-kernel-common-580", "nvidia-utils-580"), UBUNTU)


def prebuilt(name: str, kernel: str = "6.8.0-88-generic") -> dict:
    """Return the versions of prebuilt modules and their meta package."""
    return dict.fromkeys((f"{name}-{kernel}", f"{name}-{kernel.lstrip('0123456789.-')}"), "6.8.0-88.89")


def dkms(name: str, version: str) -> list[dict]:
    return [{"name": name, "version": version, "kernels": {}, "failure": None}]


OPEN = "linux-modules-nvidia-580-open"
KERNELS_HELD = [
    # Modules without -server, with it, and proprietary ones.
    (prebuilt(OPEN), IMAGE, [], ["linux-image-generic", f"{OPEN}-generic"]),
    (
        prebuilt("linux-modules-nvidia-580-server-open"),
        IMAGE,
        [],
        ["linux-image-generic", "linux-modules-nvidia-580-server-open-generic"],
    ),
    (prebuilt("linux-modules-nvidia-580"), IMAGE, [], ["linux-image-generic", "linux-modules-nvidia-580-generic"]),
    # The module of the kernel without its meta package.
    ({f"{OPEN}-6.8.0-88-generic": "6.8.0-88.89"}, IMAGE, [], ["linux-image-generic"]),
    # Other meta packages of the image.
    (
        {f"{OPEN}-6.8.0-88-generic": "6.8.0-88.89", f"{OPEN}-generic-hwe-24.04": "6.8.0-88.89"},
        {"linux-image-generic-hwe-24.04": "6.8.0-88.89", "linux-image-virtual": "6.8.0-88.89"},
        [],
        ["linux-image-generic-hwe-24.04", "linux-image-virtual", f"{OPEN}-generic-hwe-24.04"],
    ),
    # A kernel without a meta package is not upgraded.
    ({f"{OPEN}-6.8.0-88-generic": "6.8.0-88.89"}, {"linux-image-6.8.0-88-generic": "6.8.0-88.89"}, [], []),
    # DKMS builds the modules of later kernels. nvidia-fs is another module.
    (prebuilt(OPEN), IMAGE, dkms("nvidia", V), []),
    (prebuilt(OPEN), IMAGE, dkms("nvidia-fs", "2.26.6"), ["linux-image-generic", f"{OPEN}-generic"]),
    # Leftovers of an older kernel or an older branch.
    ({f"{OPEN}-6.8.0-60-generic": "6.8.0-60.63"}, IMAGE, [], []),
    (prebuilt("linux-modules-nvidia-535"), IMAGE, [], []),
    ({}, IMAGE, [], []),
]


@pytest.mark.parametrize(("modules", "images", "built", "expected"), KERNELS_HELD)
def test_kernel_is_held_with_adopted_prebuilt_modules(modules, images, built, expected):
    packages = {**LIBRARIES, **modules, **images}
    there = having("ubuntu-24.04", packages=packages, dkms=built)
    result = planned("ubuntu-24.04", there, source="preinstalled")
    assert newly_held(there, result) == sorted([*LIBRARIES, *expected])
    reasons = [reason for reason in result.reasons if "is held" in reason]
    assert [all(word in reason for word in (*expected, "then run apt-get dist-upgrade")) for reason in reasons] == (
        [True] if expected else []
    )
    # Plain apt-get upgrade installs no new packages, and therefore no new kernel.
    assert all("Do not use 'apt upgrade' or 'apt-get upgrade --with-new-pkgs': these" in reason for reason in reasons)
    free = planned("ubuntu-24.04", there, source="preinstalled", hold=False)
    assert (newly_held(there, free), [reason for reason in free.reasons if "is held" in reason]) == ([], [])


def test_kernel_holds_of_an_adopted_driver_end_with_their_cause():
    packages = {**LIBRARIES, **prebuilt(OPEN), **IMAGE}
    bare = having("ubuntu-24.04", packages=packages)
    held = [*LIBRARIES, "linux-image-generic", f"{OPEN}-generic"]
    record = recorded(*newly_held(bare, planned("ubuntu-24.04", bare)))
    files = {file["path"]: file["content"] for file in all_files(planned("ubuntu-24.04", bare))}
    there = having("ubuntu-24.04", held, record, files, packages=packages)
    assert not planned("ubuntu-24.04", there).acts
    free = planned("ubuntu-24.04", there, hold=False)
    assert free.todo.transaction.release == sorted(held)
    # DKMS replaces the prebuilt modules.
    built = having("ubuntu-24.04", held, record, files, packages={**LIBRARIES, **IMAGE}, dkms=dkms("nvidia", V))
    assert planned("ubuntu-24.04", built).todo.transaction.release == ["linux-image-generic"]
    # The user's hold stays.
    hers = having("ubuntu-24.04", held, recorded(*LIBRARIES), files, packages=packages)
    assert planned("ubuntu-24.04", hers, hold=False).todo.transaction.release == sorted(LIBRARIES)


def without_next_module(key: str, **changes) -> dict:
    return having(key, next_kernel={"ubuntu-24.04": NEXT}.get(key, "5.14.0-611.el9.x86_64"), **changes)


WITHOUT_MODULE = [
    ("ubuntu-24.04", {"held": [*LIBRARIES], "packages": LIBRARIES}, ["with apt", "apt-mark unhold"]),
    ("ubuntu-24.04", {"packages": LIBRARIES}, ["with apt"]),
    ("el-9", {"held": [*PACKAGES["el-9"]]}, ["with dnf", "dnf versionlock delete"]),
    ("ubuntu-24.04", {"packages": {}}, ["with the tool that installed the driver"]),
    (
        "ubuntu-24.04",
        {"packages": {}, "driver": {"loaded": V, "library": V, "runfile": True}},
        ["with NVIDIA's installer"],
    ),
]


@pytest.mark.parametrize(("key", "changes", "words"), WITHOUT_MODULE)
def test_next_kernel_without_module_of_an_adopted_driver_is_reported(key, changes, words):
    result = planned(key, without_next_module(key, **changes), hold=False)
    (reason,) = [text for text in result.reasons if "has no NVIDIA module" in text]
    assert [word for word in ["boots next", "does not change an adopted driver", *words] if word not in reason] == []
    assert ("unhold" in reason or "versionlock" in reason) is bool(changes.get("held"))
    # The role is about to hold the driver.
    (reason,) = [text for text in planned(key, without_next_module(key, **changes)).reasons if "has no NVIDIA" in text]
    assert ("unhold" in reason or "versionlock" in reason) is ("with apt" in words or "with dnf" in words)
    # The module is there, or the driver runs in a container.
    assert not any("has no NVIDIA module" in text for text in planned(key, having(key, **changes)).reasons)
    container = {**changes, "modules": {}}
    assert not any("has no NVIDIA" in text for text in planned(key, without_next_module(key, **container)).reasons)


def test_a_host_that_booted_a_kernel_without_module_is_reported():
    there = having("ubuntu-24.04", packages=LIBRARIES, modules={}, driver={"loaded": None, "library": V})
    assert any(
        "kernel 6.8.0-88-generic, which boots next, has no NVIDIA module" in r
        for r in planned("ubuntu-24.04", there).reasons
    )


@pytest.mark.parametrize(
    ("module", "is_reported"), [("kmod-nvidia-open-580.95.05-5.14.0-570.12.1", True), ("akmod-nvidia", False)]
)
def test_dnf_does_not_hold_the_kernel(module, is_reported):
    packages = {**PLUGIN, module: EL, "nvidia-driver-cuda": EL, "nvidia-driver-cuda-libs": EL}
    there = having("el-9", packages=packages)
    result = planned("el-9", there)
    reasons = [reason for reason in result.reasons if "the kernel is not held" in reason]
    assert [module in reason for reason in reasons] == ([True] if is_reported else [])
    assert not any("the kernel is not held" in reason for reason in planned("el-9", there, hold=False).reasons)
