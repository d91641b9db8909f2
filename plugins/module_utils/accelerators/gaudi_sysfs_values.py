# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values that habanalabs shows of one accelerator: status, module ID, type, model and firmware.

Memory, UUID, serial number, errors and utilization are not in sysfs. Temperature and power are left out because their
units come from the firmware and are not documented.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import sysfs_refusals

# The start of a stable ID. A bare number would be the index of another accelerator.
MODULE = "module-"
_MOST_MODULES = 63
_FIRMWARE = ("fw_os", "preboot_btl", "uboot", "cpucp", "cpld", "fuse", "thermal", "vrm")
_VERSION = r"[A-Za-z0-9][A-Za-z0-9 ._+~,:()/-]{0,127}"
# GAUDI, GAUDI SEC, GAUDI HL2000M, GAUDI2B, GAUDI3
_TYPE = r"GAUDI([2-9]?)[A-Z]?(?: [A-Z0-9 ]{1,32})?"
_MODEL = r"HL-?[A-Z0-9]{1,16}(?:-[A-Z0-9]{1,16})?"


def module_id(attributes: sysfs_refusals.SysfsAttributes) -> int | None:
    """Return the number of the module on the board. It is the same after every boot; the index is not."""
    return attributes.number("stable_id", "module_id", most=_MOST_MODULES)


def status(attributes: sysfs_refusals.SysfsAttributes) -> str | None:
    return attributes.text("health", "status")


def generation(attributes: sysfs_refusals.SysfsAttributes) -> str | None:
    """Return the generation that the driver tells, for a PCI ID that does not tell it."""
    text = attributes.matching("generation", "device_type", _TYPE)
    match = re.fullmatch(_TYPE, text, re.ASCII) if text else None
    return f"Gaudi{match[1]}" if match else None


def model(attributes: sysfs_refusals.SysfsAttributes, function: str) -> str | None:
    """Return the name of the card. The driver gives it to the sensors of the PCI function."""
    tree = attributes.tree
    for directory in (f"{function}/hwmon", f"{attributes.directory}/hwmon"):
        for name in tree.names(directory, r"hwmon[0-9]{1,6}"):
            text = tree.read(f"{directory}/{name}/name").text or ""
            if re.fullmatch(_MODEL, text, re.ASCII):
                return text
    return None


def firmware(attributes: sysfs_refusals.SysfsAttributes) -> dict[str, str] | None:
    """Return the versions of the firmware. First-generation accelerators leave some of them empty."""
    found = {name: attributes.matching("firmware", f"{name}_ver", _VERSION) for name in _FIRMWARE}
    return {name: value for name, value in found.items() if value} or None
