# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import fabric_manager as driver_fabric
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import A100, B200, GB200, H100, host, platform

UNIT = "nvidia-fabricmanager.service"
VERSION = "580.95.05"
DRIVER = {"loaded": VERSION, "library": VERSION, "on_disk": VERSION, "on_disk_next": VERSION}
SWITCHES = {"nvswitches": ["0000:83:00.0"]}
OURS = {"nvidia-fabricmanager": f"{VERSION}-1"}
AT_WORK = {UNIT: {"load_state": "loaded", "unit_file_state": "enabled", "active_state": "active"}}
AT_REST = {UNIT: {"load_state": "loaded", "unit_file_state": "disabled", "active_state": "inactive"}}
MASKED = {UNIT: {"load_state": "masked", "unit_file_state": "masked", "active_state": "inactive"}}
MISSING = {UNIT: {"load_state": "not-found", "unit_file_state": None, "active_state": "inactive"}}


def adopted(request=None, **changes) -> DriverPlan:
    """Plan for a host whose driver came with its image."""
    driver = {**DRIVER, "kernel_module_flavor": "open", **changes.pop("driver", {})}
    loaded = ["nvidia", "nvidia_uvm"] if driver["loaded"] else []
    there = host("ubuntu-24.04", (H100,), **{"driver": driver, "nvidia": SWITCHES, "modules_loaded": loaded, **changes})
    return driver_plan.plan(there, {"source": "preinstalled", **(request or {})}, platform("ubuntu-24.04"))


def test_running_fabric_manager_is_unchanged():
    result = adopted({"hold": False}, packages=OURS, services=AT_WORK)
    assert (result.errors, result.acts, result.todo.services) == ([], False, [])
    assert not any("fabric" in reason for reason in result.reasons)


@pytest.mark.parametrize("state", [{}, {"unit_file_state": "enabled"}, {"active_state": "active"}])
def test_adopted_fabric_manager_is_enabled_and_started(state):
    result = adopted(packages=OURS, services={UNIT: {**AT_REST[UNIT], **state}})
    assert (result.errors, result.todo.services, result.applies["services"]) == ([], [UNIT], True)
    assert result.action == "adopt"


def test_fabric_manager_is_enabled_before_reboot():
    result = adopted(packages=OURS, services=AT_REST, driver={"loaded": None, "on_disk": None})
    assert result.todo.services == [UNIT]


@pytest.mark.parametrize("name", ["nvidia-fabricmanager-570", "nvidia-fabricmanager", "nvidia-fabric-manager"])
@pytest.mark.parametrize("services", [AT_WORK, AT_REST, {}])
def test_fabric_manager_of_other_version_is_refused(name, services):
    result = adopted(packages={name: "570.86.15-1"}, services=services)
    (error,) = result.errors
    for word in (VERSION, f"570.86.15 ({name})", "error 802", "nvidia_driver_fabric_manager to disabled"):
        assert word in error
    assert not result.acts


def test_matching_fabric_manager_beside_older_one_is_accepted():
    result = adopted(packages={"nvidia-fabricmanager-570": "570.86.15-1", **OURS}, services=AT_WORK)
    assert result.errors == []


@pytest.mark.parametrize(
    ("services", "words"),
    [(MISSING, "no fabric manager: this host has NVSwitches"), ({}, "no fabric manager: this host has NVSwitches"),
     (MASKED, "systemctl unmask nvidia-fabricmanager.service")],
)  # fmt: skip
def test_missing_fabric_manager_is_reported(services, words):
    result = adopted(services=services)
    assert (result.errors, result.todo.services) == ([], [])
    (reason,) = [reason for reason in result.reasons if "fabric" in reason]
    assert words in reason
    assert "error 802" in reason


@pytest.mark.parametrize(("request_", "nvidia"), [({"fabric_manager": "disabled"}, SWITCHES), ({}, {"nvswitches": []})])
def test_disabled_fabric_manager_is_ignored(request_, nvidia):
    result = adopted(request_, nvidia=nvidia, packages={"nvidia-fabricmanager-570": "570.86.15-1"}, services=AT_REST)
    assert (result.errors, result.todo.services) == ([], [])
    assert not any("fabric" in reason for reason in result.reasons)


