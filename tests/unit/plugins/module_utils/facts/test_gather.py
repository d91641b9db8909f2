# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of whole hosts, with a directory tree and a simulated NVML for each."""

from __future__ import annotations

import os
import signal
import sys
import time
import types
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather as facts_gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather_subset_option
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import pynvml_calls, timeout_guard
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.missing_pynvml import BindingMissing
from ansible_collections.gpufleet.hosts.tests.unit.plugins import neutral_facts
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import PROPRIETARY, Tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.simulated_nvml import BINDINGS, Simulated, leaves, load

ALL = gather_subset_option.choose_subsets(["all"])
VERSION = "580.95.05"


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Create a host: a directory tree with the described PCI functions, and a simulated NVML."""

    def make(description: dict, *, bound: str | None = "nvidia", installed: str | None = VERSION) -> Tree:
        tree = Tree(tmp_path / "root")
        simulated = Simulated(tmp_path, {"driver": {"version": VERSION}, **description})
        monkeypatch.setenv("GPUSIM_STATE", str(simulated.lab.state))
        for function in simulated.lab.host["pci"]:
            for name, value in function["files"].items():
                tree.file(f"sys/bus/pci/devices/{function['address']}/{name}", value + "\n")
            if bound and function["files"]["vendor"] == "0x10de":
                tree.link(f"sys/bus/pci/devices/{function['address']}/driver", f"../../../../bus/pci/drivers/{bound}")
        loaded = description.get("driver", {"version": VERSION})
        if loaded.get("loaded", True) and bound == "nvidia":
            tree.loaded(loaded["version"])
        if installed:
            tree.library(installed)
            tree.module(installed)
        return tree

    return make


def gather(tree: Tree, subsets=ALL, **options) -> dict:
    facts = facts_gather.gather(subsets, root=tree.root, **options)["facts"]
    assert neutral_facts.differences(facts, tree.root) == []
    return facts


def test_eight_h100_behind_switches_are_described(host):
    facts = gather(host({"gpus": [{"model": "H100-SXM5-80GB", "count": 8}], "nvswitches": 4, "numa_nodes": 2}))
    assert facts["nvidia_gpu_state"] == "ready"
    assert facts["nvidia_gpu_state_reason"] == "NVML shows 8 GPUs."
    assert facts["nvidia_driver"]["version"] == VERSION
    assert facts["nvidia_driver"]["cuda_version"] == "13.0"
    assert facts["nvidia_driver"]["kernel_module_flavor"] == "open"
    assert facts["nvidia_driver"]["firmware_mode"] == "gsp"
    gpus = facts["nvidia_gpus"]
    assert [gpu["index"] for gpu in gpus] == list(range(8))
    assert {gpu["name"] for gpu in gpus} == {"NVIDIA H100 80GB HBM3"}
    assert {(gpu["architecture"], gpu["compute_capability"]) for gpu in gpus} == {("hopper", "9.0")}
    assert {gpu["memory_total_mib"] for gpu in gpus} == {81559}
    assert {gpu["memory_free_mib"] + gpu["memory_used_mib"] + gpu["memory_reserved_mib"] for gpu in gpus} == {81559}
    assert [gpu["numa_node"] for gpu in gpus] == [0] * 4 + [1] * 4
    assert {gpu["health"]["state"] for gpu in gpus} == {"ok"}
    assert {gpu["fabric"]["state"] for gpu in gpus} == {"completed"}
    assert {gpu["nvlink"]["active_count"] for gpu in gpus} == {18}
    assert len({gpu["uuid"] for gpu in gpus}) == 8
    assert [gpu["pci_bus_id"] for gpu in gpus] == [one["address"] for one in facts["nvidia_pci_devices"]]
    assert {one["kind"] for one in facts["nvidia_pci_devices"]} == {"gpu"}
    assert [one["kind"] for one in facts["nvidia_nvswitches"]] == ["nvswitch"] * 4
    topology = facts["nvidia_topology"]
    assert topology["gpus"] == [gpu["uuid"] for gpu in gpus]
    assert topology["nvlinks"] == [[0 if one == other else 18 for other in range(8)] for one in range(8)]
    assert topology["pcie"][0][0] == "self"
    assert topology["pcie"][0][7] == "sys"
    assert topology["cpu_affinity"][gpus[0]["uuid"]] == "0-63"
    assert topology["cpu_affinity"][gpus[7]["uuid"]] == "64-127"


@pytest.mark.parametrize(
    ("model", "nvswitches", "changes", "reasons"),
    [
        ("H100-SXM5-80GB", 4, {}, []),
        ("H100-SXM5-80GB", 4, {"nvlink.3.state": 0, "nvlink.7.state": 0}, ["2 of 18 NVLinks are down. Check"]),
        ("A100-SXM4-40GB", 6, {"nvlink.0.state": 0}, ["1 of 12 NVLinks are down. Check"]),
        # Without an active link, the GPU is not connected on purpose.
        ("H100-SXM5-80GB", 4, {"nvlink.state": 0}, []),
        # Links between GPUs: the other GPU may be in another virtual machine.
        ("V100-SXM2-16GB", 0, {"nvlink.0.state": 0}, []),
        # NVML_GPU_FABRIC_HEALTH_MASK_*: degraded bandwidth in bits 0-1, unhealthy routes in bits 4-5. 1 is true.
        ("H100-SXM5-80GB", 4, {"fabric.health_mask": 0x21}, ["the bandwidth of the NVLink fabric is degraded"]),
        ("H100-SXM5-80GB", 4, {"fabric.health_mask": 0x12}, ["routes of the NVLink fabric are unhealthy"]),
        ("H100-SXM5-80GB", 4, {"fabric.health_mask": 0x26}, []),
    ],
)
def test_the_health_of_nvlinks_and_fabric_is_judged(host, model, nvswitches, changes, reasons):
    description = {"gpus": [{"model": model, "set": changes}, {"model": model}], "nvswitches": nvswitches}
    for gpu, expected in zip(gather(host(description), {"min", "nvlink"})["nvidia_gpus"], (reasons, [])):
        assert [reason[: len(start)] for reason, start in zip(gpu["health"]["reasons"], expected)] == expected
        assert len(gpu["health"]["reasons"]) == len(expected)


def test_four_a100_with_two_in_mig_mode_are_described(host):
    mig = [["3g.20gb", "2g.10gb", "1g.5gb"], ["1g.5gb"] * 7, None, {"mode": False, "pending": True}]
    facts = gather(host({"gpus": [{"model": "A100-SXM4-40GB", "count": 4, "mig": mig}]}))
    gpus = facts["nvidia_gpus"]
    assert [(gpu["mig"]["enabled"], gpu["mig"]["pending"]) for gpu in gpus] == [
        (True, True),
        (True, True),
        (False, False),
        (False, True),
    ]
    assert [[device["profile"] for device in gpu["mig"]["devices"]] for gpu in gpus] == [
        ["3g.20gb", "2g.10gb", "1g.5gb"],
        ["1g.5gb"] * 7,
        [],
        [],
    ]
    largest = gpus[0]["mig"]["devices"][0]
    assert largest["uuid"].startswith("MIG-")
    assert {key: largest[key] for key in ("gi", "ci", "memory_total_mib", "memory_slices", "compute_slices")} == {
        "gi": 1,
        "ci": 0,
        "memory_total_mib": 19968,
        "memory_slices": 4,
        "compute_slices": 3,
    }
    assert {gpu["remapped_rows"]["pending"] for gpu in gpus[2:]} == {False}
    assert gpus[0]["utilization"]["gpu_percent"] is None
    assert {gpu["health"]["state"] for gpu in gpus} == {"ok"}


def test_products_with_few_fields_are_described(host):
    t4, l40s = gather(host({"gpus": [{"model": "T4"}, {"model": "L40S"}]}))["nvidia_gpus"]
    assert (t4["architecture"], l40s["architecture"]) == ("turing", "ada")
    assert t4["mig"] == {"enabled": None, "pending": None, "devices": [], "devices_max": 0}
    assert t4["retired_pages"] == {"single_bit": 0, "double_bit": 0, "pending": False}
    assert t4["remapped_rows"]["correctable"] is None
    assert t4["temperature"]["slowdown_c"] == 93
    assert l40s["retired_pages"]["pending"] is None
    assert l40s["remapped_rows"]["failed"] is False
    assert l40s["temperature"]["slowdown_c"] is None
    assert l40s["temperature"]["slowdown_margin_c"] == -2
    for gpu in (t4, l40s):
        assert gpu["nvlink"] == {"version": None, "link_count": None, "active_count": None, "links": []}
        assert gpu["fabric"]["state"] is None
        assert gpu["health"] == {"state": "ok", "reasons": []}


def test_a_pci_domain_above_ffff_is_described(host):
    facts = gather(host({"gpus": [{"model": "GB200", "count": 4, "pci_domain": 0x10009}]}))
    assert [gpu["pci_bus_id"] for gpu in facts["nvidia_gpus"]] == [
        one["address"] for one in facts["nvidia_pci_devices"]
    ]
    assert facts["nvidia_gpus"][0]["pci_bus_id"] == "10009:07:00.0"
    assert facts["nvidia_gpus"][0]["architecture"] == "blackwell"


@pytest.mark.parametrize(
    ("health", "state", "words"),
    [
        ("lost", "lost", "fallen off the bus"),
        ("reset_required", "degraded", "needs a reset"),
        ("hot", "degraded", "because of heat"),
        ("remap_pending", "degraded", "remapping of a memory row is pending"),
        ("remap_failed", "degraded", "remapping a memory row failed"),
        ("ecc_errors", "degraded", "uncorrectable memory errors since the driver was loaded: 3"),
    ],
)
@pytest.mark.parametrize("subsets", [frozenset({"min"}), ALL], ids=["min", "all"])
def test_an_unhealthy_gpu_is_reported_and_does_not_hide_others(host, health, state, words, subsets):
    gpus = [{"model": "A100-SXM4-80GB"}, {"model": "A100-SXM4-80GB", "health": health}, {"model": "A100-SXM4-80GB"}]
    facts = gather(host({"gpus": gpus}), subsets)
    assert [gpu["health"]["state"] for gpu in facts["nvidia_gpus"]] == ["ok", state, "ok"]
    assert words in " ".join(facts["nvidia_gpus"][1]["health"]["reasons"])
    assert facts["nvidia_gpu_state"] == "ready"
    assert facts["nvidia_gpu_state_reason"] == "NVML shows 3 GPUs. Check the health of GPU 1."
    assert facts["nvidia_gpus"][1]["pci_bus_id"] == facts["nvidia_pci_devices"][1]["address"]


def test_a_narrow_link_does_not_degrade_a_gpu(host):
    facts = gather(host({"gpus": [{"model": "A100-SXM4-80GB", "health": "narrow"}]}), ALL)
    (gpu,) = facts["nvidia_gpus"]
    assert (gpu["pcie"]["width"], gpu["pcie"]["width_max"]) == (8, 16)
    assert gpu["health"] == {"state": "ok", "reasons": []}


@pytest.mark.parametrize(
    ("action", "name", "words"),
    [
        (0, "none", None),
        (1, "gpu_reset", "requests a reset of this GPU"),
        (6, "bus_reset", "a bus reset of this GPU"),
        (7, "system_reboot", "a reboot of the whole system"),
        (8, "unknown_8", "recovery action 8, which is unknown to this version"),
        (41, "unknown_41", "recovery action 41,"),
    ],
)
def test_every_recovery_action_has_a_name_and_degrades_the_gpu(host, action, name, words):
    gpus = [{"model": "H100-SXM5-80GB", "set": {"recovery_action": action}}]
    facts = gather(host({"driver": {"version": "580.95.05"}, "gpus": gpus}), frozenset({"min"}))
    (gpu,) = facts["nvidia_gpus"]
    assert gpu["recovery_action"] == name
    assert gpu["health"]["state"] == ("degraded" if words else "ok")
    assert words is None or words in gpu["health"]["reasons"][0]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"license.licensed": 1}, {"state": "licensed", "expiry": None}),
        (
            {"license.licensed": 1, "license.expiry": "2027-01-31 12:00:09"},
            {"state": "licensed", "expiry": "2027-01-31T12:00:09Z"},
        ),
        ({"license.licensed": 1, "license.expiry": "permanent"}, {"state": "licensed", "expiry": "permanent"}),
        ({"license.licensed": 1, "license.expiry": "2027-13-31 12:00:09"}, {"state": "licensed", "expiry": None}),
        ({"license.licensed": 0, "license.expiry": "2020-01-31 12:00:09"}, {"state": "unlicensed", "expiry": None}),
        ({"license.supported": 0, "license.licensed": 1}, {"state": "unknown", "expiry": None}),
        ({"license.features": 0}, {"state": "unknown", "expiry": None}),
        ({"license.features": 99}, {"state": "unknown", "expiry": None}),
        ({"license.licensed": 0xFFFFFFFF}, {"state": "unknown", "expiry": None}),
        ({"return.nvmlDeviceGetGridLicensableFeatures": 13}, {"state": "unknown", "expiry": None}),
        ({"return.nvmlDeviceGetGridLicensableFeatures": 999}, {"state": "unknown", "expiry": None}),
        ({"garbage.nvmlDeviceGetGridLicensableFeatures": 255}, {"state": "unknown", "expiry": None}),
    ],
)
def test_the_license_of_a_vgpu_is_read(host, settings, expected):
    (gpu,) = gather(host({"gpus": [{"model": "A10G", "set": {"virtualization_mode": 2, **settings}}]}))["nvidia_gpus"]
    assert gpu["vgpu_license"] == expected
    assert gpu["health"]["state"] == "ok"


@pytest.mark.parametrize("mode", [0, 1, 3, 4])
def test_other_gpus_have_no_license(host, mode):
    settings = {"virtualization_mode": mode, "license.licensed": 1}
    facts = gather(host({"gpus": [{"model": "A10G", "set": settings}]}))
    assert [gpu["vgpu_license"] for gpu in facts["nvidia_gpus"]] == [None]


def test_a_gpu_that_is_no_vgpu_costs_no_call_for_its_license(host):
    faults = [{"call": "nvmlDeviceGetGridLicensableFeatures", "delay": 60}]
    assert gather(host({"gpus": [{"model": "A10G"}], "faults": faults}), timeout=50)["nvidia_gpu_state"] == "ready"


def test_pages_pending_retirement_are_reported(host):
    facts = gather(host({"gpus": [{"model": "T4", "health": "retirement_pending"}]}))
    assert facts["nvidia_gpus"][0]["retired_pages"] == {"single_bit": 0, "double_bit": 1, "pending": True}
    assert "pending retirement" in facts["nvidia_gpus"][0]["health"]["reasons"][0]


def test_an_incomplete_fabric_registration_is_reported(host):
    facts = gather(host({"gpus": [{"model": "H200", "count": 2}], "fabric": "in_progress"}))
    assert [gpu["health"]["state"] for gpu in facts["nvidia_gpus"]] == ["degraded", "degraded"]
    assert "nvidia-fabricmanager" in facts["nvidia_gpus"][0]["health"]["reasons"][0]


def test_a_lost_gpu_is_identified_by_the_kernel_module(host):
    tree = host({"gpus": [{"model": "T4"}, {"model": "T4", "faults": [{"call": "*", "return": 15}]}, {"model": "T4"}]})
    uuid = "GPU-11111111-2222-3333-4444-555555555555"
    tree.file(
        "proc/driver/nvidia/gpus/0000:0f:00.0/information",
        f"Model: \t\t Tesla T4\nIRQ:   \t\t 64\nGPU UUID: \t {uuid}\nDevice Minor: \t 1\n",
    )
    sick = gather(tree, frozenset({"min"}))["nvidia_gpus"][1]
    assert sick["health"]["state"] == "lost"
    assert {key: sick[key] for key in ("index", "minor", "uuid", "name", "pci_bus_id", "pci_device_id")} == {
        "index": 1,
        "minor": 1,
        "uuid": uuid,
        "name": "Tesla T4",
        "pci_bus_id": "0000:0f:00.0",
        "pci_device_id": "0x1eb8",
    }


def test_an_excluded_gpu_is_not_called_hidden(host):
    tree = host({"gpus": [{"model": "T4"}]})
    tree.function("0000:5e:00.0", "0x1eb8", driver="nvidia")
    tree.file("proc/driver/nvidia/gpus/0000:5e:00.0/information", "Model: \t\t Tesla T4\nGPU Excluded:\t Yes\n")
    reason = gather(tree)["nvidia_gpu_state_reason"]
    assert reason == "NVML shows 1 GPU. Option NVreg_ExcludedGpus of kernel module nvidia excludes 0000:5e:00.0."


def test_a_uuid_of_question_marks_is_none(host):
    tree = host({"gpus": [{"model": "T4", "faults": [{"call": "nvmlDeviceGetUUID", "return": 999}]}]})
    tree.file(
        "proc/driver/nvidia/gpus/0000:07:00.0/information",
        "Model: \t\t Tesla T4\nGPU UUID: \t GPU-????????-????-????-????-????????????\nDevice Minor: \t 0\n",
    )
    assert gather(tree)["nvidia_gpus"][0]["uuid"] is None


def test_a_driver_that_is_not_loaded_is_reported(host):
    tree = host({"gpus": [{"model": "T4"}], "driver": {"version": VERSION, "loaded": False}}, bound=None)
    facts = gather(tree)
    assert facts["nvidia_gpu_state"] == "driver_not_loaded"
    assert "modprobe nvidia" in facts["nvidia_gpu_state_reason"]
    assert facts["nvidia_driver"]["version"] is None
    assert facts["nvidia_driver"]["library_version"] == VERSION
    assert facts["nvidia_driver"]["on_disk_version"] == VERSION
    assert facts["nvidia_gpus"] == []
    assert [one["kernel_driver"] for one in facts["nvidia_pci_devices"]] == [None]


def test_nvml_is_not_called_if_it_would_load_the_driver(host):
    """NVML runs nvidia-modprobe if the module is not loaded, but gathering facts must not load a driver."""
    tree = host({"gpus": [{"model": "T4"}]}, bound=None)

    def fail(*arguments):
        raise AssertionError("NVML was called")

    assert gather(tree, query=fail)["nvidia_gpu_state"] == "driver_not_loaded"


def test_a_library_of_another_version_is_reported(host):
    versions = {"version": "570.133.20", "library": VERSION}
    facts = gather(host({"gpus": [{"model": "T4"}], "driver": versions}))
    assert facts["nvidia_gpu_state"] == "version_mismatch"
    assert "570.133.20" in facts["nvidia_gpu_state_reason"]
    assert VERSION in facts["nvidia_gpu_state_reason"]
    assert facts["nvidia_driver"]["version"] == "570.133.20"
    assert facts["nvidia_driver"]["library_version"] == VERSION
    assert facts["nvidia_gpus"] == []


def test_a_host_without_a_driver_is_described(host, tmp_path):
    tree = host({"gpus": [{"model": "T4", "count": 2}]}, bound=None, installed=None)
    facts = gather(tree, driver_root=str(tmp_path / "nothing"))
    assert facts["nvidia_gpu_state"] == "no_driver"
    assert "The PCI bus has 2 GPUs" in facts["nvidia_gpu_state_reason"]
    assert len(facts["nvidia_pci_devices"]) == 2
    assert facts["nvidia_driver"]["version"] is None


def test_a_host_without_hardware_is_described(host, tmp_path):
    facts = gather(host({}, bound=None, installed=None), driver_root=str(tmp_path / "nothing"))
    assert facts["nvidia_gpu_state"] == "no_hardware"
    assert facts["nvidia_gpus"] == facts["nvidia_pci_devices"] == facts["nvidia_nvswitches"] == []


def test_nvml_takes_precedence_over_the_pci_bus(host):
    tree = host({"gpus": [{"model": "T4"}]})
    tree.file("proc/sys/kernel/osrelease", "6.6.87.2-microsoft-standard-WSL2\n")
    for entry in (tree.path / "sys/bus/pci/devices").iterdir():
        entry.rename(tree.path / entry.name)
    facts = gather(tree)
    assert facts["nvidia_gpu_state"] == "ready"
    assert facts["nvidia_driver"]["wsl"] is True
    assert facts["nvidia_pci_devices"] == []
    assert facts["nvidia_gpus"][0]["numa_node"] is None


def test_the_persistence_daemon_is_detected_by_its_process(host):
    tree = host({"gpus": [{"model": "T4"}]})
    assert gather(tree)["nvidia_driver"]["persistence_daemon"] is False
    tree.file("run/nvidia-persistenced/nvidia-persistenced.pid", "4711\n")
    assert gather(tree)["nvidia_driver"]["persistence_daemon"] is False
    tree.file("proc/4711/comm", "nvidia-persiste\n")
    assert gather(tree)["nvidia_driver"]["persistence_daemon"] is True


@pytest.mark.parametrize(
    ("lines", "mode"), [(["580.95.05"], "gsp"), (["N/A"], "none"), (["580.95.05", "N/A"], "mixed"), ([], None)]
)
def test_the_firmware_mode_comes_from_the_kernel_module(host, lines, mode):
    tree = host({"gpus": [{"model": "T4", "count": 2}], "driver": {"version": VERSION, "loaded": False}}, bound=None)
    for bus, line in enumerate(lines):
        tree.file(f"proc/driver/nvidia/gpus/0000:0{bus}:00.0/information", f"Model: T4\nGPU Firmware: \t {line}\n")
    assert gather(tree)["nvidia_driver"]["firmware_mode"] == mode


def test_the_proprietary_module_is_detected(host):
    tree = host({"gpus": [{"model": "T4"}]})
    tree.loaded(VERSION, PROPRIETARY)
    assert gather(tree)["nvidia_driver"]["kernel_module_flavor"] == "proprietary"


def test_a_driver_that_hangs_at_init_takes_only_the_timeout(host):
    tree = host({"gpus": [{"model": "T4"}], "faults": [{"call": "nvmlInitWithFlags", "delay": 60}]})
    start = time.monotonic()
    facts = gather(tree, timeout=0.5)
    assert time.monotonic() - start < 50
    assert facts["nvidia_gpu_state"] == "error"
    assert "did not answer within 0.5 seconds (nvmlInit)" in facts["nvidia_gpu_state_reason"]
    assert facts["nvidia_gpus"] == []
    assert len(facts["nvidia_pci_devices"]) == 1


def test_answers_before_a_timeout_are_kept(host):
    faults = [{"call": "nvmlDeviceGetPowerUsage", "gpu": 1, "delay": 60}]
    tree = host({"gpus": [{"model": "T4", "count": 4}], "faults": faults})
    facts = gather(tree, timeout=3)
    assert facts["nvidia_gpu_state"] == "error"
    assert "nvmlDeviceGetPowerUsage of GPU 1" in facts["nvidia_gpu_state_reason"]
    assert "GPUs 2 to 3 were not read" in facts["nvidia_gpu_state_reason"]
    assert [gpu["health"]["state"] for gpu in facts["nvidia_gpus"]] == ["ok", "lost"]
    assert facts["nvidia_driver"]["version"] == VERSION


def test_the_files_of_a_driver_that_hangs_are_not_read(host):
    tree = host({"gpus": [{"model": "T4"}], "faults": [{"call": "nvmlDeviceGetName", "delay": 60}]})
    information = "proc/driver/nvidia/gpus/0000:07:00.0/information"
    (tree.path / information).parent.mkdir(parents=True)
    os.mkfifo(tree.path / information)  # Opening it blocks forever.
    gpu = gather(tree, timeout=3)["nvidia_gpus"][0]
    assert (gpu["pci_bus_id"], gpu["uuid"], gpu["health"]["state"]) == ("0000:07:00.0", None, "lost")


def test_a_slow_driver_does_not_time_out(host):
    faults = [{"call": "nvmlDeviceGetName", "delay": 0.8}]
    tree = host({"gpus": [{"model": "T4", "count": 4}], "faults": faults})
    facts = gather(tree, frozenset({"min"}), timeout=3)
    assert facts["nvidia_gpu_state"] == "ready"
    assert len(facts["nvidia_gpus"]) == 4


@pytest.fixture
def fake_binding(monkeypatch):
    """Replace pynvml."""

    def put(**functions):
        module = types.ModuleType("pynvml")
        module.__file__ = "/nowhere/pynvml.py"
        names = ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex")
        vars(module).update(dict.fromkeys(names, lambda *arguments: 0), NVMLError=ZeroDivisionError)
        vars(module).update(functions)
        monkeypatch.setitem(sys.modules, "pynvml", module)

    return put


def test_a_crash_of_the_library_is_an_error_state(host, fake_binding):
    tree = host({"gpus": [{"model": "T4"}]})
    fake_binding(nvmlInit=lambda: os.kill(os.getpid(), signal.SIGSEGV))
    facts = gather(tree)
    assert facts["nvidia_gpu_state"] == "error"
    assert "killed by signal 11" in facts["nvidia_gpu_state_reason"]


def test_a_library_that_exits_is_an_error_state(host, fake_binding):
    tree = host({"gpus": [{"model": "T4"}]})
    fake_binding(nvmlInit=lambda: os._exit(0))
    assert "ended without an answer" in gather(tree)["nvidia_gpu_state_reason"]


def test_the_memory_of_the_library_is_limited(host, fake_binding):
    tree = host({"gpus": [{"model": "T4"}]})
    fake_binding(nvmlInit=lambda: bytearray(1 << 40))
    facts = gather(tree)
    assert facts["nvidia_gpu_state"] == "error"
    assert "MemoryError" in facts["nvidia_gpu_state_reason"]


@pytest.mark.parametrize("count", [-1, 0xFFFFFFFF, 5000, "8", None])
def test_an_invalid_count_is_an_error_state(host, fake_binding, count):
    tree = host({"gpus": [{"model": "T4"}]})
    fake_binding(nvmlDeviceGetCount=lambda: count)
    facts = gather(tree)
    assert facts["nvidia_gpu_state"] == "error"
    assert "returned an invalid number of GPUs" in facts["nvidia_gpu_state_reason"]


def children() -> set[int]:
    """Return the child processes of this one."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(pid) for path in lists for pid in path.read_text(encoding="ascii").split()}


