# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the parts for AMD, Gaudi and Neuron differ in. Data only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    amd_devices,
    gaudi_devices,
    neuron_devices,
    neuron_pci_addresses,
    recorded_sysfs,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import vendor_names as hardware_vendors


class VendorDriver(NamedTuple):
    """A vendor. `name`: in the neutral schema.

    `groups`: those that the device nodes belong to. `read` returns the devices and the state of the vendor from a
    recorded tree.
    """

    name: str
    role: str
    title: str
    module: str
    groups: tuple[str, ...]
    read: Callable[[recorded_sysfs.AcceleratorRecordedTree, list[dict], str | None], tuple[list[Any], Any]]

    @property
    def service(self) -> str:
        return self._units[0]

    @property
    def timer(self) -> str:
        return self._units[2]

    @property
    def _units(self) -> tuple[str, ...]:
        return tuple(path.rpartition("/")[2] for path in owned.ACCELERATOR_CDI_UNITS[self.name])


AMD = VendorDriver(
    name=hardware_vendors.AMD,
    role="amd_driver",
    title="AMD GPUs",
    module=amd_devices.DRIVER,
    groups=("render", "video"),
    read=amd_devices.read,
)
GAUDI = VendorDriver(
    name=hardware_vendors.GAUDI,
    role="gaudi_driver",
    title="Gaudi accelerators",
    module=gaudi_devices.DRIVER,
    groups=(),
    read=gaudi_devices.read,
)


def _read_neuron(
    tree: recorded_sysfs.AcceleratorRecordedTree, functions: list[dict], kernel: str | None
) -> tuple[list[Any], Any]:
    """Return the chips without asking anything for their PCI addresses, which the plan does not need."""
    return neuron_devices.read(tree, functions, kernel, neuron_pci_addresses.NOTHING)


NEURON = VendorDriver(
    name=hardware_vendors.NEURON,
    role="neuron_driver",
    title="AWS Neuron chips",
    module=neuron_devices.MODULE,
    groups=(),
    read=_read_neuron,
)
VENDORS = {one.role: one for one in (AMD, NEURON, GAUDI)}


def observed(host: Mapping[str, Any], vendor: VendorDriver) -> tuple[list[Any], Any]:
    """Return the devices and the state of a vendor, from the observation of a host."""
    group = host["accelerators"][vendor.name] or {"devices": [], "record": None, "module": None}
    module = group["module"]
    tree = recorded_sysfs.AcceleratorRecordedTree(
        group["record"] or {}, {module["name"]: module["kernels"]} if module else {}
    )
    return vendor.read(tree, group["devices"], host["kernel"]["running"])