def test_requested_fabric_manager_that_is_installed_is_accepted():
    result = adopted({"fabric_manager": "enabled"}, nvidia={"nvswitches": []}, packages=OURS, services=AT_REST)
    assert result.todo.services == [UNIT]
    assert not any("is ignored" in reason for reason in result.reasons)


FABRIC = [
    ({"state": "completed", "status": 0}, None),
    ({"state": "completed", "status": 999}, "failed with NVML code 999"),
    ({"state": "in_progress", "status": None}, "is in progress"),
    ({"state": "not_started", "status": None}, "is not started"),
    ({"state": None, "status": None}, None),
    (None, None),
]


@pytest.mark.parametrize(("fabric", "words"), FABRIC)
def test_gpus_outside_fabric_are_listed(fabric, words):
    joined = {"index": 0, "pci_bus_id": "0000:1b:00.0", "fabric": {"state": "completed", "status": 0}}
    asked = {"index": 1, "pci_bus_id": "0000:43:00.0", "fabric": fabric}
    waiting = driver_fabric.gpus_outside_fabric({"nvidia_gpus": [joined, asked]})
    assert len(waiting) == (1 if words else 0)
    for text in waiting:
        assert text.startswith("GPU 0000:43:00.0: the registration with the NVLink fabric")
        assert words in text
        assert "nvidia-fabricmanager" in text


def test_gpus_without_address_are_listed_by_index():
    gpu = {"index": 3, "pci_bus_id": None, "fabric": {"state": "in_progress", "status": None}}
    assert driver_fabric.gpus_outside_fabric({"nvidia_gpus": [gpu]})[0].startswith("GPU 3: ")
    assert driver_fabric.gpus_outside_fabric({}) == []


B300, GB300 = "0x3182", "0x31c2"
NODES = "/etc/nvidia-imex/nodes_config.cfg"
SEEN = {"nvlink5_switches": ["0000:05:00.0"]}
ALL = {"fabricmanager", "nvlsm", "imex"}


def planned(gpu: str, request=None, key="ubuntu-24.04", **changes) -> tuple[DriverPlan, set[str]]:
    """Plan for a bare host. Return the plan and the planned companions."""
    result = driver_plan.plan(host(key, (gpu,), **changes), request or {}, platform(key))
    names = ("fabricmanager", "nvlsm", "imex")
    return result, {name for name in names if any(name in package for package in result.packages)}


NVLINK5 = [
    *((gpu, {}, {}, set(), "but this host has no NVSwitch") for gpu in (B200, B300)),
    *((gpu, {}, {}, {"imex"}, "but this host has no NVSwitch") for gpu in (GB200, GB300)),
    *((gpu, {}, SEEN, {"fabricmanager", "nvlsm"}, None) for gpu in (B200, B300)),
    *((gpu, {}, SEEN, ALL, None) for gpu in (GB200, GB300)),
    *((gpu, {"fabric_manager": "enabled"}, {}, {"fabricmanager", "nvlsm"}, None) for gpu in (B200, B300)),
    *((gpu, {"fabric_manager": "enabled"}, {}, ALL, None) for gpu in (GB200, GB300)),
    (B200, {"fabric_manager": "disabled"}, {}, set(), None),
    (GB200, {"imex": False}, {}, set(), "but this host has no NVSwitch"),
    (B200, {"imex": True}, {}, {"imex"}, "but this host has no NVSwitch"),
    (H100, {"fabric_manager": "enabled"}, {}, {"fabricmanager"}, None),
    (A100, {}, {}, set(), None),
]


@pytest.mark.parametrize("key", ["ubuntu-24.04", "el-9", "sles-15"])
@pytest.mark.parametrize("row", NVLINK5)
def test_nvlink_5_adds_companions(key, row):
    gpu, request_, nvidia, companions, words = row
    result, came = planned(gpu, {"source": "nvidia", **request_}, key, nvidia=nvidia)
    assert (result.errors, came) == ([], companions)
    assert ("ib_umad" in result.modules) == ("nvlsm" in companions)
    assert any("no fabric manager" in reason and gpu in reason for reason in result.reasons) == bool(words)
    assert not words or any(words in reason for reason in result.reasons)


