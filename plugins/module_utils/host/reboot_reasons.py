# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host requires a reboot, and why."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver, nvidia_group
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import outdated_initramfs
from ansible_collections.gpufleet.hosts.plugins.module_utils.host.lxc_guest import VARIANT

_FLAG_FILES = ("/run/reboot-required", "/var/run/reboot-required", "/run/reboot-needed")
# Packages whose update takes effect at the next boot. The kernel is checked separately, by its release.
AT_BOOT_ONLY = ("glibc", "systemd", "dbus-broker", "dbus-daemon", "linux-firmware", "microcode_ctl")
# Clock ticks per second in /proc, on every architecture.
_TICKS_PER_SECOND = 100


def read_flag(root: str, installed_at: dict[str, int]) -> dict:
    """Return whether the distribution requests a reboot (`present`), and the `packages` that require it.

    Debian, Ubuntu and SUSE create a file. Enterprise Linux and Amazon Linux do not; for them, `installed_at` has the
    installation times of packages in seconds since 1970. Like `dnf needs-restarting`, the function compares these times
    with the boot time, but it uses no network.
    """
    present = [path for path in _FLAG_FILES if exists(root, path)]
    if present:
        packages = set((read_text(root, f"{present[0]}.pkgs") or "").split())
        return {"present": True, "packages": sorted(packages)}
    booted = boot_time(root)
    updated = sorted(name for name in AT_BOOT_ONLY if booted and installed_at.get(name, 0) > booted)
    return {"present": bool(updated), "packages": updated}


def boot_time(root: str) -> int | None:
    """Return the start time of process 1. In a container, it differs from the boot time of the kernel."""
    lines = (read_text(root, "/proc/stat") or "").splitlines()
    kernel = next((line.split()[1] for line in lines if line.startswith("btime ")), "")
    fields = (read_text(root, "/proc/1/stat") or "").rpartition(")")[2].split()
    if not kernel.isdigit() or len(fields) < 20:
        return None
    return int(kernel) + int(fields[19]) // _TICKS_PER_SECOND


def reasons(host: dict) -> list[dict]:
    """Return the reasons for a reboot as `id`, `text` and `driver` (whether the GPU driver is the cause)."""
    is_guest = host["os"].get("variant") == VARIANT
    # A reboot of an LXC guest changes neither its kernel nor the loaded modules.
    found = [] if is_guest else _of_driver(host)
    flag = host["reboot_flag"]
    if flag["present"]:
        names = ", ".join(flag["packages"]) or "no package is named"
        found.append(_reason("distribution", f"the distribution requests a reboot ({names})", driver=False))
    running, upcoming = host["kernel"]["running"], host["kernel"]["next_boot"]
    if upcoming != running and not is_guest:
        text = f"kernel {running} is running, but kernel {upcoming} boots next"
        found.append(_reason("newer_kernel", text, driver=False))
    return found


def _reason(name: str, text: str, driver: bool = True) -> dict:
    return {"id": name, "text": text, "driver": driver}


def _of_driver(host: dict) -> list[dict]:
    """Return the reasons that the GPU driver is the cause of."""
    driver = nvidia_driver(host)
    running, upcoming = host["kernel"]["running"], host["kernel"]["next_boot"]
    loaded, library, on_disk = driver["loaded"], driver["library"], driver["on_disk"]
    found: list[dict] = []
    if loaded and library and library != loaded:
        text = (
            f"module {loaded} is loaded, but the driver's libraries have version {library}: new GPU processes "
            "fail until you reload the module or reboot the host"
        )
        found.append(_reason("library_differs", text))
    found += _of_modules(host, driver, running)
    foreign = host["foreign_drivers"]
    for name in ("nouveau", "nova_core"):
        if foreign[name]["bound"] and (on_disk or driver["on_disk_next"]):
            devices = ", ".join(foreign[name]["bound"])
            found.append(_reason(f"{name}_bound", f"{name} is bound to {devices}; only a reboot can unbind it"))
    if nvidia_group(host)["gpus"] and not loaded and not on_disk and driver["on_disk_next"]:
        text = (
            f"the driver's module is built for kernel {upcoming}, which boots next, but not for the running kernel "
            f"{running}"
        )
        found.append(_reason("module_for_next_kernel_only", text))
    return found


def _of_modules(host: dict, driver: dict, running: str) -> list[dict]:
    """Return how the loaded modules differ from those on disk, and whether they came from an outdated initramfs."""
    loaded, on_disk = driver["loaded"], driver["on_disk"]
    if loaded and on_disk and on_disk != loaded:
        text = f"module {loaded} is loaded, but the module on disk for kernel {running} has version {on_disk}"
        found = [_reason("module_differs", text)]
    elif loaded and driver["on_disk_flavor"] and driver["kernel_module_flavor"] not in (None, driver["on_disk_flavor"]):
        text = (
            f"the {driver['kernel_module_flavor']} modules are loaded, but the modules on disk for kernel {running} "
            f"are the {driver['on_disk_flavor']} ones"
        )
        found = [_reason("flavor_differs", text)]
    else:
        return []
    return found + [_reason("initramfs_outdated", text) for text in outdated_initramfs.reboot_reasons(host, loaded)]
