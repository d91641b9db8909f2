# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which state the GPUs of a host are, and why: a pure function of what PCI, the files and NVML say."""

from __future__ import annotations

READY = "ready"
NO_HARDWARE = "no_hardware"
NO_DRIVER = "no_driver"
DRIVER_NOT_LOADED = "driver_not_loaded"
VERSION_MISMATCH = "version_mismatch"
ERROR = "error"

_NO_PERMISSION, _DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, _MISMATCH = 4, 9, 12, 18

_HOLDERS = {
    "nouveau": "keep nouveau from loading and reboot",
    "nova_core": "keep nova_core from loading and reboot",
    "vfio-pci": "it is handed over to virtual machines; give it back to the nvidia driver to use it here",
}


def decide(functions: list[dict], versions: dict, answer: dict, host: dict) -> tuple[str, str]:
    """Tell the state and the reason, in words that say what to do.

    `functions`: pci.scan(); `versions`: driver_versions.read(); `answer`: nvml_guard.ask();
    `host`: {"wsl": bool, "secure_boot": bool | None, "timeout": seconds}.
    """
    gpus = [function for function in functions if function["kind"] == "gpu"]
    if "silent_in" in answer:
        return ERROR, _silence(answer, host)
    if "crash" in answer:
        return ERROR, (
            f"A process that asked NVML crashed: {answer['crash']}. Look into the kernel log for NVRM and Xid lines; "
            f"reinstall the driver's user-space libraries if they are damaged."
        )
    failure = answer.get("failure")
    if failure is None:
        return _answered(gpus, answer)
    code = failure["code"]
    if code == _MISMATCH:
        return VERSION_MISMATCH, _mismatch(versions)
    if code in (_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND):
        return _without_driver(gpus, versions, failure, host)
    if code == _NO_PERMISSION:
        return ERROR, (
            "NVML has no permission to talk to the driver: become root, or see that /dev/nvidiactl and /dev/nvidia* "
            "are there and open to this user and its device cgroup."
        )
    return ERROR, (
        f"NVML failed: {failure['text']} (NVML_ERROR_{failure['name']}). "
        f"Look into the kernel log for NVRM and Xid lines; see that /dev/nvidiactl and /dev/nvidia* are there."
    )


def _answered(gpus: list[dict], answer: dict) -> tuple[str, str]:
    found = answer["gpus"]
    if not found:
        if not gpus:
            return NO_HARDWARE, "The NVIDIA driver is loaded and finds no GPU, and there is none on the PCI bus."
        holder = _holder(gpus)
        if holder:
            return DRIVER_NOT_LOADED, holder
        return ERROR, (
            f"The NVIDIA driver is loaded, but offers none of the {_count(gpus)} on the PCI bus: {_addresses(gpus)}. "
            f"In a container, pass the device nodes in; on a host, look into the kernel log for NVRM and Xid lines."
        )
    lost = [gpu for gpu in found if gpu["health"]["state"] == "lost"]
    if len(lost) == len(found):
        return ERROR, f"No GPU of {len(found)} can be used. The first one: {lost[0]['health']['reasons'][0]}."
    sick = [gpu for gpu in found if gpu["health"]["state"] != "ok"]
    reason = f"NVML answers for {_count(found)}"
    if sick:
        whose = ", ".join(str(gpu["index"]) for gpu in sick)
        reason += f"; see the health of GPU {whose}"
    known = {gpu["pci_bus_id"] for gpu in found}
    hidden = [gpu for gpu in gpus if gpu["address"] not in known and gpu["kernel_driver"] == "nvidia"]
    if hidden and None not in known:
        reason += (
            f"; it does not show {_addresses(hidden)}, which the driver holds: not passed into this container, "
            f"or failed to start (see the kernel log)"
        )
    return READY, reason + "."


