# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AWS Neuron's chips in the neutral schema, from sysfs and the device nodes.

A chip is what the driver numbers: /dev/neuron<N>. In a container, sysfs shows all chips of the host, so only chips
with a device node are counted.
"""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    neuron_host_state,
    neuron_pci_addresses,
    neuron_sysfs_values,
    schema,
    sysfs_refusals,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import untrusted_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids, pci_functions
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import NEURON

MODULE = "neuron"
PCI_DRIVER = "neuron-driver"
_CLASS = "/sys/class/neuron_device"
_PCI_VENDOR = "0x1d0f"
_NO_RESPONSE = b"\xff\xff\xff\xff"


class AcceleratorsOfNeuron(NamedTuple):
    """Neuron's chips by number, then the functions without a chip, and the state of the vendor."""

    devices: list[schema.AcceleratorDevice]
    vendor: schema.AcceleratorVendor


def read(
    tree: sysfs_refusals.SysfsTree,
    functions: list[dict],
    kernel: str | None,
    sources: neuron_pci_addresses.AcceleratorsNeuronSources | None = None,
) -> AcceleratorsOfNeuron:
    """Return Neuron's devices. `functions`: PCI functions of a host. `sources`: what may be asked for PCI addresses."""
    found = [one for one in accelerator_pci_ids.pick(functions) if one["vendor"] == NEURON]
    reader = _NeuronReader(tree, [one for one in found if not pci_functions.is_for_guests(one)])
    devices = reader.chips(sources or neuron_pci_addresses.real_sources(tree))
    others = reader.without_chip()
    skipped = reader.skipped + pci_functions.of_guests(found)
    state, reason = neuron_host_state.decide(
        devices,
        others,
        neuron_host_state.AcceleratorsNeuronHost(
            is_loaded=reader.is_loaded,
            is_installed=kernel is not None and tree.has_module(kernel, MODULE),
            kernel=kernel,
            version=reader.version,
            chips_without_node=reader.without_node,
        ),
    )
    # Functions of hidden chips are no devices here: which ones they are is not known.
    vendor = schema.vendor_state(state, reason, devices + others, reader.version, skipped)
    return AcceleratorsOfNeuron(devices + others, vendor)


