#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Convert the description of a host for the simulator. docs/simulator.md documents the format.

`describe.py HOST DESCRIPTION.yml OUTPUT_DIR` writes OUTPUT_DIR/host.json;
`describe.py --models` lists the models that a description can name.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import describe_amd
import describe_gaudi
import describe_neuron
import mig_layout

# One line for each vendor other than NVIDIA: the function that returns its PCI functions and its tree.
ACCELERATORS = {
    "amd": describe_amd.describe,
    "neuron": describe_neuron.describe,
    "gaudi": describe_gaudi.describe,
}

ARCHITECTURES = {"kepler": 2, "maxwell": 3, "pascal": 4, "volta": 5, "turing": 6, "ampere": 7, "ada": 8, "hopper": 9,
                 "blackwell": 10}  # fmt: skip
BRANDS = {"tesla": 2, "geforce": 5, "quadro_rtx": 12, "nvidia_rtx": 13, "nvidia": 14, "geforce_rtx": 15}
NVML_CODES = {
    "SUCCESS": 0, "UNINITIALIZED": 1, "INVALID_ARGUMENT": 2, "NOT_SUPPORTED": 3, "NO_PERMISSION": 4,
    "ALREADY_INITIALIZED": 5, "NOT_FOUND": 6, "INSUFFICIENT_SIZE": 7, "INSUFFICIENT_POWER": 8, "DRIVER_NOT_LOADED": 9,
    "TIMEOUT": 10, "IRQ_ISSUE": 11, "LIBRARY_NOT_FOUND": 12, "FUNCTION_NOT_FOUND": 13, "CORRUPTED_INFOROM": 14,
    "GPU_IS_LOST": 15, "RESET_REQUIRED": 16, "OPERATING_SYSTEM": 17, "LIB_RM_VERSION_MISMATCH": 18, "IN_USE": 19,
    "MEMORY": 20, "NO_DATA": 21, "VGPU_ECC_NOT_SUPPORTED": 22, "INSUFFICIENT_RESOURCES": 23,
    "FREQ_NOT_SUPPORTED": 24, "ARGUMENT_VERSION_MISMATCH": 25, "DEPRECATED": 26, "NOT_READY": 27,
    "GPU_NOT_FOUND": 28, "INVALID_STATE": 29, "RESET_TYPE_NOT_SUPPORTED": 30, "UNKNOWN": 999,
}  # fmt: skip
FABRIC_STATES = {"not_supported": 0, "not_started": 1, "in_progress": 2, "completed": 3}
PCIE_SPEEDS = {1: "2.5 GT/s PCIe", 2: "5.0 GT/s PCIe", 3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe",
               6: "64.0 GT/s PCIe"}  # fmt: skip
NVSWITCH_IDS = {"ampere": 0x1AF1, "hopper": 0x22A3}
# The PCI buses of the eight GPUs and of the NVSwitches on an HGX board.
GPU_BUSES = (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)
SWITCH_BUSES = (0xC3, 0xC4, 0xC5, 0xC6, 0xC7, 0xC8)
HOST_KEYS = {"gpus", "nvswitches", "fabric", "secure_boot", "nouveau", "nova_core", "cpus", "numa_nodes", "faults",
             "set", "driver", "check_nodes", "holders", "mok", "volume_roots", "pci", "accelerators"}  # fmt: skip
GPU_KEYS = {"model", "count", "uuid", "serial", "pci", "pci_domain", "minor", "numa_node", "mig", "health", "ecc",
            "persistence_mode", "set", "faults", "name", "memory_mib"}  # fmt: skip
FAULT_KEYS = {"call", "gpu", "mig", "return", "delay", "garbage"}
DRIVER_KEYS = {"version", "flavor", "loaded", "library", "cuda"}


class DescriptionError(ValueError):
    """A description is invalid. The message contains the value, its place and the valid values."""


def models() -> dict:
    """Return the catalog of GPU models."""
    return yaml.safe_load((HERE / "models.yml").read_text(encoding="utf-8"))


