# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gpu_state as facts_state
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import CODES

NOTHING_INSTALLED = {
    "loaded": None,
    "kernel_module_flavor": None,
    "library": None,
    "library_path": None,
    "running_kernel": "6.1.0-40-amd64",
    "next_kernel": "6.1.0-40-amd64",
    "on_disk": None,
    "on_disk_next": None,
}
INSTALLED = {**NOTHING_INSTALLED, "library": "580.95.05", "on_disk": "580.95.05", "on_disk_next": "580.95.05"}
LOADED = {**INSTALLED, "loaded": "580.95.05", "kernel_module_flavor": "open"}
HOST = {"wsl": False, "secure_boot": False, "timeout": 10}


def function(address="0000:3b:00.0", driver=None, kind="gpu"):
    return {"address": address, "kernel_driver": driver, "kind": kind}


def gpu(index=0, state="ok", address="0000:3b:00.0", reasons=("for a reason",)):
    return {"index": index, "pci_bus_id": address, "health": {"state": state, "reasons": list(reasons)}}


def failed(code):
    return {"gpus": [], "failure": {"code": code, "name": CODES[code], "text": CODES[code].replace("_", " ").lower()}}


GPU = [function()]
BOUND = [function(driver="nvidia")]
SWITCH = function("0000:01:00.0", driver="nvidia", kind="nvswitch")
CASES = [
    # name, PCI functions, versions, NVML's answer, host, state, parts of the reason
    ("one answers", BOUND, LOADED, {"gpus": [gpu()]}, {}, "ready", ["NVML shows 1 GPU."]),
    ("WSL2 has no PCI", [], NOTHING_INSTALLED, {"gpus": [gpu()]}, {"wsl": True}, "ready", ["1 GPU"]),
    (
        "some are unhealthy",
        BOUND,
        LOADED,
        {"gpus": [gpu(0), gpu(1, "lost", "0000:5e:00.0"), gpu(2, "degraded", "0000:86:00.0")]},
        {},
        "ready",
        ["3 GPUs", "Check the health of GPU 1, 2."],
    ),
    (
        "one is hidden",
        [*BOUND, function("0000:5e:00.0", "nvidia")],
        LOADED,
        {"gpus": [gpu()]},
        {},
        "ready",
        ["does not show 0000:5e:00.0", "In a container, add the device nodes"],
    ),
    (
        "one is excluded",
        [*BOUND, function("0000:5e:00.0", "nvidia")],
        LOADED,
        {"gpus": [gpu()]},
        {"excluded": ["0000:5e:00.0"]},
        "ready",
        ["NVML shows 1 GPU. Option NVreg_ExcludedGpus of kernel module nvidia excludes 0000:5e:00.0."],
    ),
    (
        "all are excluded",
        BOUND,
        LOADED,
        {"gpus": []},
        {"excluded": ["0000:3b:00.0"]},
        "error",
        ["NVreg_ExcludedGpus", "excludes 0000:3b:00.0", "remove it from the option and reboot"],
    ),
    (
        "all are lost",
        BOUND,
        LOADED,
        {"gpus": [gpu(state="lost")]},
        {},
        "error",
        ["1 GPU found, but none is usable. GPU 0: for a"],
    ),
    ("a driver without GPUs", [], LOADED, {"gpus": []}, {}, "no_hardware", ["finds no GPU", "PCI bus"]),
    ("only switches", [SWITCH], LOADED, {"gpus": []}, {}, "no_hardware", ["finds no GPU"]),
    (
        "no device nodes",
        BOUND,
        LOADED,
        {"gpus": []},
        {},
        "error",
        ["NVML shows none of the 1 GPU on the PCI bus: 0000:3b:00.0", "device nodes"],
    ),
    (
        "assigned to virtual machines",
        [function(driver="vfio-pci")],
        LOADED,
        {"gpus": []},
        {},
        "driver_not_loaded",
        ["vfio-pci is bound to 0000:3b:00.0", "in a virtual machine"],
    ),
    ("neither GPU nor driver", [], NOTHING_INSTALLED, failed(12), {}, "no_hardware", ["bus has no NVIDIA GPU."]),
    ("an image with a driver", [], INSTALLED, failed(9), {}, "no_hardware", ["NVIDIA driver 580.95.05 is installed."]),
    (
        "a bare host",
        GPU,
        NOTHING_INSTALLED,
        failed(12),
        {},
        "no_driver",
        ["The PCI bus has 1 GPU", "role nvidia_driver"],
    ),
    (
        "a bare host with nouveau",
        [function(driver="nouveau")],
        NOTHING_INSTALLED,
        failed(12),
        {},
        "no_driver",
        ["Install the driver with role nvidia_driver", "nouveau is bound to 0000:3b:00.0", "reboot"],
    ),
    (
        "not loaded",
        GPU,
        INSTALLED,
        failed(9),
        {},
        "driver_not_loaded",
        ["580.95.05 is installed for the running kernel 6.1.0-40-amd64, but is not loaded", "modprobe nvidia"],
    ),
    (
        "not loaded under Secure Boot",
        GPU,
        INSTALLED,
        failed(9),
        {"secure_boot": True},
        "driver_not_loaded",
        ["modprobe nvidia", "Secure Boot is on", "enroll the key"],
    ),
    (
        "bound to nouveau",
        [function(driver="nouveau")],
        INSTALLED,
        failed(9),
        {},
        "driver_not_loaded",
        ["nouveau is bound to 0000:3b:00.0. Blacklist nouveau and reboot the host."],
    ),
    (
        "bound to nova_core",
        [function(driver="nova_core")],
        INSTALLED,
        failed(9),
        {},
        "driver_not_loaded",
        ["nova_core is bound to"],
    ),
    (
        "built for the next kernel",
        GPU,
        {**INSTALLED, "on_disk": None, "next_kernel": "6.1.0-41-amd64"},
        failed(9),
        {},
        "driver_not_loaded",
        ["installed for kernel 6.1.0-41-amd64, but kernel 6.1.0-40-amd64 is running. Reboot the host."],
    ),
    (
        "a module without a library",
        GPU,
        {**INSTALLED, "library": None},
        failed(12),
        {},
        "driver_not_loaded",
        ["modprobe nvidia"],
    ),
    (
        "built for no kernel",
        GPU,
        {**INSTALLED, "on_disk": None, "on_disk_next": None},
        failed(9),
        {},
        "driver_not_loaded",
        ["the running kernel 6.1.0-40-amd64 has no NVIDIA module", "dkms install NAME/VERSION -k 6.1.0-40-amd64"],
    ),
    (
        "loaded, but not bound",
        GPU,
        LOADED,
        failed(9),
        {},
        "driver_not_loaded",
        ["580.95.05 is loaded, but drives no GPU", "kernel log"],
    ),
    (
        "loaded without a library",
        BOUND,
        {**LOADED, "library": None},
        failed(12),
        {},
        "error",
        ["580.95.05 is loaded, but libnvidia-ml.so.1 could not be loaded", "driver_root"],
    ),
    (
        "upgraded while the module was loaded",
        BOUND,
        {**LOADED, "loaded": "570.133.20"},
        failed(18),
        {},
        "version_mismatch",
        ["module has version 570.133.20", "library has version 580.95.05", "modprobe", "reboot"],
    ),
    (
        "only the library was upgraded",
        BOUND,
        {**LOADED, "loaded": "570.133.20", "on_disk": "570.133.20"},
        failed(18),
        {},
        "version_mismatch",
        ["570.133.20", "580.95.05", "Install both with the same version"],
    ),
    ("no permission", BOUND, LOADED, failed(4), {}, "error", ["permission", "become: true", "/dev/nvidiactl"]),
    ("operating system", BOUND, LOADED, failed(17), {}, "error", ["NVML_ERROR_OPERATING_SYSTEM", "/dev/nvidiactl"]),
    ("WSL2 without a driver", [], NOTHING_INSTALLED, failed(12), {"wsl": True}, "no_driver", ["WSL2", "in Windows"]),
    (
        "timeout at the start",
        BOUND,
        LOADED,
        {"gpus": [], "timed_out_in": "nvmlInit"},
        {},
        "error",
        ["did not answer within 10 seconds (nvmlInit)", "reboot"],
    ),
    (
        "timeout at the third GPU",
        BOUND,
        LOADED,
        {"gpus": [gpu(0), gpu(1), gpu(2, "lost")], "timed_out_in": "nvmlDeviceGetName", "count": 8, "answered": 2},
        {},
        "error",
        ["nvmlDeviceGetName of GPU 2", "GPUs 3 to 7 were not read"],
    ),
    (
        "crashed",
        BOUND,
        LOADED,
        {"gpus": [], "crash": "the process was killed by signal 11 (Segmentation fault)"},
        {},
        "error",
        ["NVML crashed: the process was killed by signal 11", "kernel log"],
    ),
]


@pytest.mark.parametrize("case", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_case_has_a_state_and_a_reason_with_a_remedy(case):
    functions, versions, answer, host, state, words = case
    decided, reason = facts_state.decide(functions, versions, answer, {**HOST, **host})
    assert decided == state
    for word in words:
        assert word in reason
    assert reason.endswith(".")


@pytest.mark.parametrize("code", sorted(CODES))
@pytest.mark.parametrize("functions", [[], GPU, BOUND], ids=["no GPU", "unbound", "bound"])
@pytest.mark.parametrize("versions", [NOTHING_INSTALLED, INSTALLED, LOADED], ids=["none", "installed", "loaded"])
def test_every_code_on_every_host_gives_a_state_and_a_reason(code, functions, versions):
    state, reason = facts_state.decide(functions, versions, failed(code), HOST)
    assert state in ("no_hardware", "no_driver", "driver_not_loaded", "version_mismatch", "error")
    assert reason
    assert "None" not in reason
