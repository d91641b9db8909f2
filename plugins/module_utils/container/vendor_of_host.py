# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendors that gpu_container knows, and the vendor of a host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    gather_all_vendors as accelerators_gather,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.amd.vendor import AmdVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_nodes_only import NodeVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gaudi.vendor import GaudiVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.neuron.vendor import NeuronVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.vendor import Nvidia
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import SelectionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import ContainerVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids, pci_functions
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import AMD, GAUDI, NEURON, NVIDIA

AUTO = "auto"
# Options that only NVIDIA's devices have.
_NVIDIA_OPTIONS = ("capabilities", "driver_root", "features", "imex_channels")


@dataclass(frozen=True)
class VendorHost:
    """What a vendor reads its devices with. `gather` returns the facts of nvidia_gpu_facts for subsets."""

    params: Mapping[str, Any]
    run: Run
    gather: Callable[[frozenset], Mapping[str, Any]]
    root: str = "/"


def _nvidia(host: VendorHost) -> ContainerVendor:
    driver_root = host.params["driver_root"] or "/"
    return Nvidia(host.gather, host.root, driver_root=driver_root, cdi_kind=host.params["cdi_kind"])


def _of_nodes(vendor: type[NodeVendor]) -> Callable[[VendorHost], ContainerVendor]:
    """Return the factory of a vendor whose containers need only device nodes."""

    def create_vendor(host: VendorHost) -> ContainerVendor:
        def gather() -> Mapping[str, Any]:
            # The vendors of this module need no facts of NVIDIA.
            return accelerators_gather.gather(dict, root=host.root, vendors=[vendor.name])

        return vendor(gather, host.root, host.params["cdi_kind"])

    return create_vendor


# One line for each vendor.
VENDORS: dict[str, Callable[[VendorHost], ContainerVendor]] = {
    NVIDIA: _nvidia,
    AMD: _of_nodes(AmdVendor),
    NEURON: _of_nodes(NeuronVendor),
    GAUDI: _of_nodes(GaudiVendor),
}
OPTIONS = (AUTO, *VENDORS)


def create(host: VendorHost, functions: Callable[[str], Sequence[Mapping[str, Any]]] | None = None) -> ContainerVendor:
    """Return the vendor that the option `accelerator` names, else the vendor of the host.

    `functions`: returns the accelerators below a root (hardware/accelerator_pci_ids.py). Raise SelectionError if the
    named vendor cannot be used.
    """
    requested = host.params["accelerator"]
    name, fault = (requested, None) if requested != AUTO else _of_host(host.root, functions or _functions)
    if fault:
        return _without_devices(host, fault)
    given = [option for option in _NVIDIA_OPTIONS if host.params.get(option)]
    if given and name != NVIDIA:
        raise SelectionError(f"{given[0]} requires accelerator={NVIDIA}, but the accelerator is {name}. Remove it.")
    return VENDORS[name](host)


def choose(functions: Sequence[Mapping[str, Any]]) -> tuple[str, str | None]:
    """Return the vendor of a host with these accelerators, or the reason why it must be named.

    NVIDIA comes first. Of the others, only devices with a driver count. On a host where no device has one, all count,
    so that the error is about the driver.
    """
    found = [one for one in functions if one["vendor"] in VENDORS]
    bound = {one["vendor"] for one in found if one["kernel_driver"] and not pci_functions.is_for_guests(one)}
    vendors = bound or {one["vendor"] for one in found}
    if NVIDIA in vendors or not vendors:
        return NVIDIA, None
    names = [name for name in VENDORS if name in vendors]
    if len(names) == 1:
        return names[0], None
    listed = " and ".join(names)
    return NVIDIA, f"This host has accelerators of several vendors: {listed}. Set accelerator to one of them."


def on_host(root: str = "/") -> list[str]:
    """Return the vendors of all accelerators of a host, or NVIDIA, whose GPUs need not be on the PCI bus."""
    found = {one["vendor"] for one in _functions(root)}
    return [name for name in VENDORS if name in found] or [NVIDIA]


def _of_host(root: str, functions: Callable[[str], Sequence[Mapping[str, Any]]]) -> tuple[str, str | None]:
    # The driver lists its GPUs here. Reading all PCI functions takes longer.
    if listing(root, "/proc/driver/nvidia/gpus"):
        return NVIDIA, None
    return choose(functions(root))


def _functions(root: str) -> list[dict]:
    return accelerator_pci_ids.pick(pci_functions.scan_all(root), root)


def _without_devices(host: VendorHost, fault: str) -> ContainerVendor:
    """Return a vendor with which only tasks without devices succeed. Its first reading of devices fails."""

    def gather(_subsets: frozenset) -> Mapping[str, Any]:
        raise SelectionError(fault)

    return Nvidia(gather, host.root)
