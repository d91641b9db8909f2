# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts with Gaudi accelerators as directory trees. Paths and formats are the driver's, the values are invented."""

from __future__ import annotations

import os

from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

GAUDI, GAUDI2, GAUDI3, CARD, UNKNOWN = "0x1000", "0x1020", "0x1060", "0x1063", "0x1030"
TYPES = {GAUDI: "GAUDI", GAUDI2: "GAUDI2", GAUDI3: "GAUDI3", CARD: "GAUDI3", UNKNOWN: "GAUDI3D"}
MODELS = {GAUDI: "HL-205", GAUDI2: "HL-225H", GAUDI3: "HL-325L", CARD: "HL-338", UNKNOWN: "HL-325"}
VERSION = "1.23.0-0abc123"
NETWORK = ("habanalabs_cn", "habanalabs_en", "habanalabs_ib")
PCI = "sys/bus/pci/devices"


class GaudiTree(Tree):
    """A host with the vendor's driver, or with the driver of the kernel if `version` is None."""

    def __init__(self, root, *, version: str | None = VERSION, loaded: bool = True, legacy: bool = False) -> None:
        super().__init__(root)
        self.version = version
        self.legacy = legacy
        if loaded:
            (self.path / "sys/module/habanalabs").mkdir(parents=True)
        if loaded and version:
            self.file("sys/module/habanalabs/version", version + "\n")
            for name in NETWORK:
                (self.path / "sys/module" / name).mkdir()

    def accelerator(
        self,
        address: str,
        index: int,
        module: int | None,
        device: str = GAUDI3,
        *,
        status: str = "Operational",
        uverbs: bool = True,
        attributes: dict[str, str] | None = None,
    ) -> str:
        """Add an accelerator that the driver drives, and return the directory of its attributes."""
        base = f"{PCI}/{address}"
        self.function(address, device, vendor="0x1da3", class_id="0x120000", driver="habanalabs")
        directory, name, place = "sys/class/accel", f"accel{index}", base
        nodes = [f"dev/accel/accel{index}", f"dev/accel/accel_controlD{index}"]
        if self.legacy:
            directory, name, place = "sys/class/habanalabs", f"hl{index}", f"sys/class/habanalabs/hl{index}"
            nodes = [f"dev/hl{index}", f"dev/hl_controlD{index}"]
        else:
            (self.path / base / "accel" / name).mkdir(parents=True)
            self.link(f"{directory}/{name}/device", os.path.relpath(f"/{base}", f"/{directory}/{name}"))
        contents = {
            "pci_addr": address,
            "status": status,
            "device_type": TYPES[device],
            "module_id": None if module is None else str(module),
            "hard_reset_cnt": "0",
            "driver_ver": self.version,
            "fw_os_ver": f"hl-gaudi{TYPES[device][5:6]}-1.23.0-fw-62.0.0-sec-9",
            "cpld_ver": "0x00000010",
            "uboot_ver": "",
            **(attributes or {}),
        }
        for key, content in contents.items():
            if content is not None:
                self.file(f"{place}/{key}", content + "\n")
        self.file(f"{base}/hwmon/hwmon{5 + index}/name", MODELS[device] + "\n")
        if uverbs:
            (self.path / base / "infiniband_verbs" / f"uverbs{index}").mkdir(parents=True)
            nodes.append(f"dev/infiniband/uverbs{index}")
        for node in nodes:
            self.file(node)
        return place

    def board(self, device: str = GAUDI3, statuses: dict[int, str] | None = None) -> GaudiTree:
        """Add the eight modules of a board. Their indexes are in another order than their module IDs."""
        for module in range(8):
            self.accelerator(
                f"0000:{0x19 + module:02x}:00.0",
                (module + 3) % 8,
                module,
                device,
                status=(statuses or {}).get(module, "Operational"),
            )
        return self
