# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vGPUs of a virtual machine: shares of a GPU that the hypervisor creates with NVIDIA's vGPU manager.

Both signs are in the PCI configuration, so no driver is required. A GPU that the hypervisor passes through as a whole
has neither of them, whichever driver the virtual machine has:

- a vendor-specific capability with the signature "VF", which also contains the version of the vGPU manager
  (NVIDIA/k8s-device-plugin, internal/vgpu, 062f090). Only root can read it.
- a subsystem ID that stands for a vGPU type. The device ID is that of the physical GPU. NVIDIA's driver names vGPU
  types by these IDs (NVIDIA/open-gpu-kernel-modules, src/nvidia/generated/g_nv_name_released.h, 595.45.04, df1c9a3).
  Observed on Azure NVadsA10_v5: 2236 with subsystem 14bb, A10-4Q (canonical/ubuntu-drivers-common, issue 92).
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_bytes
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.pci_functions import NVIDIA_VENDOR_ID

_CONFIGURATION = 256
_STATUS, _HAS_CAPABILITIES, _FIRST_CAPABILITY = 0x06, 0x10, 0x34
_VENDOR_SPECIFIC, _BROKEN = 0x09, 0xFF
_SIGNATURE, _RECORDS = b"VF", 5
# A record has a type, a length that includes these two bytes, and for type 0 a version of ten bytes.
_MANAGER_VERSION, _VERSION_LENGTH = 0, 10

# The subsystem IDs of vGPU types by device ID, except types with the name of another GPU.
_TYPES = {
    0x1E37: "136a-136c 13a7-13a9",
    0x1EB8: "1309-1315 1345 1367-1369 1375 139a-139b",
    0x20B0: "146f-1479 160c 1840",
    0x20B2: "1523-152e 160d 1841",
    0x20B5: "1591-159c 160f 183e",
    0x20B7: "1589-1590 1610 183c",
    0x20F1: "1493-149d 160e 183d",
    0x20F3: "17b2-17be 1842",
    0x20F5: "17bf-17cb 183f",
    0x20F6: "17cc-17d7 1843",
    0x2230: "14fa-151a 2203",
    0x2231: "1562-157c 2205",
    0x2233: "165c-1676 2204",
    0x2235: "14d5-14ee 14f3-14f9 1684-1688 16e7 2206",
    0x2236: "14b6-14cb 14d0-14d4 167e-1680 16e8 2207",
    0x2237: "155a-1561 162a-163b",
    0x2238: "16a3-16b9 16e6 2208",
    0x2321: "1853-1860",
    0x2322: "17e2-17ef 1845",
    0x2324: "18d5-18e3",
    0x2329: "2028-2035 2047-2048",
    0x232C: "2108-2117",
    0x2330: "187a-1888",
    0x2331: "16d3-16de 1798 17f0 1844",
    0x2335: "206e-207b 207e-207f",
    0x2337: "18f2-18fd",
    0x2339: "18e4-18f1",
    0x233A: "1861-186e",
    0x233B: "2081-2090",
    0x2342: "18c2-18c9",
    0x2348: "20c2-20c9",
    0x25B6: "159d-159f 1600-160b 1646-1657 2209-220a",
    0x26B1: "1708-172e 21fa",
    0x26B2: "1821-1838 21fc",
    0x26B3: "1958-197e 21fb",
    0x26B5: "176d-1793 21fd",
    0x26B8: "174e-176c 21ff",
    0x26B9: "1889-189e 18a1-18b1 21fe",
    0x26BA: "1909-191e 1921-1931 2200",
    0x27B6: "1938-1956 2202",
    0x27B8: "172f-174d 2201",
    0x2901: "21d7-21dd 21ea",
    0x2941: "20cb-20d2",
    0x2BB5: "2160-21a5 21ae-21c7 21f8-21f9",
    0x2BB9: "2233-2236 2243-2246 226c-226f",
    0x3182: "22cb-22d2",
}


def read(root: str, function: dict) -> dict | None:
    """Return the address of a vGPU and the version of its vGPU manager, if it is known. Return None for whole GPUs."""
    address = function["address"]
    capability = _capability(read_bytes(root, f"/sys/bus/pci/devices/{address}/config", _CONFIGURATION) or b"")
    if capability is None and not _has_type(function):
        return None
    return {"address": address, "manager_version": _manager_version(capability or b"")}


def _has_type(function: dict) -> bool:
    if function["subsystem_vendor_id"] != NVIDIA_VENDOR_ID or None in (
        function["device_id"],
        function["subsystem_device_id"],
    ):
        return False
    subsystem = int(function["subsystem_device_id"], 16)
    blocks = (block.partition("-") for block in _TYPES.get(int(function["device_id"], 16), "").split())
    return any(int(first, 16) <= subsystem <= int(last or first, 16) for first, _dash, last in blocks)


def _capability(configuration: bytes) -> bytes | None:
    """Return the vGPU's capability. Without root, the kernel shows only 64 bytes, which contain no capability."""
    if len(configuration) < _CONFIGURATION or not configuration[_STATUS] & _HAS_CAPABILITIES:
        return None
    position, seen = configuration[_FIRST_CAPABILITY], set()
    while position and position not in seen and position + _RECORDS <= _CONFIGURATION:
        seen.add(position)
        kind, following, length = configuration[position : position + 3]
        capability = configuration[position : position + length]
        if kind == _BROKEN:
            return None
        if kind == _VENDOR_SPECIFIC and capability[3:_RECORDS] == _SIGNATURE:
            return capability
        position = following
    return None


def _manager_version(capability: bytes) -> str | None:
    position = _RECORDS
    while position + 2 <= len(capability):
        kind, length = capability[position : position + 2]
        if kind == _MANAGER_VERSION:
            text = capability[position + 2 : position + 2 + _VERSION_LENGTH].split(b"\0")[0].decode("ascii", "replace")
            return text if re.fullmatch(r"\d{3}(\.\d+)+", text) else None
        if length < 2:
            return None
        position += length
    return None
