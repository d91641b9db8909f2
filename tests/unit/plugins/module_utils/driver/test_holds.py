# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a driver that somebody else installed by packages is kept, and let go of again."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import removal as driver_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source as driver_source
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import A100, KERNELS, host, platform

V = "580.95.05"
UBUNTU, EL, SLES = f"{V}-0ubuntu0.24.04.1", f"3:{V}-1.el9", f"{V}-1"
PLUGIN = {"python3-dnf-plugin-versionlock": "4.3.0-16.el9"}
# Names that the role would not choose: the desktop's, RPM Fusion's, SUSE's for X.
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
# None of the driver's, or of another version.
OTHERS = {
    "nvidia-container-toolkit": "1.18.0-1",
    "libnvidia-old-570": "570.86.15-1",
    "linux-modules-nvidia-580-open-6.8.0-88-generic": "6.8.0-88.89",
    "vim": f"{V}-1",
}
KEYS = sorted(PACKAGES)


def having(key: str, held=(), record=None, files=None, patterns=(), **changes) -> dict:
    """Describe a host on which somebody has installed a driver."""
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
        there["files"][driver_plan.RECORD_FILE] = {"exists": True, "content": record}
    return there


def planned(key: str, there: dict, **request) -> dict:
    result = driver_plan.plan(there, request, platform(key))
    assert (result["errors"], result["action"], result["source"]) == ([], "adopt", "preinstalled")
    todo = result["todo"]
    # Nothing comes, and nothing is asked of anybody.
    assert not any(todo[name] for name in ("install", "query", "prerequisites", "repository", "remove", "release"))
    return result


def after(key: str, there: dict, result: dict, until: str = "after") -> dict:
    """Return the host as the run leaves it; one that is cut off comes `until` the record that it writes `before`."""
    todo, held = result["todo"], {name for name, package in there["packages"].items() if package["held"]}
    record = (there["files"].get(driver_plan.RECORD_FILE) or {}).get("content")
    if todo["holds"]:
        record = driver_removal.hold(there, todo["holds"][until])
    files = {path: item["content"] for path, item in there["files"].items() if path != driver_plan.RECORD_FILE}
    if until == "before":
        return having(key, held, record, files)
    for file in todo["files"]:
        files.pop(file["path"], None)
        files.update({file["path"]: file["content"]} if file["state"] == "present" else {})
    return having(key, (held | set(todo["hold"])) - set(todo["unhold"]), record, files)


def recorded(*names: str) -> str:
    return driver_removal.hold(host("el-9"), list(names))


@pytest.mark.parametrize("key", KEYS)
def test_an_adopted_driver_is_held_once(key):
    bare = having(key)
    result = planned(key, bare)
    names = sorted(PACKAGES[key])
    assert (result["todo"]["hold"], result["todo"]["unhold"]) == (names, [])
    assert result["todo"]["holds"] == {"before": names, "after": names}
    assert f"hold {', '.join(names)}" in result["summary"]
    files = [driver_plan.BLACKLIST_FILE] if key.startswith("ubuntu") else []
    assert [file["path"] for file in result["todo"]["files"]] == files
    # A run that was cut off has written down what it was about to hold, and the next one does.
    again = planned(key, after(key, bare, result, "before"))
    assert (again["todo"]["hold"], again["todo"]["holds"]) == (names, None)
    there = after(key, bare, result)
    second = planned(key, there)
    assert (second["acts"], second["summary"]) == (False, [])
    assert driver_source.installed(there, platform(key)) == "preinstalled"


@pytest.mark.parametrize("key", KEYS)
def test_what_the_user_holds_stays_hers(key):
    hers, *rest = sorted(PACKAGES[key])
    there = after(key, having(key, (hers,)), planned(key, having(key, (hers,))))
    assert driver_removal.read_record(there)["holds"] == rest
    released = planned(key, there, hold=False)
    assert (released["todo"]["hold"], released["todo"]["unhold"]) == ([], rest)
    gone = [file["path"] for file in released["todo"]["files"] if file["state"] == "absent"]
    assert gone == ([driver_plan.BLACKLIST_FILE] if key.startswith("ubuntu") else [])
    free = after(key, there, released)
    assert driver_removal.read_record(free)["holds"] == []
    assert not planned(key, free, hold=False)["acts"]
    # Hers alone: there is nothing to release.
    assert planned(key, having(key, (hers,)), hold=False)["todo"]["unhold"] == []