def _without_driver(gpus: list[dict], versions: dict, failure: dict, host: dict) -> tuple[str, str]:
    if not gpus and not host["wsl"]:
        there = versions["loaded"] or versions["library"] or versions["on_disk"]
        installed = f" The driver's files are installed ({there})." if there else ""
        return NO_HARDWARE, f"There is no NVIDIA GPU on the PCI bus.{installed}"
    if host["wsl"]:
        return NO_DRIVER, "This is WSL2 without a working NVIDIA driver: install or update the driver in Windows."
    if failure["code"] == _LIBRARY_NOT_FOUND:
        if versions["loaded"]:
            return ERROR, (
                f"The kernel module {versions['loaded']} is loaded, but libnvidia-ml.so.1 can not be loaded "
                f"({failure['text']}): install the driver's user-space libraries of version {versions['loaded']}, "
                f"or name their place with the option driver_root."
            )
        if not versions["on_disk"] and not versions["on_disk_next"]:
            holder = _holder(gpus)
            return NO_DRIVER, (
                f"The PCI bus has {_count(gpus)}, and there is no NVIDIA driver: install one (role nvidia_driver)."
                + (f" {holder}" if holder else "")
            )
    return DRIVER_NOT_LOADED, _not_loaded(gpus, versions, host)


def _not_loaded(gpus: list[dict], versions: dict, host: dict) -> str:
    if versions["loaded"]:
        return (
            f"The kernel module {versions['loaded']} is loaded, but drives no GPU: "
            f"{_holder(gpus) or 'look into the kernel log for NVRM lines.'}"
        )
    holder = _holder(gpus)
    if holder:
        return holder
    running, upcoming = versions["running_kernel"], versions["next_kernel"]
    if versions["on_disk"]:
        signing = (
            " Secure Boot is on: if that is refused (Key was rejected by service), enrol the key that signs the module."
            if host["secure_boot"]
            else ""
        )
        return (
            f"The NVIDIA driver {versions['on_disk']} is installed for the running kernel {running} but not loaded: "
            f"modprobe nvidia, or reboot.{signing}"
        )
    if versions["on_disk_next"]:
        return (
            f"The NVIDIA driver {versions['on_disk_next']} is installed for kernel {upcoming}, "
            f"but {running} is running: reboot."
        )
    return (
        f"The NVIDIA driver's user-space library {versions['library'] or ''} is installed, but no kernel module for "
        f"the running kernel {running}: install its headers and have DKMS build it (dkms status), then modprobe nvidia."
    ).replace("  ", " ")


def _mismatch(versions: dict) -> str:
    loaded, library = versions["loaded"] or "unknown", versions["library"] or "unknown"
    if versions["on_disk"] and versions["on_disk"] == versions["library"]:
        way_out = "Load the new module (stop what uses the GPUs, modprobe -r, modprobe nvidia), or reboot"
    else:
        way_out = "Install both in one version, then reload the module or reboot"
    return (
        f"The loaded kernel module is {loaded}, the user-space library is {library}: "
        f"NVML refuses to work across versions. {way_out}."
    )


def _silence(answer: dict, host: dict) -> str:
    learnt = answer.get("answered", len(answer["gpus"]))
    count = answer.get("count")
    where = answer["silent_in"] or "the start"
    which = f" of GPU {learnt}" if count is not None and learnt < count else ""
    rest = f" GPUs {learnt + 1} to {count - 1} were not asked." if count is not None and learnt + 1 < count else ""
    return (
        f"The NVIDIA driver did not answer within {host['timeout']:g} seconds ({where}{which}).{rest} "
        f"Look into the kernel log for NVRM and Xid lines; mostly only a reboot helps."
    )


def _holder(gpus: list[dict]) -> str | None:
    """Say who holds the GPUs where it is not NVIDIA's driver."""
    for name, way_out in _HOLDERS.items():
        held = [gpu for gpu in gpus if gpu["kernel_driver"] == name]
        if held and len(held) == len([gpu for gpu in gpus if gpu["kernel_driver"] != "nvidia"]):
            return f"The kernel driver {name} holds {_addresses(held)}: {way_out}."
    return None


def _addresses(functions: list[dict]) -> str:
    return ", ".join(function["address"] for function in functions)


def _count(gpus: list) -> str:
    return "1 GPU" if len(gpus) == 1 else f"{len(gpus)} GPUs"
