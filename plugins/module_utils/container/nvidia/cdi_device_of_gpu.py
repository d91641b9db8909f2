# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CDI device stands for a GPU, and whether it can be trusted."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories, specification_reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import (
    specification_kinds,
    stale_device_nodes,
    stale_driver_version,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia.host_device_nodes import read_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia.stale_device_nodes import CdiUnit, compare
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toolkit_cdi_units


def cdi_device(
    unit: Unit, specs: specification_reader.Specs, kind: str | None = None
) -> specification_reader.CdiDevice | None:
    """Return the CDI device of a unit, of the given kind, else of NVIDIA's or of one that this collection wrote."""
    if kind:
        usable = [device for device in specs.devices.values() if device.kind == kind]
    else:
        usable = [device for device in specs.devices.values() if device.kind == specification_kinds.KIND or device.ours]
    by_uuid = [device for device in usable if device.name == unit.uuid]
    if by_uuid:
        return min(by_uuid, key=lambda device: (device.kind != specification_kinds.KIND, device.kind))
    device = specs.devices.get(f"{kind or specification_kinds.KIND}={unit.index}")
    # The GPU with this index may have changed since the specification was written, so the node must match.
    if device is not None and f"/dev/nvidia{unit.gpu.minor}" in device.nodes:
        return device
    return None


def stale_reason(
    unit: Unit, host: IsolationHost, capabilities: Sequence[str], kind: str | None = specification_kinds.KIND
) -> str | None:
    """Return why the CDI device of a unit cannot be trusted: it differs from the host, or cannot be compared."""
    device = cdi_device(unit, host.specs, kind)
    return stale_device_reason(device, [unit], host, capabilities) if device else None


def stale_device_reason(
    device: specification_reader.CdiDevice, units: Sequence[Unit], host: IsolationHost, capabilities: Sequence[str]
) -> str | None:
    """Return why a CDI device that stands for these units cannot be trusted, or None."""
    is_of_unit = directories.real(device.path) == directories.real(toolkit_cdi_units.SPECIFICATION)
    has_unit = is_of_unit and any(host.has(path) for path in toolkit_cdi_units.UNIT_FILES)
    command = f"systemctl restart {toolkit_cdi_units.SERVICE}" if has_unit else None
    stale = stale_driver_version.stale_message(
        device.path, device.driver_versions, host.driver_version, ours=device.ours, command=command
    )
    if stale:
        return stale
    nodes = read_nodes(host.root, [unit.gpu.pci_bus_id for unit in units])
    found = compare([_described(unit) for unit in units], device.cdi_nodes, nodes, capabilities)
    if found.differences:
        text = f"for {device.qualified}, {' and '.join(found.differences)}"
        return stale_device_nodes.different_message(device.path, text, ours=device.ours, command=command)
    if found.unknown:
        return f"the CDI specification {device.path} cannot be compared with the host: {'; '.join(found.unknown)}"
    return None


def _described(unit: Unit) -> CdiUnit:
    gi, ci = unit.partition if unit.is_partition else (None, None)
    return CdiUnit(str(unit), unit.gpu.minor, unit.gpu.pci_bus_id, gi, ci, is_mig=unit.is_partition)