def has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def test_no_child_process_remains(host):
    # Other tests may have started the process that runs Ansible.
    before = children()
    tree = host({"gpus": [{"model": "T4"}], "faults": [{"call": "nvmlInitWithFlags", "delay": 60}]})
    gather(tree, timeout=0.2)
    running, deadline = children() - before, time.monotonic() + 50
    while running and time.monotonic() < deadline:
        running = {pid for pid in running if not has_ended(pid)}
        time.sleep(0.02)
    assert running == set()


def test_a_host_with_a_driver_requires_a_binding(host, monkeypatch):
    tree = host({"gpus": [{"model": "T4"}]})
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(BindingMissing):
        gather(tree)


def test_a_host_without_a_driver_requires_no_binding(host, monkeypatch, tmp_path):
    tree = host({"gpus": [{"model": "T4"}]}, bound=None, installed=None)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gather(tree, driver_root=str(tmp_path / "nothing"))["nvidia_gpu_state"] == "no_driver"


@pytest.mark.parametrize("version", BINDINGS)
def test_every_binding_returns_the_same_values_except_for_missing_calls(host, monkeypatch, version):
    description = {"gpus": [{"model": "H100-SXM5-80GB", "count": 2}, {"model": "A100-SXM4-40GB", "mig": ["1g.5gb"]}]}
    tree = host({**description, "driver": {"version": VERSION}})
    newest = leaves(gather(tree))
    monkeypatch.setitem(sys.modules, "pynvml", load(version))
    facts = gather(tree)
    differing = {path for path, value in leaves(facts).items() if newest[path] != value}
    assert set(leaves(facts)) == set(newest)
    assert all(leaves(facts)[path] is None for path in differing)
    missing = {
        "installed": set(),
        "12.550.89": {"temperature.margin_c"},
        "11.525.112": {
            "temperature.margin_c",
            "ecc.sram_threshold_exceeded",
            "utilization.jpeg_percent",
            "utilization.ofa_percent",
            "fabric.bandwidth_degraded",
        },
    }
    assert {path.split(".", 2)[2] for path in differing} == missing[version]


def test_few_subsets_need_few_calls(host):
    host({"gpus": [{"model": "H100-SXM5-80GB", "count": 2}]})
    made = {}
    for subsets in (frozenset({"min"}), gather_subset_option.choose_subsets(gather_subset_option.DEFAULT_SUBSETS)):
        calls: list[str] = []
        with pynvml_calls.Nvml(load(), calls.append) as opened:
            opened.gpu(0, subsets)
        made[len(subsets)] = len(calls)
    assert min(made.values()) < 32
    assert max(made.values()) < 160


def test_the_answer_of_the_child_process_is_complete(host):
    host({"gpus": [{"model": "T4", "count": 2}]})
    answer = timeout_guard.Query(frozenset({"min"}), 5).answer()
    assert answer["binding"] == {"origin": "host", "version": "13.615.71"}
    assert answer["count"] == len(answer["gpus"]) == 2
    assert set(answer) == {"library", "binding", "driver", "count", "gpus"}