def render(description: dict, host: str) -> tuple[dict, str]:
    """Return the content of host.json, which the host reads at boot, and the state, which the libraries read."""
    description = description or {}
    _only(description, HOST_KEYS, f"host {host}")
    gpus = _gpus(description, host)
    numa_nodes = int(description.get("numa_nodes", 2 if len(gpus) > 1 else 1))
    cpus = int(description.get("cpus", 64 * numa_nodes))
    _place(gpus, numa_nodes)
    state = _system_state(description, len(gpus))
    for index, gpu in enumerate(gpus):
        state.update(_prefixed(f"gpu.{index}.", _gpu_state(gpu, index, gpus, description, cpus // numa_nodes)))
    _faults(state, description.get("faults"), len(gpus), f"host {host}")
    state.update(_settings(description.get("set"), f"host {host}"))
    text = "".join(f"{key}={_escape(value)}\n" for key, value in state.items())
    functions, tree = _accelerators(description.get("accelerators") or [], host)
    return {
        "host": host,
        "pci": sorted(
            [*_functions(gpus, description, numa_nodes), *functions],
            key=lambda function: _address(function["address"]),
        ),
        "accelerators": tree,
        "secure_boot": description.get("secure_boot"),
        "nouveau": bool(description.get("nouveau", False)),
        "nova_core": bool(description.get("nova_core", False)),
        "holders": [str(holder) for holder in description.get("holders") or []],
        "mok": [str(signer) for signer in description.get("mok") or []],
        "mig": {
            str(index): {"profiles": gpu["model"]["mig"], "slices": gpu["model"]["mig_max"]}
            for index, gpu in enumerate(gpus)
            if gpu["model"].get("mig")
        },
        "volume_roots": description.get("volume_roots") or ["/var/lib/gpufleet"],
        "state": text,
    }, text


def _only(given: dict, known: set, where: str) -> None:
    if not isinstance(given, dict):
        raise DescriptionError(f"{where}: expected a mapping, found {given!r}")
    unknown = sorted(str(key) for key in set(given) - known)
    if unknown:
        raise DescriptionError(f"{where}: unknown key {', '.join(unknown)}; known are {', '.join(sorted(known))}")


def _prefixed(prefix: str, values: dict) -> dict:
    return {prefix + key: value for key, value in values.items() if value is not None}


def _escape(value: object) -> str:
    if isinstance(value, bool):
        value = int(value)
    return re.sub(r"[%\x00-\x1f]", lambda match: f"%{ord(match[0]):02x}", str(value))


def _settings(values: dict | None, where: str) -> dict:
    if values is not None and not isinstance(values, dict):
        raise DescriptionError(f"{where}: `set` must be a mapping of state keys to values, found {values!r}")
    return {str(key): "-" if value is None else value for key, value in (values or {}).items()}


def _serial(host: str, index: int) -> int:
    return 1320000000000 + mig_layout.seeded(host, "serial", index).int % 10**9


def _gpus(description: dict, host: str) -> list[dict]:
    """Return a complete dictionary for each GPU, in PCI order."""
    catalogue = models()
    gpus: list[dict] = []
    for position, entry in enumerate(description.get("gpus") or []):
        where = f"host {host}, gpus[{position}]"
        _only(entry, GPU_KEYS, where)
        if entry.get("model") not in catalogue:
            raise DescriptionError(
                f"{where}: unknown model {entry.get('model')!r}; known are {', '.join(sorted(catalogue))}"
            )
        count = entry.get("count", 1)
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 64:
            raise DescriptionError(f"{where}: count must be a number from 1 to 64, found {count!r}")
        for each in ("uuid", "serial", "pci", "minor"):
            if count > 1 and not isinstance(entry.get(each, []), list):
                raise DescriptionError(f"{where}: {each} of {count} GPUs must be a list, found {entry[each]!r}")
        for number in range(count):
            gpus.append(_one_gpu(entry, number, len(gpus), host=host, model=catalogue[entry["model"]], where=where))
    if len(gpus) > 64:
        raise DescriptionError(f"host {host}: {len(gpus)} GPUs are described, at most 64 can be simulated")
    for key in ("uuid", "pci", "minor"):
        values = [gpu[key] for gpu in gpus]
        twice = sorted({str(value) for value in values if values.count(value) > 1})
        if twice:
            raise DescriptionError(f"host {host}: two GPUs have the same {key}: {', '.join(twice)}")
    return sorted(gpus, key=lambda gpu: _address(gpu["pci"]))


def _each(entry: dict, key: str, number: int, otherwise: object) -> object:
    value = entry.get(key, otherwise)
    if isinstance(value, list):
        return value[number] if number < len(value) else otherwise
    return value


def _one_gpu(entry: dict, number: int, index: int, *, host: str, model: dict, where: str) -> dict:
    bus = GPU_BUSES[index] if index < len(GPU_BUSES) else 0x11 + 2 * index
    domain = entry.get("pci_domain", 0)
    pci = str(_each(entry, "pci", number, f"{domain:04x}:{bus:02x}:00.0")).lower()
    if not re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", pci):
        raise DescriptionError(f"{where}: pci must look like 0000:3b:00.0, found {pci!r}")
    mig = entry.get("mig")
    if isinstance(mig, list) and mig and isinstance(mig[0], (list, dict, type(None))):
        mig = _each(entry, "mig", number, None)  # one layout per GPU
    return {
        "model_name": entry["model"],
        "model": model,
        "host": host,
        "where": where,
        "uuid": str(_each(entry, "uuid", number, f"GPU-{mig_layout.seeded(host, 'gpu', index)}")),
        "serial": str(_each(entry, "serial", number, _serial(host, index))),
        "pci": pci,
        "minor": int(_each(entry, "minor", number, index)),
        "numa_node": _each(entry, "numa_node", number, None),
        "mig": _mig(mig, model, f"{where} (GPU {number})", entry["model"]),
        "entry": entry,
    }


def _address(pci: str) -> tuple[int, ...]:
    return tuple(int(part, 16) for part in re.split(r"[:.]", pci))


def _place(gpus: list[dict], numa_nodes: int) -> None:
    for index, gpu in enumerate(gpus):
        if gpu["numa_node"] is None:
            gpu["numa_node"] = index * numa_nodes // max(len(gpus), 1) if numa_nodes > 1 else 0


# ---- MIG ---------------------------------------------------------------------------------------------------


def _mig(given: object, model: dict, where: str, model_name: str) -> dict:
    """Parse true, false, a list of profiles, or {mode, pending, devices}. Place the instances like the driver."""
    profiles = model.get("mig")
    if given is None or given is False:
        return {"mode": False, "pending": False, "devices": []}
    if not profiles:
        raise DescriptionError(f"{where}: {model_name} has no MIG")
    if given is True:
        given = {"mode": True}
    if isinstance(given, list):
        given = {"mode": True, "devices": given}
    _only(given, {"mode", "pending", "devices"}, f"{where}, mig")
    mode = bool(given.get("mode", True))
    devices = given.get("devices") or []
    if devices and not mode:
        raise DescriptionError(f"{where}: mig.devices are given, but mig.mode is off")
    try:
        placed = mig_layout.place(devices, profiles, model["mig_max"])
    except mig_layout.LayoutError as error:
        raise DescriptionError(f"{where}: {error}") from error
    return {
        "mode": mode,
        "pending": bool(given.get("pending", mode)),
        "devices": placed,
    }


# ---- the state ---------------------------------------------------------------------------------------------


def _system_state(description: dict, count: int) -> dict:
    driver = description.get("driver") or {}
    _only(driver, DRIVER_KEYS, "driver")
    state: dict = {"format": 1, "gpu.count": count}
    if not description.get("check_nodes", True):
        state["check_nodes"] = 0
    if driver.get("version") and driver.get("loaded", True):
        state["module.version"] = driver["version"]
        state["module.flavor"] = driver.get("flavor", "proprietary")
    if driver.get("library") or driver.get("version"):
        state["library.version"] = driver.get("library") or driver["version"]
    if driver.get("cuda"):
        state["cuda.version"] = driver["cuda"]
    return state


def _gpu_state(gpu: dict, index: int, gpus: list[dict], description: dict, cpus_a_node: int) -> dict:
    model, entry = gpu["model"], gpu["entry"]
    architecture = ARCHITECTURES[model["architecture"]]
    memory = entry.get("memory_mib", model["memory"])
    name = entry.get("name", model["name"])
    node = int(gpu["numa_node"])
    device, vendor, subsystem, pci_class = (model["pci"][at] for at in (0, 1, 2, 3))
    state = {
        "uuid": gpu["uuid"],
        "name": name,
        "minor": gpu["minor"],
        "brand": BRANDS[model.get("brand", "nvidia")],
        "architecture": architecture,
        "compute_capability": model["compute_capability"],
        "pci.bus_id": gpu["pci"],
        "pci.device_id": f"0x{device:04x}",
        "pci.subsystem_vendor": f"0x{vendor:04x}",
        "pci.subsystem_device": f"0x{subsystem:04x}",
        "pci.class": f"0x{pci_class:06x}",
        "board_id": 256 * _address(gpu["pci"])[1],
        "multi_gpu_board": 0,
        "vbios": f"{90 + architecture}.00.{device & 0xFF:02X}.00.{subsystem & 0xFF:02X}",
        "cores": model["cores"],
        "memory_bus_width": model["bus_width"],
        "bus_type": 2,
        "irq": 64 + index,
        "memory.total": memory << 20,
        "memory.reserved": model["memory_reserved"] << 20,
        "memory.used": 4 << 20,
        "bar1.total": model["bar1"] << 20,
        "bar1.used": 1 << 20,
        "display_mode": 0,
        "display_active": 0,
        "compute_mode": 0,
        "accounting_mode": 0,
        "virtualization_mode": 0,
        "pstate": 0 if model["inforom"] else 8,
        "throttle": 1,
        "throttle.supported": 0x1FF,
        "persistence_mode": int(bool(entry.get("persistence_mode", False))),
        "power.management": 1,
        "power.draw": model["power"]["idle"] * 1000 + 137 * index,
        "power.limit": model["power"]["default"] * 1000,
        "power.default": model["power"]["default"] * 1000,
        "power.min": model["power"]["min"] * 1000,
        "power.max": model["power"]["max"] * 1000,
        "temperature": 31 + index,
        "utilization.gpu": 0,
        "utilization.memory": 0,
        "utilization.encoder": 0,
        "utilization.decoder": 0,
        "utilization.jpeg": 0 if architecture >= 6 else None,
        "utilization.ofa": 0 if architecture >= 6 else None,
        "energy": 1000000 * (index + 1) if architecture >= 5 else None,
        "numa_node": node,
        "cpu_affinity": f"{node * cpus_a_node}-{(node + 1) * cpus_a_node - 1}",
        "pcie.generation.max": model["pcie"][0],
        "pcie.generation.now": model["pcie"][0],
        "pcie.width.max": model["pcie"][1],
        "pcie.width.now": model["pcie"][1],
        "pcie.replay": 0,
        "pcie.tx": 0,
        "pcie.rx": 0,
        "fans": model.get("fans", 0),
        "fan.speed": 0 if model.get("fans") else None,
        "fan.min": 30 if model.get("fans") else None,
        "fan.max": 100 if model.get("fans") else None,
        "gsp.enabled": int(architecture >= ARCHITECTURES["turing"]),
        "gsp.default": int(architecture >= ARCHITECTURES["turing"]),
        "addressing_mode": (2 if model.get("coherent") else 0) if architecture >= ARCHITECTURES["turing"] else None,
        "recovery_action": 0,
        "reset.required": 0,
        "reset.drain": 0,
        "pcie.atomics.outbound": 0,
        "pcie.atomics.inbound": 0,
        "serial": gpu["serial"] if model["inforom"] else None,
        "module_id": index + 1 if "SXM" in gpu["model_name"] or model["architecture"] == "blackwell" else None,
        "board_part_number": model.get("board_part_number"),
        "inforom.image": "G500.0212.00.02" if model["inforom"] else None,
        "inforom.oem": "2.1" if model["inforom"] else None,
        "inforom.ecc": {"rows": "7.16", "pages": "5.0"}.get(model["errors"]),
    }
    state.update(_clock_state(model))
    state.update(_heat_state(model, index))
    state.update(_error_state(model, bool(entry.get("ecc", True))))
    state.update(_link_state(gpu, index, gpus, description))
    if model.get("mig"):
        state.update({
            "mig.current": int(gpu["mig"]["mode"]),
            "mig.pending": int(gpu["mig"]["pending"]),
            "mig.max": model["mig_max"],
            "mig.resetless": int(bool(model.get("mig_resetless"))),
        })  # fmt: skip
        state.update(mig_layout.device_state(gpu["uuid"], name, gpu["minor"], gpu["mig"]["devices"]))
    if model.get("coherent"):
        state.update({"c2c.enabled": 1, "c2c.links": 2, "c2c.status": 1, "c2c.bandwidth": 44712})
    state.update(_health_state(entry.get("health"), gpu["where"]))
    _faults(state, entry.get("faults"), None, gpu["where"])
    state.update(_settings(entry.get("set"), gpu["where"]))
    return state


def _clock_state(model: dict) -> dict:
    clocks = model["clocks"]
    state = {
        "clock.now.graphics": clocks["idle"],
        "clock.now.sm": clocks["idle"],
        "clock.now.memory": clocks["memory"],
        "clock.now.video": clocks["video"] // 2,
        "clock.max.graphics": clocks["graphics"],
        "clock.max.sm": clocks["graphics"],
        "clock.max.memory": clocks["memory"],
        "clock.max.video": clocks["video"],
        "clock.supported.memory": clocks["memory"],
        "clock.supported.graphics": ",".join(
            str(clock) for clock in range(clocks["graphics"], clocks["idle"] - 1, -15)[:8]
        ),
    }
    if "application" in clocks:
        memory, graphics = clocks["application"]
        for kind in ("application", "default"):
            state.update({f"clock.{kind}.memory": memory, f"clock.{kind}.graphics": graphics,
                          f"clock.{kind}.sm": graphics})  # fmt: skip
    return state


def _heat_state(model: dict, index: int) -> dict:
    names = ("shutdown", "slowdown", "memory_max", "gpu_max")
    state: dict = {}
    if "thresholds" in model:
        state.update({f"threshold.{name}": value for name, value in zip(names, model["thresholds"])})
    if "tlimit" in model:
        state.update({f"tlimit.{name}": value for name, value in zip(names, model["tlimit"])})
        state["temperature.margin"] = 87 - 31 - index
    if model["bus_width"] >= 3072:  # memory on the package (HBM) reports its own temperature
        state["temperature.memory"] = 38 + index
    return state


def _error_state(model: dict, ecc: bool) -> dict:
    if model["errors"] == "none":
        return {}
    state: dict = {"ecc.current": int(ecc), "ecc.pending": int(ecc), "ecc.default": 1}
    if model["errors"] == "rows":
        state.update({"remapped.correctable": 0, "remapped.uncorrectable": 0, "remapped.pending": 0,
                      "remapped.failed": 0, "remapped.histogram": "640,0,0,0,0"})  # fmt: skip
    else:
        state.update({"retired.sbe": ",", "retired.dbe": ",", "retired.pending": 0})
    return state


def _health_state(health: str | None, where: str) -> dict:
    """Return the state keys of a health condition."""
    known = {
        None: {},
        "ok": {},
        "lost": {"return.*": NVML_CODES["GPU_IS_LOST"]},
        "reset_required": {"return.*": NVML_CODES["RESET_REQUIRED"]},
        "hot": {"temperature": 94, "throttle": 0x48},
        "remap_pending": {"remapped.uncorrectable": 1, "remapped.pending": 1, "recovery_action": 1},
        "remap_failed": {"remapped.uncorrectable": 1, "remapped.failed": 1},
        "ecc_errors": {"ecc.volatile.uncorrected": 3, "ecc.aggregate.uncorrected": 5},
        "retirement_pending": {"retired.dbe": "0x1a2b3c000", "retired.pending": 1},
        "link_down": {"nvlink.0.state": 0},
        "narrow": {"pcie.width.now": 8, "pcie.generation.now": 1},
        "fabric_stuck": {"fabric.state": FABRIC_STATES["in_progress"]},
    }
    if health not in known:
        names = ", ".join(sorted(name for name in known if name))
        raise DescriptionError(f"{where}: unknown health {health!r}; known are {names}")
    return known[health]


def _link_state(gpu: dict, index: int, gpus: list[dict], description: dict) -> dict:
    """Return the connections of a GPU to the other GPUs: PCIe, and NVLink if the model has it."""
    state: dict = {}
    for other_index, other in enumerate(gpus):
        if other_index != index:
            near = other["numa_node"] == gpu["numa_node"]
            state[f"topology.{other_index}"] = (20 if index // 2 == other_index // 2 else 40) if near else 50
    nvlink = gpu["model"].get("nvlink")
    partners = [other for other in gpus if other is not gpu and other["model"].get("nvlink") == nvlink]
    if not nvlink or not partners:
        return state
    state.update({"nvlink.count": nvlink["links"], "nvlink.version": nvlink["version"], "nvlink.state": 1,
                  "nvlink.speed": nvlink["speed"]})  # fmt: skip
    switches = _switches(description, gpus)
    for link in range(nvlink["links"]):
        if nvlink["to"] == "switch":
            state[f"nvlink.{link}.remote"] = switches[link % len(switches)]["address"] if switches else "0000:00:00.0"
        else:
            state[f"nvlink.{link}.remote"] = partners[link % len(partners)]["pci"]
    state["nvlink.remote_type"] = 2 if nvlink["to"] == "switch" else 0
    if nvlink["to"] == "switch" and ARCHITECTURES[gpu["model"]["architecture"]] >= ARCHITECTURES["hopper"]:
        fabric = description.get("fabric", "completed")
        if fabric not in FABRIC_STATES:
            raise DescriptionError(f"unknown fabric state {fabric!r}; known are {', '.join(FABRIC_STATES)}")
        state.update({"fabric.state": FABRIC_STATES[fabric], "fabric.status": 0, "fabric.clique": 0,
                      "fabric.cluster": str(uuid.UUID(int=0)), "fabric.health_mask": 2})  # fmt: skip
    return state


def _faults(state: dict, faults: list | None, gpu_count: int | None, where: str) -> None:
    """Add faults to the state. With `gpu_count`, a fault can name its GPU. Otherwise, the faults belong to one GPU."""
    if faults is not None and not isinstance(faults, list):
        raise DescriptionError(f"{where}: `faults` must be a list, found {faults!r}")
    for position, fault in enumerate(faults or []):
        here = f"{where}, faults[{position}]"
        _only(fault, FAULT_KEYS, here)
        call = str(fault.get("call", "*"))
        if call != "*" and not call.startswith("nvml"):
            raise DescriptionError(f"{here}: call must be an NVML function's name or *, found {call!r}")
        kinds = [kind for kind in ("return", "delay", "garbage") if kind in fault]
        if not kinds:
            raise DescriptionError(f"{here}: say what the call does: return, delay or garbage")
        prefix = ""
        if gpu_count is not None and fault.get("gpu") is not None:
            if fault["gpu"] != "*" and not 0 <= int(fault["gpu"]) < gpu_count:
                raise DescriptionError(f"{here}: there is no GPU {fault['gpu']}, the host has {gpu_count}")
            prefix = f"gpu.{fault['gpu']}."
        if fault.get("mig") is not None:
            prefix += f"mig.{int(fault['mig'])}."
        for kind in kinds:
            value = fault[kind]
            if kind == "return" and not isinstance(value, int):
                if str(value) not in NVML_CODES:
                    raise DescriptionError(
                        f"{here}: unknown return code {value!r}; known are {', '.join(NVML_CODES)} or a number"
                    )
                value = NVML_CODES[value]
            state[f"{prefix}{kind}.{call}"] = value


# ---- the bus -----------------------------------------------------------------------------------------------


def _switches(description: dict, gpus: list[dict]) -> list[dict]:
    count = description.get("nvswitches", 0)
    if not isinstance(count, int) or not 0 <= count <= len(SWITCH_BUSES):
        raise DescriptionError(f"nvswitches must be a number from 0 to {len(SWITCH_BUSES)}, found {count!r}")
    architecture = gpus[0]["model"]["architecture"] if gpus else "hopper"
    device = NVSWITCH_IDS.get(architecture, NVSWITCH_IDS["hopper"])
    return [
        _function(f"0000:{bus:02x}:00.0", (0x10DE, device, 0x10DE, 0x147F), 0x068000, 0) for bus in SWITCH_BUSES[:count]
    ]


def _function(address: str, ids: tuple, pci_class: int, node: int, link: list | None = None) -> dict:
    """Return a PCI function with its files in sysfs."""
    vendor, device, subsystem_vendor, subsystem_device = ids
    base, sub, interface = pci_class >> 16, pci_class >> 8 & 0xFF, pci_class & 0xFF
    files = {
        "vendor": f"0x{vendor:04x}",
        "device": f"0x{device:04x}",
        "subsystem_vendor": f"0x{subsystem_vendor:04x}",
        "subsystem_device": f"0x{subsystem_device:04x}",
        "class": f"0x{pci_class:06x}",
        "revision": "0xa1",
        "numa_node": str(node),
        "enable": "1",
        "irq": "16",
        "modalias": f"pci:v{vendor:08X}d{device:08X}sv{subsystem_vendor:08X}sd{subsystem_device:08X}"
        f"bc{base:02X}sc{sub:02X}i{interface:02X}",
    }
    if link:
        generation, width = link
        for when in ("current", "max"):
            files[f"{when}_link_speed"] = PCIE_SPEEDS[generation]
            files[f"{when}_link_width"] = str(width)
    return {"address": address, "files": files}


def _accelerators(entries: list[dict], host: str) -> tuple[list[dict], dict]:
    """Return the PCI functions and the tree of the accelerators of vendors other than NVIDIA."""
    functions, tree = [], {}
    for vendor in dict.fromkeys(entry.get("vendor") for entry in entries):
        if vendor not in ACCELERATORS:
            known = ", ".join(ACCELERATORS)
            raise DescriptionError(f"host {host}, accelerators: unknown vendor {vendor!r}; known are {known}")
        own = [entry for entry in entries if entry.get("vendor") == vendor]
        try:
            found, part = ACCELERATORS[vendor](own)
        except ValueError as error:
            raise DescriptionError(f"host {host}, accelerators: {error}") from error
        for one in found:
            function = _function(one["address"], one["ids"], one["class"], one["numa_node"])
            functions.append({**function, "driver": one["driver"]} if one.get("driver") else function)
        tree = {
            "files": {**tree.get("files", {}), **part.get("files", {})},
            "directories": [*tree.get("directories", []), *part.get("directories", [])],
            "nodes": [*tree.get("nodes", []), *part.get("nodes", [])],
            # What a kernel module shows while it is loaded.
            "modules": {**tree.get("modules", {}), **part.get("modules", {})},
        }
    return functions, tree


def _functions(gpus: list[dict], description: dict, numa_nodes: int) -> list[dict]:
    functions = [
        _function("0000:00:00.0", (0x8086, 0x1237, 0x1AF4, 0x1100), 0x060000, 0),
        _function("0000:00:03.0", (0x1AF4, 0x1041, 0x1AF4, 0x1100), 0x020000, 0),
    ]
    for gpu in gpus:
        device, vendor, subsystem, pci_class = gpu["model"]["pci"]
        node = gpu["numa_node"] if numa_nodes > 1 else gpu["entry"].get("numa_node", -1)
        link = gpu["model"]["pcie"]
        functions.append(_function(gpu["pci"], (0x10DE, device, vendor, subsystem), pci_class, node, link))
        if pci_class == 0x030000:  # a board with display outputs also has an audio function
            sound = (0x10DE, 0x22BA, vendor, subsystem)
            functions.append(_function(gpu["pci"][:-1] + "1", sound, 0x040300, node, link))
    functions += _switches(description, gpus)
    for position, extra in enumerate(description.get("pci") or []):
        where = f"pci[{position}]"
        _only(extra, {"address", "vendor", "device", "class", "subsystem_vendor", "subsystem_device", "driver"}, where)
        missing = [key for key in ("address", "vendor", "device", "class") if key not in extra]
        if missing:
            raise DescriptionError(f"{where}: {', '.join(missing)} missing")
        subsystem = (extra.get("subsystem_vendor", extra["vendor"]), extra.get("subsystem_device", 0))
        function = _function(extra["address"], (extra["vendor"], extra["device"], *subsystem), extra["class"], -1)
        if extra.get("driver"):
            function["driver"] = extra["driver"]
        functions.append(function)
    return sorted(functions, key=lambda function: _address(function["address"]))


def main(arguments: list[str]) -> int:
    if arguments == ["--models"]:
        print("\n".join(sorted(models())))
        return 0
    if len(arguments) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    host, source, target = arguments
    try:
        description = yaml.safe_load(Path(source).read_text(encoding="utf-8"))
        rendered, _state = render(description, host)
    except (OSError, yaml.YAMLError, DescriptionError) as error:
        print(f"describe.py: {source}: {error}", file=sys.stderr)
        return 1
    Path(target).mkdir(parents=True, exist_ok=True)
    (Path(target) / "host.json").write_text(json.dumps(rendered, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
