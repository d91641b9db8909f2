# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the CDI specification of a vendor's accelerators as a standalone program, which systemd units run.

cdi_units.py plans the units and has the options. plugin_utils/accelerator_program.py packs the program.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema, sysfs_refusals
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import accelerator_writing
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import pci_functions
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import vendor_differences

# In these states, no container can use a device, so a specification would only describe devices of the past.
_WITHOUT_DEVICES = (schema.NO_HARDWARE, schema.NO_DRIVER, schema.DRIVER_NOT_LOADED)


def main(options: dict[str, Any]) -> None:
    """Write the specification, say so, and end with status 1 on an error."""
    pinned_environment.pin()
    try:
        lines = refresh(options)
    except accelerator_writing.ERRORS as error:
        sys.stderr.write(f"{accelerator_writing.error_text(error, options['path'])}\n")
        raise SystemExit(1) from None
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def refresh(options: Mapping[str, Any]) -> list[str]:
    """Write the specification, or remove it if the host has no usable device. Return what was done, if anything."""
    path, root = options["path"], options["root"]
    devices, vendor = _read(options["vendor"], root)
    facts = {"accelerators": devices, "accelerator_vendors": {options["vendor"]: vendor}}
    if vendor["state"] in _WITHOUT_DEVICES:
        result = accelerator_writing.apply_state({**options, "state": "absent"}, lambda: facts, False, root)
        return [f"{path} does not exist: {vendor['reason']}"] if result["changed"] else []
    result = accelerator_writing.apply_state(options, lambda: facts, False, root)
    # The timer runs this every minute, so an unchanged specification is not worth a line in the journal.
    if not result["changed"]:
        return []
    lines = [*result["warnings"], *(f"without {one['device']}: {one['reason']}" for one in result["skipped"])]
    if not result["devices"]:
        return [*lines, f"{path} does not exist"]
    return [*lines, f"wrote {path} with the devices {', '.join(result['devices'])}"]


def _read(name: str, root: str) -> tuple[list[Any], Any]:
    """Return the devices and the state of one vendor, without accelerators/gather_all_vendors.py, which loads NVML."""
    vendor = next(one for one in vendor_differences.VENDORS.values() if one.name == name)
    tree = sysfs_refusals.SysfsTree(root)
    return vendor.read(tree, pci_functions.scan_all(root), tree.read("/proc/sys/kernel/osrelease").text)
