# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How busy a GPU is, and the processes that use it, through NVML."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import member, number, text
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.handle import Handle
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.memory import mebibytes

# The newest call first.
_PROCESSES = {
    "compute": (
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetComputeRunningProcesses_v2",
        "nvmlDeviceGetComputeRunningProcesses",
    ),
    "graphics": (
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v2",
        "nvmlDeviceGetGraphicsRunningProcesses",
    ),
    "mps": (
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v2",
        "nvmlDeviceGetMPSComputeRunningProcesses",
    ),
}


def read_utilization(gpu: Handle) -> dict:
    rates = gpu.call("nvmlDeviceGetUtilizationRates")

    def engine(name: str) -> int | None:
        answer = gpu.pair(name)
        return number(answer[0], most=100)

    return {
        "utilization": {
            "gpu_percent": number(member(rates, "gpu"), most=100),
            "memory_percent": number(member(rates, "memory"), most=100),
            "encoder_percent": engine("nvmlDeviceGetEncoderUtilization"),
            "decoder_percent": engine("nvmlDeviceGetDecoderUtilization"),
            "jpeg_percent": engine("nvmlDeviceGetJpgUtilization"),
            "ofa_percent": engine("nvmlDeviceGetOfaUtilization"),
        }
    }


def read_processes(gpu: Handle) -> dict:
    found = []
    answered = False
    for kind, calls in _PROCESSES.items():
        processes = gpu.first_answer(*calls)
        if isinstance(processes, (list, tuple)):
            answered = True
            found += [_process(gpu, kind, process) for process in processes]
    return {"processes": sorted(found, key=lambda one: (one["pid"] or 0, one["type"])) if answered else None}


def _process(gpu: Handle, kind: str, process) -> dict:
    pid = number(member(process, "pid"))
    return {
        "pid": pid,
        "type": kind,
        "name": text(gpu.call_or_none("nvmlSystemGetProcessName", pid)) if pid is not None else None,
        "memory_used_mib": mebibytes(member(process, "usedGpuMemory")),
        "gi": number(member(process, "gpuInstanceId")),
        "ci": number(member(process, "computeInstanceId")),
    }
