# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts with AMD's GPUs as directory trees. Paths and formats are the kernel's, the values are invented."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

KFD = "sys/class/kfd/kfd/topology/nodes"
MI300X, MI300A, MI210, RADEON, APU, V520 = "0x74a1", "0x74a0", "0x740f", "0x744c", "0x164e", "0x7362"
TARGETS = {MI300X: 90402, MI300A: 90402, MI210: 90010, RADEON: 110000, APU: 100306}
CLASSES = {MI300X: "0x120000", MI300A: "0x120000", MI210: "0x038000", RADEON: "0x030000", APU: "0x030000"}
MIB = 1 << 20


class AmdTree(Tree):
    """A host whose CPUs are KFD nodes 0 and 1, with the driver of the kernel."""

    def __init__(
        self, root, *, version: str | None = None, loaded: bool = True, kfd: bool = True, xcp="amdgpu_xcp_"
    ) -> None:
        super().__init__(root)
        self.nodes = 0
        self.partitions = 0
        self.xcp = xcp
        if loaded:
            (self.path / "sys/module/amdgpu").mkdir(parents=True)
            if version:
                self.file("sys/module/amdgpu/version", version)
        if kfd:
            self.file("dev/kfd")
            for _cpu in range(2):
                self.kfd_node(cpu_cores_count=96, simd_count=0, drm_render_minor=0, location_id=0)

    def kfd_node(self, peers=(), **values: int) -> int:
        """Add a KFD node, and return its number."""
        number, self.nodes = self.nodes, self.nodes + 1
        base = f"{KFD}/{number}"
        self.file(f"{base}/properties", "".join(f"{name} {value}\n" for name, value in values.items()))
        (self.path / base / "io_links").mkdir()
        for link, (kind, peer) in enumerate([(2, 0), *((11, peer) for peer in peers)]):
            self.file(
                f"{base}/io_links/{link}/properties", f"type {kind}\nnode_from {number}\nnode_to {peer}\nweight 15\n"
            )
        return number

    def drm(self, directory: str, minor: int, card: int | None) -> None:
        names = [f"renderD{minor}"] + ([] if card is None else [f"card{card}"])
        for name in names:
            (self.path / directory / "drm" / name).mkdir(parents=True)
            self.file(f"dev/dri/{name}")

    def gpu(
        self,
        address: str,
        minor: int,
        device: str = MI300X,
        *,
        unique_id: str | None = None,
        partitions: int = 1,
        mode: str | None = None,
        high_bits: bool = False,
        attributes: dict[str, str] | None = None,
        peers=(),
        hive: int = 0,
        **properties: int,
    ) -> str:
        """Add a GPU that the driver and KFD know, and return its directory."""
        base = f"sys/bus/pci/devices/{address}"
        self.function(address, device, vendor="0x1002", class_id=CLASSES[device], driver="amdgpu")
        self.file(f"{base}/config", b"\x02\x10" + bytes(62))
        self.drm(base, minor, minor - 127)
        contents = {"unique_id": unique_id, "current_compute_partition": mode, **(attributes or {})}
        for name, content in contents.items():
            if content is not None:
                self.file(f"{base}/{name}", content)
        domain, bus, slot = (int(part, 16) for part in address.partition(".")[0].split(":"))
        location = bus << 8 | slot << 3 | int(address[-1])
        for number in range(partitions):
            if number:
                self.drm(f"sys/devices/platform/{self.xcp}{self.partitions}", minor + number, minor + number - 127)
                self.partitions += 1
            node = self.kfd_node(
                peers=peers,
                **{
                    "cpu_cores_count": 0,
                    "simd_count": 1216 // partitions,
                    "num_xcc": 8 // partitions,
                    "gfx_target_version": TARGETS[device],
                    "vendor_id": 4098,
                    "device_id": int(device, 16),
                    "domain": domain,
                    "location_id": location | (number << 28 if high_bits else number),
                    "drm_render_minor": minor + number,
                    "hive_id": hive,
                    "unique_id": int(unique_id or "0", 16),
                    **properties,
                },
            )
            if partitions > 1:
                self.file(f"{KFD}/{node}/mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {24576 * MIB}\n")
        return base


MEMORY = {"mem_info_vram_total": str(196592 * MIB), "mem_info_vram_used": str(512 * MIB)}
SENSORS = {
    "hwmon/hwmon4/name": "amdgpu",
    "hwmon/hwmon4/temp1_label": "edge",
    "hwmon/hwmon4/temp1_input": "38000",
    "hwmon/hwmon4/temp2_label": "junction",
    "hwmon/hwmon4/temp2_input": "41000",
    "hwmon/hwmon4/power1_average": "142000000",
    "gpu_busy_percent": "7",
}
RAS = {
    "ras/umc_err_count": "ue: 0\nce: 3\nde: 0",
    "ras/gfx_err_count": "ue: 0\nce: 1",
    "ras/gpu_vram_bad_pages": "0x00000001 : 0x00001000 : R",
}
FRU = {
    "product_name": "AMD Instinct MI300X OAM",
    "vbios_version": "113-M3000100-102",
    "fw_version/mec_fw_version": "0x000000a8",
}
