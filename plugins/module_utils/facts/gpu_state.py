# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide the state of a host's GPUs and its reason from PCI functions, driver files and NVML. Pure functions."""

from __future__ import annotations

READY = "ready"
NO_HARDWARE = "no_hardware"
NO_DRIVER = "no_driver"
DRIVER_NOT_LOADED = "driver_not_loaded"
VERSION_MISMATCH = "version_mismatch"
ERROR = "error"

_NO_PERMISSION, _DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, _MISMATCH = 4, 9, 12, 18

_OTHER_DRIVERS = {
    "nouveau": "Blacklist nouveau and reboot the host.",
    "nova_core": "Blacklist nova_core and reboot the host.",
    "vfio-pci": "To use a GPU on this host instead of in a virtual machine, bind the GPU to the nvidia driver.",
}


def decide(functions: list[dict], versions: dict, answer: dict, host: dict) -> tuple[str, str]:
    """Return the state and its reason, which says what to do.

    `functions`: from pci.scan(). `versions`: from host/driver_versions.py. `answer`: from guard.Query.answer().
    `host`: {"wsl": bool, "secure_boot": bool | None, "timeout": seconds, "excluded": addresses of the GPUs that the
    loaded module does not use}.
    """
    excluded = host.get("excluded", [])
    gpus = [function for function in functions if function["kind"] == "gpu" and function["address"] not in excluded]
    if "timed_out_in" in answer:
        return ERROR, _reason_timeout(answer, host)
    if "crash" in answer:
        return ERROR, (
            f"NVML crashed: {answer['crash']}. Check the kernel log for NVRM and Xid messages. Without such "
            "messages, reinstall the driver's user-space libraries."
        )
    failure = answer.get("failure")
    if failure is None:
        return _state_with_nvml(gpus, answer, excluded)
    code = failure["code"]
    if code == _MISMATCH:
        return VERSION_MISMATCH, _reason_mismatch(versions)
    if code in (_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND):
        return _state_without_driver(gpus, versions, failure, host)
    if code == _NO_PERMISSION:
        return ERROR, (
            "NVML has no permission to access the driver. Set become: true, or grant this user and its device cgroup "
            "access to /dev/nvidiactl and /dev/nvidia*."
        )
    return ERROR, (
        f"NVML failed: {failure['text']} (NVML_ERROR_{failure['name']}). "
        "Check the kernel log for NVRM and Xid messages, and check that /dev/nvidiactl and /dev/nvidia* exist."
    )


def _state_with_nvml(gpus: list[dict], answer: dict, excluded: list[str]) -> tuple[str, str]:
    found = answer["gpus"]
    option = f"Option NVreg_ExcludedGpus of kernel module nvidia excludes {', '.join(excluded)}."
    if not found:
        if excluded and not gpus:
            return ERROR, f"{option} To use a GPU, remove it from the option and reboot the host."
        if not gpus:
            return NO_HARDWARE, "The PCI bus has no NVIDIA GPU. The NVIDIA driver is loaded, but finds no GPU either."
        other = _other_driver(gpus)
        if other:
            return DRIVER_NOT_LOADED, other
        return ERROR, (
            f"The NVIDIA driver is loaded, but NVML shows none of the {_count(gpus)} on the PCI bus: "
            f"{_addresses(gpus)}. In a container, add the device nodes. On a host, check the kernel log for NVRM and "
            "Xid messages."
        )
    lost = [gpu for gpu in found if gpu["health"]["state"] == "lost"]
    if len(lost) == len(found):
        cause = lost[0]["health"]["reasons"][0]
        return ERROR, f"{_count(found)} found, but none is usable. GPU {lost[0]['index']}: {cause}."
    unhealthy = [gpu for gpu in found if gpu["health"]["state"] != "ok"]
    reason = f"NVML shows {_count(found)}."
    if unhealthy:
        indexes = ", ".join(str(gpu["index"]) for gpu in unhealthy)
        reason += f" Check the health of GPU {indexes}."
    reason += f" {option}" if excluded else ""
    known = {gpu["pci_bus_id"] for gpu in found}
    hidden = [gpu for gpu in gpus if gpu["address"] not in known and gpu["kernel_driver"] == "nvidia"]
    if hidden and None not in known:
        reason += (
            f" NVML does not show {_addresses(hidden)}, which the driver is bound to. In a container, add the device "
            "nodes. On a host, check the kernel log for NVRM and Xid messages."
        )
    return READY, reason


