# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts with AWS Neuron's chips as directory trees. Paths and formats are the driver's, the values are invented."""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

CLASS = "sys/devices/virtual/neuron_device"
MIB = 1 << 20


class Generation(NamedTuple):
    """What the driver writes about the chips of a generation."""

    device: str
    device_name: str
    instance_type: str
    arch_type: str
    cores: int


INF1 = Generation("0x7064", "Inferentia", "Inf1", "NDv1", 4)
INF2 = Generation("0x7264", "Inferentia2", "Inf2", "NDv3", 2)
TRN1 = Generation("0x7164", "Trainium1", "Trn1", "NDv2", 2)
TRN2 = Generation("0x7364", "Trainium2", "Trn2", "NDv3", 8)
TRN3 = Generation("0x7564", "Trainium3", "Trn3", "NDv4", 8)


class NeuronTree(Tree):
    """A host whose driver numbers the chips in reverse order of the bus, to show that the order says nothing."""

    def __init__(self, root, *, version: str | None = "2.30.2.0", loaded: bool = True) -> None:
        super().__init__(root)
        self.chips = 0
        self.loaded = loaded
        if loaded:
            (self.path / "sys/module/neuron").mkdir(parents=True)
            if version:
                self.file("sys/module/neuron/version", version + "\n")
        self.version = tuple(int(part) for part in (version or "0").split("."))

    def bus(self, generation: Generation, count: int, *, domain: int = 0, bound: bool = True) -> list[str]:
        """Add PCI functions, and return their addresses."""
        addresses = [f"{domain:04x}:{0xA0 + number:02x}:00.0" for number in range(count)]
        for number, address in enumerate(addresses):
            self.function(
                address,
                generation.device,
                vendor="0x1d0f",
                class_id="0x088000",
                driver="neuron-driver" if bound else None,
                numa_node=number * 2 // count,
            )
        return addresses

    def chip(self, generation: Generation, *, links: str = "", node: bool = True, **attributes: str | None) -> str:
        """Add a chip, and return its directory. `attributes`: paths with __ for /, None removes a default."""
        number, self.chips = self.chips, self.chips + 1
        base = f"{CLASS}/neuron{number}"
        contents: dict[str, str | None] = {
            "core_count": str(generation.cores),
            "connected_devices": links + "\n",
            "reset": "1\n",
            "info/architecture/device_name": generation.device_name + "\n",
            "info/architecture/instance_type": generation.instance_type + "\n",
            "info/architecture/arch_type": generation.arch_type + "\n",
        }
        if generation is not INF1:
            contents["info/serial_number"] = f"{0x00A1B2C3D4E5F600 + number:016x}\n"
            for name in ("sram_ecc_uncorrected", "mem_ecc_uncorrected", "mem_ecc_repairable_uncorrected"):
                contents[f"stats/hardware/{name}"] = "0\n"
            if self.version >= (2, 30, 2):
                contents |= {"stats/hardware/sram_ecc_corrected": "0\n", "stats/hardware/mem_ecc_corrected": "0\n"}
                if generation in (TRN2, TRN3):
                    contents["stats/hardware/health_status/unhealthy_components"] = "\n"
        for core in range(generation.cores):
            contents[f"neuron_core{core}/stats/memory_usage/device_mem/total"] = f"{64 * MIB}\n"
            contents[f"neuron_core{core}/stats/memory_usage/device_mem/present"] = "7\n"
            contents[f"neuron_core{core}/stats/status/hw_error/total"] = "0\n"
        contents.update({name.replace("__", "/"): content for name, content in attributes.items()})
        for name, content in contents.items():
            if content is not None:
                self.file(f"{base}/{name}", content)
        self.link(f"sys/class/neuron_device/neuron{number}", f"../../devices/virtual/neuron_device/neuron{number}")
        if node:
            self.file(f"dev/neuron{number}")
        return base

    def host(self, generation: Generation, count: int, **options) -> list[str]:
        """Add PCI functions and chips, and log which function is which chip. Return the addresses by number."""
        addresses = self.bus(generation, count)
        for _number in range(count):
            self.chip(generation, **options)
        addresses.reverse()
        self.log(addresses)
        return addresses

    def log(self, addresses: list[str]) -> None:
        """Write the lines of the driver to the kernel log. They lack the domain."""
        lines = [
            f"6,{number},5140900,-;neuron: ** BDF: {address.partition(':')[2]} => nd[{number}] (routing id: {number})"
            for number, address in enumerate(addresses)
        ]
        self.file("dev/kmsg", "".join(line + "\n" for line in lines))
