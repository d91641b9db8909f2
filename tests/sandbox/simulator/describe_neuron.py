# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe AWS Neuron's chips: PCI functions, and what the driver shows in sysfs and in /dev while it is loaded.

Paths and formats: aws-neuron-driver 2.24.7.0, and the sysfs guide of aws-neuron-sdk (81ce03a). The values are invented.
The chips have the numbers of the PCI order in reverse, because the driver numbers them by their routing IDs.
"""

from __future__ import annotations

KEYS = {"vendor", "model", "count", "links", "health"}
# The PCI device ID, the names that the driver shows, the number of cores, and whether there is a serial number.
MODELS = {
    "Inf1": {"device": 0x7064, "name": "Inferentia", "arch": "NDv1", "cores": 4, "serial": False},
    "Inf2": {"device": 0x7264, "name": "Inferentia2", "arch": "NDv3", "cores": 2, "serial": True},
    "Trn1": {"device": 0x7164, "name": "Trainium1", "arch": "NDv2", "cores": 2, "serial": True},
    "Trn2": {"device": 0x7364, "name": "Trainium2", "arch": "NDv3", "cores": 8, "serial": True},
    "Trn3": {"device": 0x7564, "name": "Trainium3", "arch": "NDv4", "cores": 8, "serial": True},
}
# The state of the first chip.
HEALTH = {
    "ok": {},
    "ecc_errors": {"stats/hardware/mem_ecc_uncorrected": "2\n"},
    "unhealthy": {"stats/hardware/health_status/unhealthy_components": "hbm,link_host\n"},
    "resetting": {"reset": "0\n"},
    "invalid": {"reset": "2\n"},
}
MODULE, DRIVER = "neuron", "neuron-driver"
_CLASS, _MAJOR, _FIRST_BUS = "/sys/class/neuron_device", 510, 0xA0
_MIB = 1 << 20


class NeuronError(ValueError):
    """The description of a chip is invalid."""


def describe(entries: list[dict]) -> tuple[list[dict], dict]:
    """Return the PCI functions, and the tree, which has everything in the part of the kernel module."""
    models = [entry["model"] for entry in entries for _number in range(_checked(entry).get("count", 1))]
    health = [entry.get("health", "ok") for entry in entries for _number in range(entry.get("count", 1))]
    links = [entry.get("links", "") for entry in entries for _number in range(entry.get("count", 1))]
    functions = [
        {
            "address": f"0000:{_FIRST_BUS + position:02x}:00.0",
            "ids": (0x1D0F, MODELS[model]["device"], 0x1D0F, 0x0000),
            "class": 0x088000,
            "numa_node": position * 2 // len(models),
        }
        for position, model in enumerate(models)
    ]
    files: dict[str, str] = {}
    for number, model in enumerate(models):
        is_first = entries and number == 0
        files.update(_chip(number, MODELS[model], model, links[number], HEALTH[health[0]] if is_first else {}))
    nodes = [
        {"path": f"/dev/neuron{number}", "major": _MAJOR, "minor": number, "mode": 0o666, "group": "root"}
        for number in range(len(models))
    ]
    part = {
        "driver": DRIVER,
        "functions": [one["address"] for one in functions],
        "tree": {"files": files, "nodes": nodes, "directories": []},
    }
    return functions, {"modules": {MODULE: part}}


def _checked(entry: dict) -> dict:
    unknown = sorted(set(entry) - KEYS)
    if unknown:
        raise NeuronError(f"unknown key {', '.join(unknown)}; known are {', '.join(sorted(KEYS))}")
    for key, known in (("model", MODELS), ("health", HEALTH)):
        if entry.get(key, "ok" if key == "health" else None) not in known:
            raise NeuronError(f"unknown {key} {entry.get(key)!r}; known are {', '.join(known)}")
    return entry


def _chip(number: int, model: dict, instance: str, links: str, changes: dict[str, str]) -> dict[str, str]:
    contents = {
        "core_count": str(model["cores"]),
        "connected_devices": f"{links}\n",
        "reset": "1\n",
        "info/architecture/device_name": f"{model['name']}\n",
        "info/architecture/instance_type": f"{instance}\n",
        "info/architecture/arch_type": f"{model['arch']}\n",
    }
    if model["serial"]:
        contents["info/serial_number"] = f"{0x00A1B2C3D4E5F600 + number:016x}\n"
        for name in ("sram_ecc_uncorrected", "mem_ecc_uncorrected", "mem_ecc_repairable_uncorrected"):
            contents[f"stats/hardware/{name}"] = "0\n"
        for name in ("sram_ecc_corrected", "mem_ecc_corrected"):
            contents[f"stats/hardware/{name}"] = "0\n"
    if instance in ("Trn2", "Trn3"):
        contents["stats/hardware/health_status/unhealthy_components"] = "\n"
    for core in range(model["cores"]):
        contents[f"neuron_core{core}/stats/memory_usage/device_mem/total"] = f"{64 * _MIB}\n"
        contents[f"neuron_core{core}/stats/status/hw_error/total"] = "0\n"
    contents.update(changes)
    return {f"{_CLASS}/neuron{number}/{name}": text for name, text in contents.items()}
