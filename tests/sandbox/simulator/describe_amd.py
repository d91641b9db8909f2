# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe AMD GPUs as the kernel shows them: PCI functions, the topology of KFD, and device nodes.

Paths and formats are those of the kernel (drivers/gpu/drm/amd), and of the test data of AMD's device plugin for
partitions (ROCm/k8s-device-plugin, testdata/topo-mi300-cpx, ed76468). The values are invented.
"""

from __future__ import annotations

KEYS = {"vendor", "model", "count", "mode", "address", "numa_node", "unique_id", "fru", "health", "hive", "state"}
# The numbers of a device ID, PCI class, KFD target, number of dies, memory in MiB, and whether KFD has a node for it.
MODELS = {
    "MI300X": {"device": 0x74A1, "class": 0x120000, "target": 90402, "dies": 8, "memory": 196592, "name": "MI300X OAM"},
    "MI210": {"device": 0x740F, "class": 0x038000, "target": 90010, "dies": 1, "memory": 65520, "name": "MI210"},
    "RX-7900": {"device": 0x744C, "class": 0x030000, "target": 110000, "dies": 1, "memory": 24560, "name": ""},
    "APU": {"device": 0x164E, "class": 0x030000, "target": 100306, "dies": 1, "memory": 512, "name": ""},
    "V520": {"device": 0x7362, "class": 0x030000, "target": 100101, "dies": 1, "memory": 8176, "name": ""},
}
MODES = {"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8}
HEALTH = ("ok", "lost", "ecc_errors")
_BUSES = (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5)
_KFD = "/sys/class/kfd/kfd/topology/nodes"
_FIRST_MINOR, _DRM_MAJOR, _KFD_MAJOR = 128, 226, 511
_MIB = 1 << 20


class AmdError(ValueError):
    """The description of an AMD GPU is invalid."""


def describe(entries: list[dict], cpus: int = 2) -> tuple[list[dict], dict]:
    """Return the PCI functions, each with `address`, `ids`, `class`, `numa_node` and `driver`, and the tree."""
    functions: list[dict] = []
    files: dict[str, str] = {"/sys/module/amdgpu/srcversion": "0123456789ABCDEF\n"}
    tree = {"files": files, "directories": [], "nodes": [_node("/dev/kfd", _KFD_MAJOR, 0, "render")]}
    for cpu in range(cpus):
        files[f"{_KFD}/{cpu}/properties"] = "cpu_cores_count 96\nsimd_count 0\ndrm_render_minor 0\nlocation_id 0\n"
        files[f"{_KFD}/{cpu}/gpu_id"] = "0\n"
    state = {"kfd": cpus, "minor": _FIRST_MINOR, "partition": 0, "gpu": 0}
    for entry in entries:
        _check(entry)
        for _number in range(entry.get("count", 1)):
            position = len(functions)
            address = entry.get("address") or f"0000:{_BUSES[position]:02x}:00.0"
            functions.append(_function(entry, address, position))
            _gpu(entry, address, tree, state)
    return functions, tree


def _check(entry: dict) -> None:
    unknown = sorted(set(entry) - KEYS)
    if unknown:
        raise AmdError(f"unknown key {', '.join(unknown)}; known are {', '.join(sorted(KEYS))}")
    for key, known in (("model", MODELS), ("mode", MODES), ("health", HEALTH)):
        if key in entry and entry[key] not in known:
            raise AmdError(f"unknown {key} {entry[key]!r}; known are {', '.join(known)}")
    if entry.get("mode", "SPX") != "SPX" and MODELS[entry["model"]]["dies"] % MODES[entry["mode"]]:
        raise AmdError(f"{entry['model']} has no mode {entry['mode']}")


def _function(entry: dict, address: str, position: int) -> dict:
    model = MODELS[entry["model"]]
    return {
        "address": address,
        "ids": (0x1002, model["device"], 0x1002, 0x0C00),
        "class": model["class"],
        "numa_node": entry.get("numa_node", 0 if position < 4 else 1),
        "driver": "amdgpu",
    }


def _gpu(entry: dict, address: str, tree: dict, state: dict) -> None:
    position, state["gpu"] = state["gpu"], state["gpu"] + 1
    model, files = MODELS[entry["model"]], tree["files"]
    base = f"/sys/bus/pci/devices/{address}"
    parts = MODES[entry.get("mode", "SPX")]
    unique_id = entry.get("unique_id", f"{0xE3A9C0FFEE120000 + position:016x}") if model["target"] < 100000 else None
    attributes = {
        "mem_info_vram_total": str(model["memory"] * _MIB),
        "mem_info_vram_used": str(300 * _MIB),
        "gpu_busy_percent": "0",
        "vbios_version": "113-M3000100-102",
        "hwmon/hwmon4/name": "amdgpu",
        "hwmon/hwmon4/temp2_label": "junction",
        "hwmon/hwmon4/temp2_input": "41000",
        "hwmon/hwmon4/power1_average": "142000000",
    }
    if unique_id:
        attributes["unique_id"] = unique_id
    if model["name"] and entry.get("fru", True):
        attributes["product_name"] = f"AMD Instinct {model['name']}"
    if model["dies"] > 1:
        attributes["current_compute_partition"] = entry.get("mode", "SPX")
        attributes["current_memory_partition"] = "NPS1"
    if entry["model"] == "APU":
        attributes["hwmon/hwmon4/in1_label"] = "vddnb"
    if model["target"] < 100000:
        count = 2 if entry.get("health") == "ecc_errors" else 0
        attributes["ras/umc_err_count"] = f"ue: {count}\nce: 3"
        attributes["ras/gfx_err_count"] = "ue: 0\nce: 0"
    files.update({f"{base}/{name}": f"{text}\n" for name, text in attributes.items()})
    if entry.get("health") == "lost":
        files[f"{base}/config"] = "\xff" * 64
    bus, slot = (int(part, 16) for part in address[5:10].split(":"))
    for part in range(parts):
        minor = state["minor"]
        directory = base if not part else f"/sys/devices/platform/amdgpu_xcp_{state['partition']}"
        state["partition"] += bool(part)
        state["minor"] += 1
        card = minor - _FIRST_MINOR + 1
        for name, node, group in ((f"renderD{minor}", minor, "render"), (f"card{card}", card, "video")):
            tree["directories"].append(f"{directory}/drm/{name}")
            tree["nodes"].append(_node(f"/dev/dri/{name}", _DRM_MAJOR, node, group))
        values = {
            "cpu_cores_count": 0,
            "simd_count": 1216 // parts if model["dies"] > 1 else 416,
            "num_xcc": model["dies"] // parts,
            "gfx_target_version": model["target"],
            "vendor_id": 0x1002,
            "device_id": model["device"],
            "domain": int(address[:4], 16),
            "location_id": bus << 8 | slot << 3 | part,
            "drm_render_minor": minor,
            "hive_id": entry.get("hive", 0),
            "unique_id": int(unique_id or "0", 16),
        }
        place = f"{_KFD}/{state['kfd']}"
        files[f"{place}/properties"] = "".join(f"{name} {value}\n" for name, value in values.items())
        files[f"{place}/gpu_id"] = f"{1000 + state['kfd']}\n"
        files[f"{place}/mem_banks/0/properties"] = f"heap_type 1\nsize_in_bytes {model['memory'] // parts * _MIB}\n"
        tree["directories"].append(f"{place}/io_links")
        state["kfd"] += 1


def _node(path: str, major: int, minor: int, group: str) -> dict:
    return {"path": path, "major": major, "minor": minor, "mode": 0o660, "group": group}
