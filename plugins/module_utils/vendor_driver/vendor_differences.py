# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the parts for AMD, Gaudi and Neuron differ in. Data only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

# The form of option cdi_kind.
KIND = r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z0-9])?"
Devices = Sequence[Mapping[str, Any]]


class VendorDriver(NamedTuple):
    """A vendor. `name`: in the neutral schema.

    `groups`: those that the device nodes belong to. `watch`: directories that change with the devices. `repartitions`
    returns whether the devices can change without an event that systemd could watch. `read` returns the devices and the
    state of the vendor from a recorded tree.
    """

    name: str
    role: str
    title: str
    module: str
    groups: tuple[str, ...]
    watch: tuple[str, ...]
    repartitions: Callable[[Devices], bool]
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


# The driver creates the nodes of all possible partitions when it is loaded, and switching the mode creates none
# (drivers/gpu/drm/amd/amdxcp), so only a timer sees it.
AMD = VendorDriver(
    name=hardware_vendors.AMD,
    role="amd_driver",
    title="AMD GPUs",
    module=amd_devices.DRIVER,
    groups=("render", "video"),
    watch=("/dev/dri",),
    # The kernel refuses to show the mode while a GPU is reset.
    repartitions=lambda devices: any(one["partition"]["mode"] or "partition" in one["unread"] for one in devices),
    read=amd_devices.read,
)
# A reset changes the status of an accelerator, but not its nodes.
GAUDI = VendorDriver(
    name=hardware_vendors.GAUDI,
    role="gaudi_driver",
    title="Gaudi accelerators",
    module=gaudi_devices.DRIVER,
    groups=(),
    watch=("/dev/accel",),
    repartitions=lambda _devices: False,
    read=gaudi_devices.read,
)


def _read_neuron(
    tree: recorded_sysfs.AcceleratorRecordedTree, functions: list[dict], kernel: str | None
) -> tuple[list[Any], Any]:
    """Return the chips without asking anything for their PCI addresses, which the plan does not need."""
    return neuron_devices.read(tree, functions, kernel, neuron_pci_addresses.NOTHING)


# The nodes change only when the driver is loaded, and systemd loads it before it starts the service.
NEURON = VendorDriver(
    name=hardware_vendors.NEURON,
    role="neuron_driver",
    title="AWS Neuron chips",
    module=neuron_devices.MODULE,
    groups=(),
    watch=(),
    repartitions=lambda _devices: False,
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
