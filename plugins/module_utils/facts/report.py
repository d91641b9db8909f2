# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NVML, PCI and files tell of a host, put together to the facts of `nvidia_gpu_facts`."""

from __future__ import annotations

import os
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import state as facts_state
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver as host_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.values import (
    DRIVER_NOT_LOADED,
    LIBRARY_NOT_FOUND,
    NvmlFailure,
)

_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_UUID = re.compile(r"^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def facts(
    answer: dict, functions: list[dict], versions: dict, *, root: str, subsets, timeout: float, wsl: bool
) -> dict:
    """Make the facts of what nvml_guard, pci and driver_versions tell."""
    host = {"wsl": wsl, "secure_boot": _secure_boot(root), "timeout": timeout}
    if answer.get("library"):
        suffix = host_driver.version_suffix(answer["library"])
        versions = {**versions, "library": suffix or versions["library"]}
    gpus = _gpus(answer, functions, root, subsets, timeout)
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
    """Give the answer that NVML would give without a kernel module, had it been asked."""
    failure = NvmlFailure.of(DRIVER_NOT_LOADED if library else LIBRARY_NOT_FOUND)
    return {"gpus": [], "failure": {"code": failure.code, "name": failure.name, "text": failure.text}}


def persistence_daemon_runs(root: str = "/") -> bool:
    """Tell whether nvidia-persistenced runs: its pid file names a live process of that name."""
    for directory in ("run", "var/run"):
        pid = (read_text(root, f"{directory}/nvidia-persistenced/nvidia-persistenced.pid") or "").strip()
        if pid.isdigit() and (read_text(root, f"proc/{pid}/comm") or "").startswith("nvidia-persiste"):
            return True
    return False


def _driver(answer: dict, versions: dict, gpus: list[dict], root: str, host: dict) -> dict:
    told = answer.get("driver") or {}
    return {
        "version": told.get("version") or versions["loaded"],
        "library_version": versions["library"],
        "library_path": answer.get("library") or versions["library_path"],
        "cuda_version": told.get("cuda_version"),
        "nvml_version": told.get("nvml_version"),
        "kernel_module_flavor": versions["kernel_module_flavor"],
        "running_kernel": versions["running_kernel"],
        "next_kernel": versions["next_kernel"],
        "on_disk_version": versions["on_disk"],
        "on_disk_next_version": versions["on_disk_next"],
        "firmware_mode": None if "silent_in" in answer else _firmware_mode(root, gpus),
        "persistence_daemon": persistence_daemon_runs(root),
        "wsl": host["wsl"],
    }


def _gpus(answer: dict, functions: list[dict], root: str, subsets, timeout: float) -> list[dict]:
    gpus = [dict(gpu) for gpu in answer["gpus"]]
    if "silent_in" in answer and len(gpus) < answer.get("count", 0):
        from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import fields, health  # noqa: PLC0415

        silent = health.lost(f"the driver did not answer within {timeout:g} seconds ({answer['silent_in']})")
        gpus.append({**fields.blank(subsets), "index": len(gpus), "health": silent})
    _locate(gpus, functions)
    if "silent_in" not in answer:  # A driver that hangs may hang whoever reads its files, too.
        _identify(gpus, root)
    nodes = {function["address"]: function["numa_node"] for function in functions}
    for gpu in gpus:
        gpu["numa_node"] = nodes.get(gpu["pci_bus_id"])
    return gpus


def _locate(gpus: list[dict], functions: list[dict]) -> None:
    """Find the addresses of GPUs that can not say them.

    NVML counts in bus order. So where as many functions are left over as GPUs without an address, they are these.
    """
    nameless = [gpu for gpu in gpus if gpu["pci_bus_id"] is None]
    known = {gpu["pci_bus_id"] for gpu in gpus}
    left = [one for one in functions if one["kind"] == "gpu" and one["address"] not in known]
    held = [one for one in left if one["kernel_driver"] == "nvidia"]
    for candidates in (held, left):
        if len(nameless) == len(candidates):
            for gpu, function in zip(nameless, candidates):
                gpu["pci_bus_id"] = function["address"]
                gpu["pci_device_id"] = function["device_id"]
            break


def _identify(gpus: list[dict], root: str) -> None:
    """Complete GPUs that can not say who they are by what the kernel module knows of them."""
    for gpu in gpus:
        if gpu["pci_bus_id"] and None in (gpu["uuid"], gpu["minor"], gpu["name"]):
            for key, value in _kernel_information(root, gpu["pci_bus_id"]).items():
                gpu[key] = value if gpu[key] is None else gpu[key]


def _kernel_information(root: str, address: str) -> dict:
    """Read what the kernel module says of one GPU, in the keys of a GPU's facts."""
    lines = (read_text(root, f"proc/driver/nvidia/gpus/{address}/information") or "").splitlines()
    told = {key.strip(): value.strip() for key, _colon, value in (line.partition(":") for line in lines)}
    uuid, minor = told.get("GPU UUID", ""), told.get("Device Minor", "")
    return {
        "uuid": uuid if _UUID.match(uuid) else None,  # Question marks until the GPU was used once.
        "minor": int(minor) if minor.isdigit() else None,
        "name": told.get("Model") or None,
    }


def _firmware_mode(root: str, gpus: list[dict]) -> str | None:
    """Tell whether the GPUs run the driver's firmware (gsp): asked of NVML, else as the kernel module says."""
    enabled = [gpu["gsp_firmware_enabled"] for gpu in gpus if gpu.get("gsp_firmware_enabled") is not None]
    if not enabled:
        directory = os.path.join(root, "proc/driver/nvidia/gpus")
        try:
            addresses = sorted(os.listdir(directory))
        except OSError:
            return None
        for address in addresses:
            match = re.search(
                r"^GPU Firmware:\s*(\S+)", read_text(directory, f"{address}/information") or "", re.MULTILINE
            )
            if match:
                enabled.append(match.group(1) != "N/A")
    if not enabled:
        return None
    return "mixed" if len(set(enabled)) == 2 else "gsp" if enabled[0] else "none"


def _secure_boot(root: str) -> bool | None:
    try:
        with open(os.path.join(root, _SECURE_BOOT), "rb") as file:
            value = file.read(5)
    except OSError:
        return None
    return value[4:5] == b"\1" if len(value) == 5 else None