def _state_without_driver(gpus: list[dict], versions: dict, failure: dict, host: dict) -> tuple[str, str]:
    if not gpus and not host["wsl"]:
        version = versions["loaded"] or versions["library"] or versions["on_disk"]
        installed = f" NVIDIA driver {version} is installed." if version else ""
        return NO_HARDWARE, f"The PCI bus has no NVIDIA GPU.{installed}"
    if host["wsl"]:
        return NO_DRIVER, "WSL2 has no working NVIDIA driver. Install or update the driver in Windows."
    if failure["code"] == _LIBRARY_NOT_FOUND:
        if versions["loaded"]:
            return ERROR, (
                f"Kernel module {versions['loaded']} is loaded, but libnvidia-ml.so.1 could not be loaded: "
                f"{failure['text']}. Install the driver's user-space libraries of version {versions['loaded']}, or set "
                "driver_root to their directory."
            )
        if not versions["on_disk"] and not versions["on_disk_next"]:
            other = _other_driver(gpus)
            return NO_DRIVER, (
                f"The PCI bus has {_count(gpus)}, but no NVIDIA driver is installed. Install the driver with "
                "role nvidia_driver." + (f" {other}" if other else "")
            )
    return DRIVER_NOT_LOADED, _reason_not_loaded(gpus, versions, host)


def _reason_not_loaded(gpus: list[dict], versions: dict, host: dict) -> str:
    if versions["loaded"]:
        return (
            f"Kernel module {versions['loaded']} is loaded, but drives no GPU. "
            f"{_other_driver(gpus) or 'Check the kernel log for NVRM messages.'}"
        )
    other = _other_driver(gpus)
    if other:
        return other
    library = f" {versions['library']}" if versions["library"] else ""
    running, upcoming = versions["running_kernel"], versions["next_kernel"]
    if versions["on_disk"]:
        signing = (
            " Secure Boot is on. If modprobe fails with 'Key was rejected by service', enroll the key that signs the "
            "module."
            if host["secure_boot"]
            else ""
        )
        return (
            f"NVIDIA driver {versions['on_disk']} is installed for the running kernel {running}, but is not loaded. "
            f"Run modprobe nvidia, or reboot.{signing}"
        )
    if versions["on_disk_next"]:
        return (
            f"NVIDIA driver {versions['on_disk_next']} is installed for kernel {upcoming}, "
            f"but kernel {running} is running. Reboot the host."
        )
    return (
        f"The NVIDIA driver's user-space library{library} is installed, but the running kernel {running} has no "
        f"NVIDIA module. Install the kernel headers, build the module with 'dkms install NAME/VERSION -k {running}' "
        "('dkms status' lists the names and versions), and run modprobe nvidia."
    )


def _reason_mismatch(versions: dict) -> str:
    loaded, library = versions["loaded"] or "unknown", versions["library"] or "unknown"
    if versions["on_disk"] and versions["on_disk"] == versions["library"]:
        remedy = "Stop all GPU processes and reload the module with modprobe, or reboot the host"
    else:
        remedy = "Install both with the same version, then reload the module or reboot the host"
    return f"The loaded kernel module has version {loaded}, but the user-space library has version {library}. {remedy}."


def _reason_timeout(answer: dict, host: dict) -> str:
    answered = answer.get("answered", len(answer["gpus"]))
    count = answer.get("count")
    call = answer["timed_out_in"] or "start"
    which = f" of GPU {answered}" if count is not None and answered < count else ""
    rest = f" GPUs {answered + 1} to {count - 1} were not read." if count is not None and answered + 1 < count else ""
    return (
        f"The NVIDIA driver did not answer within {host['timeout']:g} seconds ({call}{which}).{rest} "
        "Check the kernel log for NVRM and Xid messages. Usually, only a reboot helps."
    )


def _other_driver(gpus: list[dict]) -> str | None:
    """Return a sentence about another kernel driver that all unavailable GPUs are bound to."""
    for name, remedy in _OTHER_DRIVERS.items():
        bound = [gpu for gpu in gpus if gpu["kernel_driver"] == name]
        if bound and len(bound) == len([gpu for gpu in gpus if gpu["kernel_driver"] != "nvidia"]):
            return f"Kernel driver {name} is bound to {_addresses(bound)}. {remedy}"
    return None


def _addresses(functions: list[dict]) -> str:
    return ", ".join(function["address"] for function in functions)


def _count(gpus: list) -> str:
    return "1 GPU" if len(gpus) == 1 else f"{len(gpus)} GPUs"
