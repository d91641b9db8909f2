# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe Gaudi accelerators: PCI functions, and what the driver shows in sysfs and in /dev while it is loaded.

Paths and formats: HabanaAI/drivers.accel.habanalabs.kernel (sysfs.c, habanalabs_drv.c). The values are invented. The
indexes are in another order than the module IDs.
"""

from __future__ import annotations

KEYS = {"vendor", "model", "count", "status", "status_of"}
# The PCI device ID, the type and the card's name that the driver shows, and whether it is a module of a board.
MODELS = {
    "Gaudi": {"device": 0x1000, "type": "GAUDI", "card": "HL-205", "module": True},
    "Gaudi2": {"device": 0x1020, "type": "GAUDI2", "card": "HL-225H", "module": True},
    "Gaudi3": {"device": 0x1060, "type": "GAUDI3", "card": "HL-325L", "module": True},
    "HL-338": {"device": 0x1063, "type": "GAUDI3", "card": "HL-338", "module": False},
}
STATUSES = ("Operational", "Disabled", "Needs reset", "In reset")
MODULE, DRIVER = "habanalabs", "habanalabs"
_FIRST_BUS, _SHIFT = 0x19, 3
_ACCEL_MAJOR, _UVERBS_MAJOR, _FIRST_CONTROL, _FIRST_UVERBS = 261, 231, 64, 192


class GaudiError(ValueError):
    """The description of an accelerator is invalid."""


def describe(entries: list[dict]) -> tuple[list[dict], dict]:
    """Return the PCI functions, and the tree, which has everything in the part of the kernel module."""
    found = [(_checked(entry), number) for entry in entries for number in range(entry.get("count", 1))]
    functions = [
        {
            "address": f"0000:{_FIRST_BUS + position:02x}:00.0",
            "ids": (0x1DA3, MODELS[entry["model"]]["device"], 0x1DA3, 0x0000),
            "class": 0x120000,
            "numa_node": position * 2 // len(found),
        }
        for position, (entry, _number) in enumerate(found)
    ]
    tree: dict = {"files": {}, "directories": [], "nodes": []}
    for position, (entry, number) in enumerate(found):
        _accelerator(tree, entry, number, (position + _SHIFT) % len(found), functions[position]["address"])
    part = {"driver": DRIVER, "functions": [one["address"] for one in functions], "tree": tree}
    return functions, {"modules": {MODULE: part}}


def _checked(entry: dict) -> dict:
    unknown = sorted(set(entry) - KEYS)
    if unknown:
        raise GaudiError(f"unknown key {', '.join(unknown)}; known are {', '.join(sorted(KEYS))}")
    for key, known, default in (("model", MODELS, None), ("status", STATUSES, STATUSES[0])):
        if entry.get(key, default) not in known:
            raise GaudiError(f"unknown {key} {entry.get(key)!r}; known are {', '.join(known)}")
    return entry


def _accelerator(tree: dict, entry: dict, number: int, index: int, address: str) -> None:
    """Add one accelerator. `number`: its module ID. The status is that of module `status_of`, by default the first."""
    model = MODELS[entry["model"]]
    is_special = number == entry.get("status_of", 0)
    texts = {
        "pci_addr": address,
        "status": entry.get("status", STATUSES[0]) if is_special else STATUSES[0],
        "device_type": model["type"],
        "module_id": str(number) if model["module"] else "0",
        "hard_reset_cnt": "0",
        "fw_os_ver": f"hl-{model['type'].lower()}-1.23.0-fw-62.0.0",
        "cpld_ver": "0x00000010",
    }
    # sysfs has one directory under both names. Only that of the class is simulated.
    for name, text in texts.items():
        tree["files"][f"/sys/class/accel/accel{index}/device/{name}"] = f"{text}\n"
    base = f"/sys/bus/pci/devices/{address}"
    tree["files"][f"{base}/hwmon/hwmon{index}/name"] = f"{model['card']}\n"
    nodes = [(f"/dev/accel/accel{index}", _ACCEL_MAJOR, index)]
    nodes.append((f"/dev/accel/accel_controlD{index}", _ACCEL_MAJOR, _FIRST_CONTROL + index))
    if model["module"]:
        tree["directories"].append(f"{base}/infiniband_verbs/uverbs{index}")
        nodes.append((f"/dev/infiniband/uverbs{index}", _UVERBS_MAJOR, _FIRST_UVERBS + index))
    tree["nodes"] += [
        {"path": path, "major": major, "minor": minor, "mode": 0o660, "group": "render"} for path, major, minor in nodes
    ]
