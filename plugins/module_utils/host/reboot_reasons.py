# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a host owes a reboot, in words, worked out from what was observed of it."""

from __future__ import annotations


def reasons(host: dict) -> list[dict]:
    """Return the reasons as `id`, `text` and `driver` (whether the GPU driver is the cause)."""
    driver = host["driver"]
    running = host["kernel"]["running"]
    loaded, library, on_disk = driver["loaded"], driver["library"], driver["on_disk"]
    found = []

    def because(name: str, text: str, is_driver: bool = True) -> None:
        found.append({"id": name, "text": text, "driver": is_driver})

    if loaded and library and library != loaded:
        because(
            "library_differs",
            f"module {loaded} is loaded, but the driver's libraries are {library}: new GPU processes fail until the "
            "module is reloaded or the host is rebooted",
        )
    if loaded and on_disk and on_disk != loaded:
        because("module_differs", f"module {loaded} is loaded, but the one on disk for kernel {running} is {on_disk}")
    elif loaded and driver["on_disk_flavor"] and driver["kernel_module_flavor"] not in (None, driver["on_disk_flavor"]):
        because(
            "flavor_differs",
            f"the {driver['kernel_module_flavor']} modules are loaded, but those on disk for kernel {running} are the "
            f"{driver['on_disk_flavor']} ones",
        )
    foreign = host["foreign_drivers"]
    for name in ("nouveau", "nova_core"):
        if foreign[name]["bound"] and (on_disk or driver["on_disk_next"]):
            because(f"{name}_bound", f"{name} drives {', '.join(foreign[name]['bound'])}; it lets go at a reboot only")
    if host["nvidia"]["gpus"] and not loaded and not on_disk and driver["on_disk_next"]:
        because(
            "module_for_next_kernel_only",
            f"the driver's module exists for kernel {host['kernel']['next_boot']}, which the next boot takes, and not "
            f"for kernel {running}, which is running",
        )
    flag = host["reboot_flag"]
    if flag["present"]:
        names = ", ".join(flag["packages"]) or "no package named"
        because("distribution", f"the distribution asks for a reboot ({names})", is_driver=False)
    if host["kernel"]["next_boot"] != running:
        because(
            "newer_kernel",
            f"kernel {running} is running, and the next boot takes {host['kernel']['next_boot']}",
            is_driver=False,
        )
    return found