def test_requested_fabric_manager_needs_source_with_subnet_manager():
    result, came = planned(B200, {"fabric_manager": "enabled"})
    assert (result.source, came) == ("nvidia", {"fabricmanager", "nvlsm"})


@pytest.mark.parametrize(
    ("nodes", "runs"),
    [(None, False), ("", False), ("# 192.0.2.1\n\n", False), ("# ours\n192.0.2.1\n192.0.2.2\n", True)],
)
def test_automatic_imex_starts_with_nodes(nodes, runs):
    files = {} if nodes is None else {NODES: {"exists": True, "content": nodes}}
    result, came = planned(GB200, {"source": "nvidia"}, files=files)
    assert came == {"imex"}
    assert ("nvidia-imex.service" in result.services) is runs
    assert any(f"{NODES} lists no nodes" in reason for reason in result.reasons) is not runs
    asked, came = planned(GB200, {"source": "nvidia", "imex": True}, files=files)
    assert came == {"imex"}
    assert "nvidia-imex.service" in asked.services


def test_missing_automatic_imex_is_no_error():
    request = {"source": "runfile", "version": VERSION, "runfile_checksum": "sha256:" + "0" * 64}
    result, came = planned(GB200, request)
    assert (result.errors, came) == ([], set())
    assert any(reason.startswith("no IMEX: 0x2941 (Blackwell) share NVLink") for reason in result.reasons)
    result, came = planned(GB200, {**request, "imex": True})
    assert "nvidia_driver_imex is true" in result.errors[0]


def test_adopted_driver_reports_missing_switches():
    there = host("ubuntu-24.04", (B200,), driver={**DRIVER, "kernel_module_flavor": "open"})
    result = driver_plan.plan(there, {"source": "preinstalled"}, platform("ubuntu-24.04"))
    assert (result.errors, result.acts) == ([], result.applies["modules"])
    assert any("this host has no NVSwitch" in reason for reason in result.reasons)


GUESTS = {"gpus": [], "device_ids": [], "gpus_of_guests": ["0000:17:00.0"]}


@pytest.mark.parametrize(
    ("request_", "words"),
    [({"fabric_manager": "enabled"}, "nvidia_driver_fabric_manager is enabled"),
     ({"imex": True}, "nvidia_driver_imex is true"),
     ({"fabric_manager": "enabled", "imex": True}, "nvidia_driver_imex is true")],
)  # fmt: skip
@pytest.mark.parametrize("nvidia", [GUESTS, {**GUESTS, **SWITCHES}])
def test_service_requested_on_host_whose_gpus_are_in_virtual_machines_is_refused(request_, words, nvidia):
    (error,) = planned(H100, request_, nvidia=nvidia)[0].errors
    for part in (words, "0000:17:00.0", "virtual machines", "Remove the setting for this host"):
        assert part in error


@pytest.mark.parametrize("request_", [{}, {"fabric_manager": "disabled"}, {"imex": "auto"}])
def test_host_whose_gpus_are_in_virtual_machines_needs_nothing(request_):
    result, _packages = planned(H100, request_, nvidia=GUESTS)
    assert (result.errors, result.acts) == ([], False)


def test_host_without_gpu_in_group_with_fabric_manager_is_accepted():
    result, _packages = planned(H100, {"fabric_manager": "enabled"}, nvidia={**GUESTS, "gpus_of_guests": []})
    assert result.errors == []
    assert "nvidia_driver_fabric_manager is enabled has no effect here" in result.reasons[0]


@pytest.mark.parametrize("variant", ["wsl", "tegra"])
def test_fabric_manager_requested_for_driver_of_another_system_is_refused(variant):
    result, _packages = planned(
        H100, {"fabric_manager": "enabled"}, nvidia={**GUESTS, "gpus_of_guests": []}, os={"variant": variant}
    )
    assert "nvidia_driver_fabric_manager is enabled, but this host " in result.errors[0]