class _NeuronReader:
    def __init__(self, tree: sysfs_refusals.SysfsTree, candidates: list[dict]) -> None:
        self.tree = tree
        self.candidates = {one["address"]: one for one in candidates}
        self.bound = [one["address"] for one in candidates if one["kernel_driver"] == PCI_DRIVER]
        self.is_loaded = tree.exists(f"/sys/module/{MODULE}")
        version = tree.read(f"/sys/module/{MODULE}/version").text
        self.version = version if untrusted_text.is_like(untrusted_text.PACKAGE_VERSION, version) else None
        names = tree.names(_CLASS, r"neuron[0-9]{1,2}")
        self.numbers = [int(name[len("neuron") :]) for name in names]
        self.without_node: list[int] = []
        self.unmapped = 0
        self.used: set[str] = set()
        self.skipped: list[dict[str, str]] = []

    def chips(self, sources: neuron_pci_addresses.AcceleratorsNeuronSources) -> list[schema.AcceleratorDevice]:
        """Return the chips that have a device node, and remember the others."""
        mapped = neuron_pci_addresses.resolve(self.numbers, self.bound, sources)
        self.used = set(mapped.addresses.values())
        self.without_node = [
            chip for chip in self.numbers if not self.tree.exists(f"/dev/neuron{chip}") or chip in mapped.hidden
        ]
        self.unmapped = len(self.numbers) - len(mapped.addresses)
        devices, peers = [], {}
        for chip in self.numbers:
            address = mapped.addresses.get(chip)
            if chip in self.without_node:
                reason = f"/dev/neuron{chip} is not accessible here, like in a container that has other chips"
                self.skipped.append({"pci_address": address or "unknown", "reason": reason})
                continue
            device, linked = self._chip(chip, address, mapped.unknown.get(chip))
            devices.append(device)
            peers[chip] = linked
        names = {one["index"]: one["stable_id"] for one in devices}
        for one in devices:
            linked = peers[one["index"]]
            if linked is not None:
                one["links"] = {"fabric": None, "peers": [names[chip] for chip in linked if names.get(chip)]}
        return devices

    def without_chip(self) -> list[schema.AcceleratorDevice]:
        """Return the functions that the driver shows no chip for.

        Chips with an unknown address leave the same number of functions, and nobody knows which of them are theirs.
        """
        unused = [address for address in self.candidates if address not in self.used]
        driven = [address for address in unused if address in self.bound]
        lost = [address for address in unused if address not in self.bound]
        if not self.unmapped:
            lost += driven
        return [self._from_pci(address) for address in sorted(lost, key=pci_functions.sort_key)]

    def _chip(
        self, chip: int, address: str | None, unknown: str | None
    ) -> tuple[schema.AcceleratorDevice, list[int] | None]:
        values, peers = neuron_sysfs_values.read(self.tree, f"{_CLASS}/neuron{chip}")
        function = self.candidates.get(address or "", {})
        unread = values["unread"]
        if unknown:
            unread["pci_address"] = unknown
        device_id = function.get("device_id") or self._only_device_id()
        memory = neuron_sysfs_values.memory_total_mib(device_id)
        if memory is None:
            unread["memory_total_mib"] = "the memory of this generation is not known"
        if "stable_id" not in values and address:
            values.update(stable_id=address, stable_id_kind=schema.PCI_ADDRESS)
        generation = self._generation(device_id)
        path = f"/dev/neuron{chip}"
        health = values.pop("health")
        if address and self._is_off_the_bus(address):
            health = schema.health(
                schema.LOST,
                f"the chip has fallen off the bus. {neuron_sysfs_values.KERNEL_LOG}, and stop and start the host",
            )
        device = schema.device(
            NEURON,
            kind="accelerator",
            generation=generation,
            pci_address=address,
            pci_id=schema.pci_id(_PCI_VENDOR, device_id),
            index=chip,
            numa_node=function.get("numa_node"),
            nodes=[{"path": path, "role": "device", "gid": self.tree.gid(path)}],
            memory_total_mib=memory,
            driver_version=self.version,
            health=health,
            **{**values, "model": values["model"] or generation},
        )
        return device, peers

    def _from_pci(self, address: str) -> schema.AcceleratorDevice:
        function = self.candidates[address]
        health = schema.health(schema.UNKNOWN, "the driver is not loaded")
        if self.is_loaded:
            does = "shows no chip for it" if address in self.bound else "does not drive it"
            health = schema.health(
                schema.LOST, f"kernel module {MODULE} is loaded, but {does}. {neuron_sysfs_values.KERNEL_LOG}"
            )
        return schema.device(
            NEURON,
            kind="accelerator",
            generation=function["generation"],
            model=function["generation"],
            pci_address=address,
            pci_id=schema.pci_id(function["vendor_id"], function["device_id"]),
            stable_id=address,
            stable_id_kind=schema.PCI_ADDRESS,
            numa_node=function["numa_node"],
            memory_total_mib=neuron_sysfs_values.memory_total_mib(function["device_id"]),
            health=health,
        )

    def _only_device_id(self) -> str | None:
        """Return the device ID of all chips. A host has one generation (aws-neuron-driver, neuron_arch.h, 2.24.7.0)."""
        found = {one["device_id"] for one in self.candidates.values()}
        return next(iter(found)) if len(found) == 1 else None

    def _generation(self, device_id: str | None) -> str | None:
        found = {one["generation"] for one in self.candidates.values() if device_id in (None, one["device_id"])}
        return next(iter(found)) if len(found) == 1 else None

    def _is_off_the_bus(self, address: str) -> bool:
        try:
            return self.tree.read_bytes(f"/sys/bus/pci/devices/{address}/config", 4) == _NO_RESPONSE
        except OSError:
            return False
