# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check whether a host can run work on the accelerators of vendors other than NVIDIA. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import (
    cdi_engine_check,
    cdi_specification_check,
    vendor_differences,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver.vendor_differences import VendorDriver


def problems(host: Mapping[str, Any]) -> list[str]:
    """Return what prevents work: devices that cannot be used, and stale CDI specifications of this collection."""
    found = []
    for vendor in vendor_differences.VENDORS.values():
        group = host["accelerators"].get(vendor.name)
        if not group or not group.get("record"):
            continue
        devices, state = vendor_differences.observed(host, vendor)
        if state["state"] == schema.NO_HARDWARE:
            continue
        if state["state"] != schema.READY:
            found.append(f"the {vendor.title} cannot be used (state {state['state']}): {state['reason']}")
            continue
        found += [
            f"{vendor.title}: {one['stable_id']} is lost: {'; '.join(one['health']['reasons'])}"
            for one in devices
            if one["health"]["state"] == schema.LOST
        ]
        found += _specification(host, vendor, devices)
    return found


def notes(host: Mapping[str, Any]) -> list[str]:
    """Return why an engine does not use the CDI specification of this collection."""
    found = []
    for vendor in vendor_differences.VENDORS.values():
        spec = cdi_specification_check.own(host.get("accelerator_specs") or [], vendor)
        found += cdi_engine_check.obstacles(host, spec["path"]) if spec else []
    return list(dict.fromkeys(found))


def _specification(host: Mapping[str, Any], vendor: VendorDriver, devices: list[Any]) -> list[str]:
    """Compare the specification of the role. A host without its program has none."""
    if not observed_files.exists(host, owned.ACCELERATOR_CDI_PROGRAMS[vendor.name]):
        return []
    found = [_unit_off(host, vendor)]
    spec = cdi_specification_check.own(host["accelerator_specs"], vendor)
    path = owned.ACCELERATOR_CDI_SPECIFICATIONS[vendor.name]
    if spec is None:
        # Another file of the same kind takes its place.
        others = any(not one["ours"] for one in host["accelerator_specs"])
        if not others:
            found.append(
                f"the CDI specification {path} does not exist; run `systemctl restart {vendor.service}` and read its "
                "journal"
            )
    else:
        differences = cdi_specification_check.differences(spec, devices)
        found.append(cdi_specification_check.message(vendor, spec, differences) if differences else None)
    return [text for text in found if text]


def _unit_off(host: Mapping[str, Any], vendor: VendorDriver) -> str | None:
    state = (host["services"].get(vendor.service) or {}).get("unit_file_state")
    if state in ("enabled", "masked", None):
        return None
    return f"{vendor.service} is not enabled, so the CDI specification does not exist after a reboot; run playbook site"