@pytest.mark.parametrize("key", KEYS)
def test_absent_takes_back_the_holds_and_nothing_of_hers(key):
    hers, *rest = sorted(PACKAGES[key])
    there = after(key, having(key, (hers,)), planned(key, having(key, (hers,))))
    stale = "kmod-nvidia-open-dkms-3:570.86.15-1.el9.*"
    there["package_state"]["held_patterns"] = [stale]
    plan = driver_removal.plan({**there, "package_names": list(there["packages"])}, platform(key))
    assert (plan["errors"], plan["acts"], plan["unhold"]) == ([], True, rest)
    kept = (
        "packages",
        "leftovers",
        "release",
        "unload",
        "services",
        "disable",
        "stream",
        "rpm_keys",
        "runfile",
        "restore",
    )
    assert not any(plan[name] for name in kept)
    files = [driver_plan.BLACKLIST_FILE] if key.startswith("ubuntu") else []
    assert plan["files"] == [*files, driver_plan.RECORD_FILE]
    assert any("not installed by this role" in reason for reason in plan["reasons"])


WITHOUT = [
    ({"packages": {}}, "no packages"),
    ({"packages": OTHERS}, "packages of another version"),
    ({"driver": {"loaded": V, "library": V, "runfile": True}}, "by NVIDIA's installer"),
]


@pytest.mark.parametrize(("changes", "case"), WITHOUT)
@pytest.mark.parametrize("key", KEYS)
def test_a_driver_that_came_without_packages_is_left_as_it_is(key, changes, case):
    for request in ({}, {"hold": False}):
        assert not planned(key, having(key, **changes), **request)["acts"], case


def test_a_driver_on_a_platform_that_is_not_known_is_left_as_it_is():
    there = having("el-9")
    there["os"]["key"] = None
    assert not driver_plan.plan(there, {}, None)["acts"]


def test_no_plugin_is_added_to_lock_with_and_that_is_said():
    there = having("el-9", packages=PACKAGES["el-9"])
    result = planned("el-9", there)
    assert (result["acts"], result["todo"]["hold"]) == (False, [])
    (reason,) = [text for text in result["reasons"] if "not held" in text]
    assert "python3-dnf-plugin-versionlock" in reason
    assert "nvidia_driver_hold to false" in reason
    assert not any("not held" in text for text in planned("el-9", there, hold=False)["reasons"])


OLD = f"akmod-nvidia-3:{V}-1.el9.*"


@pytest.mark.parametrize(("record", "expected"), [(["akmod-nvidia"], [OLD]), (["xorg-x11-drv-nvidia"], [])])
def test_the_lock_of_a_version_that_the_user_has_replaced_goes_if_it_was_ours(record, expected):
    newer = dict.fromkeys(PACKAGES["el-9"], "3:590.44.01-1.el9")
    driver = {"loaded": "590.44.01", "library": "590.44.01"}
    there = having("el-9", packages={**newer, **PLUGIN}, driver=driver, record=recorded(*record), patterns=[OLD])
    todo = planned("el-9", there)["todo"]
    assert (todo["hold"], todo["unhold"]) == (sorted(newer), expected)
    assert driver_removal.plan(there, platform("el-9"))["unhold"] == expected


def test_zyppers_lock_on_a_package_that_has_gone_goes_with_the_next_run():
    names = sorted(PACKAGES["sles-15"])
    there = having("sles-15", names, recorded(*names, "nvidia-video-G06"), patterns=["nvidia-video-G06", "nvidia-mine"])
    todo = planned("sles-15", there)["todo"]
    assert (todo["unhold"], todo["holds"]["after"]) == (["nvidia-video-G06"], names)
    assert driver_removal.plan(there, platform("sles-15"))["unhold"] == [*names, "nvidia-video-G06"]


def test_a_driver_of_the_roles_own_that_is_insisted_on_lets_go_of_what_it_held():
    packages = {"nvidia-utils-580-server": UBUNTU, "libnvidia-compute-580-server": UBUNTU}
    files = {driver_plan.PIN_FILE: "Pin: version", driver_plan.BLACKLIST_FILE: "x"}
    record = json.dumps({"packages": ["nvidia-utils-580-server"], "files": {}})
    there = having("ubuntu-24.04", list(packages), record, files, packages=packages)
    todo = planned("ubuntu-24.04", there, source="preinstalled", hold=False)["todo"]
    assert todo["unhold"] == ["nvidia-utils-580-server"]
    states = {file["path"]: file["state"] for file in todo["files"]}
    assert states == {driver_plan.BLACKLIST_FILE: "absent", driver_plan.PIN_FILE: "present"}
    (pin,) = [file["content"] for file in todo["files"] if file["path"] == driver_plan.PIN_FILE]
    assert "Pin: version" not in pin


def test_holds_stay_in_the_record_as_long_as_their_packages():
    there = having("ubuntu-24.04", record=recorded("nvidia-utils-580", "nvidia-gone-580"))
    names = list(there["packages"])
    there["files"][driver_plan.RECORD_FILE]["content"] = driver_removal.begin(there, names)
    assert driver_removal.read_record(there)["holds"] == ["nvidia-gone-580", "nvidia-utils-580"]
    there["files"][driver_plan.RECORD_FILE]["content"] = driver_removal.record(there, names, names)
    assert driver_removal.read_record(there)["holds"] == ["nvidia-utils-580"]
    assert driver_removal.read_record(there)["packages"] == []
