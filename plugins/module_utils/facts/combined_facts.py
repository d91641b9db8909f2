# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Combine the answers of NVML, the PCI functions and the driver files into the facts of `nvidia_gpu_facts`."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gpu_state as facts_state
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import values_missing_in_nvml
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import excluded_gpus
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver_versions as host_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import secure_boot
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import (
    DRIVER_NOT_LOADED,
    LIBRARY_NOT_FOUND,
    NvmlFailure,
)


def facts(
    answer: dict, functions: list[dict], versions: dict, *, root: str, subsets, timeout: float, wsl: bool
) -> dict:
    """Return the facts from the answers of NVML, the PCI functions and the versions of the driver."""
    host = {"wsl": wsl, "secure_boot": secure_boot.is_enabled(root), "timeout": timeout}
    if answer.get("library"):
        suffix = host_driver.version_suffix(answer["library"])
        versions = {**versions, "library": suffix or versions["library"]}
    known = {gpu["pci_bus_id"] for gpu in answer["gpus"]}
    # The driver does not show GPUs that its option excludes. Reading the files of a driver that hangs can block.
    unseen = [one["address"] for one in functions if one["kind"] == "gpu" and one["address"] not in known]
    excluded = excluded_gpus.of_loaded_module(root, [] if "timed_out_in" in answer else unseen)
    host["excluded"] = excluded
    gpus = _gpus(answer, [one for one in functions if one["address"] not in excluded], root, subsets, timeout)
    state, reason = facts_state.decide(
        functions, versions, {**answer, "gpus": gpus, "answered": len(answer["gpus"])}, host
    )
    topology = {"nvidia_topology": answer.get("topology")} if "topology" in subsets else {}
    return {
        "nvidia_gpu_state": state,
        "nvidia_gpu_state_reason": reason,
        "nvidia_driver": _driver(answer, versions, gpus, root, host),
        "nvidia_gpus": gpus,
        "nvidia_pci_devices": [function for function in functions if function["kind"] != "nvswitch"],
        "nvidia_nvswitches": [function for function in functions if function["kind"] == "nvswitch"],
        **topology,
    }


def answer_without_module(library: str | None) -> dict:
    """Return the answer that NVML gives if the kernel module is not loaded."""
    failure = NvmlFailure.of(DRIVER_NOT_LOADED if library else LIBRARY_NOT_FOUND)
    return {"gpus": [], "failure": {"code": failure.code, "name": failure.name, "text": failure.text}}


def persistence_daemon_runs(root: str = "/") -> bool:
    """Return whether nvidia-persistenced runs: its PID file names a running process of that name."""
    for directory in ("run", "var/run"):
        pid = (read_text(root, f"{directory}/nvidia-persistenced/nvidia-persistenced.pid") or "").strip()
        if pid.isdigit() and (read_text(root, f"proc/{pid}/comm") or "").startswith("nvidia-persiste"):
            return True
    return False


def _driver(answer: dict, versions: dict, gpus: list[dict], root: str, host: dict) -> dict:
    driver = answer.get("driver") or {}
    return {
        "version": driver.get("version") or versions["loaded"],
        "library_version": versions["library"],
        "library_path": answer.get("library") or versions["library_path"],
        "cuda_version": driver.get("cuda_version"),
        "nvml_version": driver.get("nvml_version"),
        "kernel_module_flavor": versions["kernel_module_flavor"],
        "running_kernel": versions["running_kernel"],
        "next_kernel": versions["next_kernel"],
        "on_disk_version": versions["on_disk"],
        "on_disk_next_version": versions["on_disk_next"],
        "firmware_mode": None if "timed_out_in" in answer else values_missing_in_nvml.firmware_mode(root, gpus),
        "persistence_daemon": persistence_daemon_runs(root),
        "wsl": host["wsl"],
    }


def _gpus(answer: dict, functions: list[dict], root: str, subsets, timeout: float) -> list[dict]:
    gpus = [dict(gpu) for gpu in answer["gpus"]]
    if "timed_out_in" in answer and len(gpus) < answer.get("count", 0):
        from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import gpu_fields, gpu_health  # noqa: PLC0415

        timed_out = gpu_health.lost(f"the driver did not answer within {timeout:g} seconds ({answer['timed_out_in']})")
        gpus.append({**gpu_fields.blank(subsets), "index": len(gpus), "health": timed_out})
    values_missing_in_nvml.add_missing_addresses(gpus, functions)
    if "timed_out_in" not in answer:  # Reading the files of a driver that hangs can block, too.
        values_missing_in_nvml.add_missing_identity(gpus, root)
    nodes = {function["address"]: function["numa_node"] for function in functions}
    for gpu in gpus:
        gpu["numa_node"] = nodes.get(gpu["pci_bus_id"])
    return gpus
