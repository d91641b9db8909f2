# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's GPUs and MIG devices in the neutral schema, converted from the facts of `nvidia_gpu_facts`.

NVML is not read a second time. The GPU of MIG devices stays a device, because power is measured only there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema, sysfs_refusals
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import (
    excluded_gpus,
    nvidia_device_nodes,
    nvidia_generations,
    pci_functions,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import NVIDIA

# The subsets of nvidia_gpu_facts that the schema has keys for.
SUBSETS = ("min", "identity", "ecc", "power", "temperature", "utilization", "nvlink", "fabric", "mig")
MIG = "mig"
NOTHING_ON_PCI = "The PCI bus has no NVIDIA GPU."
_ONLY_WHOLE = "only the whole GPU has this value, not its MIG devices"
_FIRMWARE = {
    "vbios": "vbios_version",
    "gsp": "gsp_firmware_version",
    "inforom": "inforom_image_version",
}
# The architectures that NVML returns, by the generation of the PCI device ID. The others have no single architecture.
_ARCHITECTURES = {
    **{
        one.name: one.name.lower()
        for one in (nvidia_generations.MAXWELL, nvidia_generations.PASCAL, nvidia_generations.VOLTA)
    },
    **{one.name: one.name.lower() for one in (nvidia_generations.TURING, nvidia_generations.AMPERE)},
    nvidia_generations.ADA.name: "ada",
    **dict.fromkeys((nvidia_generations.HOPPER.name, nvidia_generations.GRACE_HOPPER.name), "hopper"),
    **dict.fromkeys((nvidia_generations.BLACKWELL.name, nvidia_generations.BLACKWELL_ULTRA.name), "blackwell"),
}
_WITHOUT_DRIVER = (schema.NO_DRIVER, schema.DRIVER_NOT_LOADED)


def convert(
    facts: Mapping[str, Any], tree: sysfs_refusals.SysfsTree
) -> tuple[list[schema.AcceleratorDevice], schema.AcceleratorVendor]:
    """Return NVIDIA's devices and the state of the vendor. `facts`: from facts/gather.py."""
    version = facts["nvidia_driver"]["version"]
    capabilities = nvidia_device_nodes.mig_minors(tree.root)
    devices: list[schema.AcceleratorDevice] = []
    for gpu in facts["nvidia_gpus"]:
        device = _gpu(gpu, version, tree)
        devices.append(device)
        devices += [_mig_device(slot, gpu, device, capabilities, tree) for slot in gpu["mig"]["devices"]]
    _name_peers(devices)
    others, skipped = _only_on_pci(facts, tree)
    devices += others
    state = schema.vendor_state(facts["nvidia_gpu_state"], facts["nvidia_gpu_state_reason"], devices, version, skipped)
    return devices, state


def _gpu(gpu: Mapping[str, Any], version: str | None, tree: sysfs_refusals.SysfsTree) -> schema.AcceleratorDevice:
    stable_id = gpu["uuid"] or gpu["pci_bus_id"]
    firmware = {name: gpu[key] for name, key in _FIRMWARE.items() if gpu.get(key)}
    return schema.device(
        NVIDIA,
        kind="gpu",
        generation=gpu["architecture"],
        model=gpu["name"],
        pci_address=gpu["pci_bus_id"],
        pci_id=schema.pci_id(pci_functions.NVIDIA_VENDOR_ID, gpu.get("pci_device_id")),
        index=gpu["index"],
        stable_id=stable_id,
        stable_id_kind=None if stable_id is None else schema.UUID if gpu["uuid"] else schema.PCI_ADDRESS,
        numa_node=gpu.get("numa_node"),
        nodes=_gpu_nodes(gpu, tree),
        memory_total_mib=gpu["memory_total_mib"],
        memory_used_mib=gpu.get("memory_used_mib"),
        temperature_c=gpu.get("temperature", {}).get("gpu_c"),
        power_w=gpu.get("power", {}).get("draw_w"),
        utilization_percent=gpu.get("utilization", {}).get("gpu_percent"),
        errors=_errors(gpu),
        links=_links(gpu),
        partition=schema.partition(MIG if gpu["mig"]["enabled"] else None),
        driver_version=version,
        firmware=firmware or None,
        health={"state": gpu["health"]["state"], "reasons": list(gpu["health"]["reasons"])},
    )


def _mig_device(
    slot: Mapping[str, Any],
    gpu: Mapping[str, Any],
    parent: schema.AcceleratorDevice,
    capabilities: Mapping[str, int],
    tree: sysfs_refusals.SysfsTree,
) -> schema.AcceleratorDevice:
    """Return a MIG device. The sensors, errors and health that it shares with its GPU are those of the GPU."""
    keys = nvidia_device_nodes.mig_keys(gpu["minor"], slot["gi"], slot["ci"])
    paths = [nvidia_device_nodes.capability_node(capabilities[key]) for key in keys if key in capabilities]
    return schema.device(
        NVIDIA,
        **{
            key: parent[key]
            for key in ("kind", "generation", "model", "pci_address", "pci_id", "numa_node", "temperature_c", "errors")
        },
        **{key: parent[key] for key in ("driver_version", "firmware", "health")},
        stable_id=slot["uuid"],
        stable_id_kind=schema.UUID if slot["uuid"] else None,
        nodes=(parent["nodes"] or []) + [_node(tree, path, "device") for path in paths] or None,
        memory_total_mib=slot["memory_total_mib"],
        memory_used_mib=slot.get("memory_used_mib"),
        partition=schema.partition(slot["profile"] or MIG, slot["index"], parent["stable_id"]),
        unread=dict.fromkeys(("power_w", "utilization_percent"), _ONLY_WHOLE),
    )


def _gpu_nodes(gpu: Mapping[str, Any], tree: sysfs_refusals.SysfsTree) -> list[schema.AcceleratorNode] | None:
    found = [_node(tree, path, "control") for path in nvidia_device_nodes.CONTROL_NODES if tree.gid(path) is not None]
    if gpu["minor"] is not None:
        found.append(_node(tree, nvidia_device_nodes.gpu_node(gpu["minor"]), "device"))
    drm = nvidia_device_nodes.drm_nodes(gpu["pci_bus_id"], tree.root)
    found += [_node(tree, path, "render" if path.startswith("/dev/dri/renderD") else "card") for path in drm]
    return found or None


def _node(tree: sysfs_refusals.SysfsTree, path: str, role: str) -> schema.AcceleratorNode:
    return {"path": path, "role": role, "gid": tree.gid(path)}


def _errors(gpu: Mapping[str, Any]) -> schema.AcceleratorErrors:
    counts = gpu.get("ecc", {}).get("volatile", {})
    flags = [gpu.get(name, {}).get("pending") for name in ("remapped_rows", "retired_pages")]
    known = [flag for flag in flags if flag is not None]
    return schema.errors(counts.get("corrected"), counts.get("uncorrected"), any(known) if known else None)


def _links(gpu: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fabric and, for now, the PCI addresses of the peers."""
    if "nvlink" not in gpu:
        return None
    fabric = gpu.get("fabric", {})
    name = None
    if fabric.get("cluster_uuid") is not None and fabric.get("clique_id") is not None:
        name = f"{fabric['cluster_uuid']}/{fabric['clique_id']}"
    links = gpu["nvlink"]["links"]
    peers = {link["remote_pci_bus_id"] for link in links if link["active"] and link["remote_type"] == "gpu"}
    return {"fabric": name, "peers": sorted(filter(None, peers))}


def _name_peers(devices: Sequence[schema.AcceleratorDevice]) -> None:
    """Replace the PCI addresses of peers by stable IDs. A peer in another virtual machine has none here."""
    names = {one["pci_address"]: one["stable_id"] for one in devices if one["partition"]["id"] is None}
    for one in devices:
        if one["links"] is not None:
            one["links"]["peers"] = sorted(filter(None, (names.get(address) for address in one["links"]["peers"])))


def _only_on_pci(
    facts: Mapping[str, Any], tree: sysfs_refusals.SysfsTree
) -> tuple[list[schema.AcceleratorDevice], list[dict[str, str]]]:
    """Return the GPUs that NVML does not show, and those that are not counted."""
    known = {gpu["pci_bus_id"] for gpu in facts["nvidia_gpus"]}
    functions = [one for one in facts["nvidia_pci_devices"] if one["kind"] == "gpu" and one["address"] not in known]
    state, devices, skipped = facts["nvidia_gpu_state"], [], pci_functions.of_guests(functions)
    # The files of a driver that hangs are not read. Without its address, a GPU of NVML could be any of the functions.
    if None in known:
        return devices, skipped
    functions = [one for one in functions if not pci_functions.is_for_guests(one)]
    excluded = []
    if state == schema.READY:
        excluded = excluded_gpus.of_loaded_module(tree.root, [one["address"] for one in functions])
    for one in functions:
        if one["address"] in excluded:
            reason = "excluded by option NVreg_ExcludedGpus of kernel module nvidia"
            skipped.append({"pci_address": one["address"], "reason": reason})
            continue
        health = schema.health(
            schema.LOST, "NVML does not show this GPU. Check the kernel log for NVRM and Xid messages"
        )
        if state in _WITHOUT_DRIVER or one["kernel_driver"] != "nvidia":
            health = schema.health(schema.UNKNOWN, "the driver nvidia is not bound to the GPU")
        devices.append(
            schema.device(
                NVIDIA,
                kind="gpu",
                generation=_ARCHITECTURES.get(nvidia_generations.of(one["device_id"]).name)
                if one["device_id"]
                else None,
                pci_address=one["address"],
                pci_id=schema.pci_id(one["vendor_id"], one["device_id"]),
                stable_id=one["address"],
                stable_id_kind=schema.PCI_ADDRESS,
                numa_node=one["numa_node"],
                health=health,
            )
        )
    return devices, skipped
