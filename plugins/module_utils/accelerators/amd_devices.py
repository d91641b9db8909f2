# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's GPUs and partitions in the neutral schema, from sysfs alone.

The compute driver KFD decides what a GPU is. Integrated graphics and cards that KFD does not know are skipped. The
index is that of AMD's container toolkit (ROCm/container-toolkit, internal/amdgpu/amdgpu.go, 62d4559): GPUs by PCI
address, and the partitions of a GPU by the number of their render node.
"""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    amd_host_state,
    amd_kfd_nodes,
    amd_sysfs_values,
    schema,
    sysfs_refusals,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import (
    accelerator_pci_ids,
    amd_compute_gpus,
    pci_functions,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import AMD

DRIVER = "amdgpu"
CONTROL_NODE = "/dev/kfd"
_WHOLE = "SPX"
_ONLY_WHOLE = "only the whole GPU has this value, not its partitions"
_NO_RESPONSE = b"\xff\xff\xff\xff"
_PCI = "/sys/bus/pci/devices"
# The devices of partitions except the first. Kernels have used both separators (drivers/gpu/drm/amd/amdxcp).
_PARTITIONS = "/sys/devices/platform"
_PARTITION = r"amdgpu_xcp[._][0-9]{1,6}"
_MIB = 1 << 20


class AcceleratorsOfAmd(NamedTuple):
    """AMD's devices in the order of their indexes, and the state of the vendor."""

    devices: list[schema.AcceleratorDevice]
    vendor: schema.AcceleratorVendor


def read(
    tree: sysfs_refusals.SysfsTree, functions: list[dict], kernel: str | None, read_ras: bool = False
) -> AcceleratorsOfAmd:
    """Return AMD's devices. `functions`: PCI functions of the host. `kernel`: the release of the running kernel."""
    candidates = {one["address"]: one for one in accelerator_pci_ids.pick(functions) if one["vendor"] == AMD}
    reader = _AmdReader(tree, candidates, kernel, read_ras)
    devices, skipped = reader.known_to_kfd()
    others, others_skipped = reader.unknown_to_kfd()
    host = amd_host_state.AcceleratorsAmdHost(
        is_loaded=reader.is_loaded,
        is_installed=kernel is not None and tree.has_module(kernel, DRIVER),
        has_kfd=reader.kfd.loaded,
        hidden=reader.kfd.hidden,
        kernel=kernel,
        bound=[address for address, one in candidates.items() if one["kernel_driver"] == DRIVER],
        undecided=reader.undecided,
        without_kfd_node=reader.without_kfd_node,
    )
    state, reason = amd_host_state.decide(devices, others, host)
    skipped = sorted(skipped + others_skipped, key=lambda one: pci_functions.sort_key(one["pci_address"]))
    return AcceleratorsOfAmd(
        devices + others, schema.vendor_state(state, reason, devices + others, reader.driver_version, skipped)
    )


class _AmdReader:
    def __init__(
        self,
        tree: sysfs_refusals.SysfsTree,
        candidates: dict[str, dict],
        kernel: str | None,
        read_ras: bool,
    ) -> None:
        self.tree = tree
        self.candidates = candidates
        self.read_ras = read_ras
        self.is_loaded = tree.exists(f"/sys/module/{DRIVER}")
        version = tree.read(f"/sys/module/{DRIVER}/version")
        self.version_refusal = version.refusal
        self.driver_version = amd_host_state.driver_version(version, kernel, is_loaded=self.is_loaded)
        self.cards, render_nodes = self._drm()
        self.kfd = amd_kfd_nodes.read(tree, candidates, render_nodes)
        self.undecided: list[str] = []
        self.without_kfd_node: list[str] = []

    def known_to_kfd(self) -> tuple[list[schema.AcceleratorDevice], list[dict[str, str]]]:
        groups: dict[str, list[amd_kfd_nodes.AcceleratorKfdNode]] = {}
        for node in self.kfd.nodes:
            groups.setdefault(node.address, []).append(node)
        devices: list[schema.AcceleratorDevice] = []
        skipped: list[dict[str, str]] = []
        names: dict[str, str | None] = {}
        index = 0
        for address in sorted(groups, key=pci_functions.sort_key):
            group = sorted(groups[address], key=lambda node: (node.render_minor or 1 << 32, int(node.name)))
            if self._is_integrated(address, group):
                # AMD's toolkit gives integrated graphics an index, too.
                skipped.append(_skip(address, "integrated graphics of a CPU"))
            else:
                made = self._group(address, group, index)
                devices += made
                names.update({node.name: one["stable_id"] for node, one in zip(group, made)})
            index += len(group)
        for one in devices:
            links = one["links"]
            if links is not None:
                links["peers"] = sorted(filter(None, (names.get(name) for name in links["peers"])))
        return devices, skipped

    def unknown_to_kfd(self) -> tuple[list[schema.AcceleratorDevice], list[dict[str, str]]]:
        """Return the GPUs that only PCI shows, because no driver or another one has them."""
        known = {node.address for node in self.kfd.nodes}
        devices, skipped = [], []
        for address, function in self.candidates.items():
            if address in known:
                continue
            model = amd_compute_gpus.MODELS.get(function["device_id"] or "")
            reason = self._reason_to_skip(function, model)
            if reason:
                skipped.append(_skip(address, reason))
                continue
            health = schema.health(schema.UNKNOWN, "the driver is not loaded")
            if self.is_loaded:
                health = schema.health(
                    schema.LOST,
                    f"kernel module {DRIVER} is loaded, but does not drive this GPU. {amd_host_state.KERNEL_LOG}",
                )
            devices.append(
                schema.device(
                    AMD,
                    **_from_pci(function),
                    model=model,
                    stable_id=address,
                    stable_id_kind=schema.PCI_ADDRESS,
                    health=health,
                )
            )
        return devices, skipped

    def _reason_to_skip(self, function: dict, model: str | None) -> str | None:
        driver = function["kernel_driver"]
        if pci_functions.is_for_guests(function):
            return pci_functions.guest_reason(function)
        if driver == DRIVER:
            if not self.kfd.loaded:
                return "the kernel has no compute driver (KFD), so the GPU cannot compute"
            if self.kfd.hidden:
                return f"perhaps hidden by the device cgroup of this process: {self.kfd.hidden[0]}"
            if model is not None:
                self.without_kfd_node.append(f"{model} {function['address']}")
            return "no KFD node, so not a GPU that computes"
        if self.tree.exists(f"{_PCI}/{function['address']}/physfn"):
            return "a virtual function for virtual machines"
        if model is None:
            self.undecided.append(function["address"])
            return f"whether it computes is known only while kernel module {DRIVER} drives it"
        return None

    def _drm(self) -> tuple[dict[int, str], dict[int, str]]:
        """Return the cards by the number of their render node, and the PCI functions by the same number."""
        cards: dict[int, str] = {}
        functions: dict[int, str] = {}
        places = {f"{_PCI}/{address}": address for address in self.candidates}
        for name in self.tree.names(_PARTITIONS, _PARTITION):
            places[f"{_PARTITIONS}/{name}"] = ""
        for directory, address in places.items():
            card = next(iter(self.tree.names(f"{directory}/drm", r"card[0-9]{1,6}")), "")
            for name in self.tree.names(f"{directory}/drm", r"renderD[0-9]{1,6}"):
                minor = int(name[len("renderD") :])
                cards[minor] = card
                if address:
                    functions[minor] = address
        return cards, functions

    def _group(
        self, address: str, group: list[amd_kfd_nodes.AcceleratorKfdNode], index: int
    ) -> list[schema.AcceleratorDevice]:
        """Return one GPU, or all of its partitions."""
        attributes = sysfs_refusals.SysfsAttributes(self.tree, f"{_PCI}/{address}")
        function = self.candidates.get(address)
        lost = self._reason_lost(address, function)
        if self.version_refusal:
            attributes.refuse("driver_version", f"version of module {DRIVER}: {self.version_refusal}")
        mode = None if lost else amd_sysfs_values.compute_mode(attributes)
        numbers = _partition_numbers(group, mode)
        common = self._values(attributes, function or {}, group[0], lost, is_whole=numbers is None)
        parent = amd_sysfs_values.unique_id(attributes) or group[0].unique_id
        kind = schema.UNIQUE_ID if parent else schema.PCI_ADDRESS
        parent = parent or address
        made = []
        for position, node in enumerate(group):
            unread = dict(attributes.unread)
            number = None if numbers is None else numbers[position]
            health, nodes = common["health"], self._nodes(node, unread)
            if node.render_minor not in self.cards and health["state"] != schema.LOST:
                health = schema.health(schema.LOST, "the driver shows no render node of this GPU. Reboot the host")
            own = {
                **common,
                "index": index + position,
                "pci_address": address,
                "stable_id": parent if number is None else f"{parent}/{number}",
                "stable_id_kind": kind,
                "generation": node.gfx_target,
                "cores": node.chiplets,
                "nodes": nodes,
                "links": None if node.peers is None else {"fabric": node.hive, "peers": list(node.peers)},
                "partition": schema.partition(mode, number, None if number is None else parent),
                "health": health,
                "unread": unread,
            }
            if node.links_refusal:
                unread["links"] = node.links_refusal
            if number is not None:
                own["memory_total_mib"] = self._partition_memory(node, unread)
            made.append(schema.device(AMD, **own))
        return made

    def _is_integrated(self, address: str, group: list[amd_kfd_nodes.AcceleratorKfdNode]) -> bool:
        device_id = self.candidates.get(address, {}).get("device_id")
        if device_id in amd_compute_gpus.MODELS:
            return False
        attributes = sysfs_refusals.SysfsAttributes(self.tree, f"{_PCI}/{address}")
        return any(node.has_cpu for node in group) or amd_sysfs_values.is_integrated(attributes)

    def _reason_lost(self, address: str, function: dict | None) -> str | None:
        if function is None:
            return "KFD knows this GPU, but it is not on the PCI bus any more. Power-cycle the host"
        if function["kernel_driver"] != DRIVER:
            return f"KFD knows this GPU, but kernel module {DRIVER} does not drive it. {amd_host_state.KERNEL_LOG}"
        try:
            if self.tree.read_bytes(f"{_PCI}/{address}/config", 4) == _NO_RESPONSE:
                return f"the GPU has fallen off the bus. {amd_host_state.KERNEL_LOG}, and power-cycle the host"
        except OSError:
            pass
        return None

    def _values(
        self,
        attributes: sysfs_refusals.SysfsAttributes,
        function: dict,
        node: amd_kfd_nodes.AcceleratorKfdNode,
        lost: str | None,
        is_whole: bool,
    ) -> dict:
        """Return the values that all partitions of a GPU share. The sensors of a lost GPU are not read."""
        device_id = function.get("device_id")
        values = {
            **_from_pci(function),
            "model": attributes.text("model", "product_name") or amd_compute_gpus.MODELS.get(device_id or ""),
            "driver_version": self.driver_version,
        }
        if lost:
            return {**values, "health": schema.health(schema.LOST, lost)}
        is_mi200 = device_id in amd_compute_gpus.MI200 or node.gfx_target == "gfx90a"
        errors, reasons = amd_sysfs_values.errors(attributes, self.read_ras or not is_mi200)
        if is_whole:
            values.update(amd_sysfs_values.memory(attributes))
            values["power_w"] = amd_sysfs_values.power(attributes)
            values["utilization_percent"] = amd_sysfs_values.utilization(attributes)
        else:
            for key in ("memory_used_mib", "power_w", "utilization_percent"):
                attributes.refuse(key, _ONLY_WHOLE)
        return {
            **values,
            "temperature_c": amd_sysfs_values.temperature(attributes),
            "firmware": amd_sysfs_values.firmware(attributes),
            "errors": errors,
            "health": schema.health(schema.DEGRADED if reasons else schema.OK, *reasons),
        }

    def _nodes(self, node: amd_kfd_nodes.AcceleratorKfdNode, unread: dict[str, str]) -> list[schema.AcceleratorNode]:
        paths = [(CONTROL_NODE, "control")]
        if node.render_minor is not None:
            paths.append((f"/dev/dri/renderD{node.render_minor}", "render"))
        if self.cards.get(node.render_minor or -1):
            paths.append((f"/dev/dri/{self.cards[node.render_minor or -1]}", "card"))
        nodes: list[schema.AcceleratorNode] = [
            {"path": path, "role": role, "gid": self.tree.gid(path)} for path, role in paths
        ]
        missing = [one["path"] for one in nodes if one["gid"] is None]
        if missing:
            unread["nodes"] = f"{', '.join(missing)} does not exist here"
        return nodes

    def _partition_memory(self, node: amd_kfd_nodes.AcceleratorKfdNode, unread: dict[str, str]) -> int | None:
        """Return the memory of a partition, which KFD computes from the GPU's memory and its partitions."""
        name = "mem_banks/0/properties"
        reading = self.tree.read(f"{amd_kfd_nodes.DIRECTORY}/{node.name}/{name}")
        size = sysfs_refusals.properties(reading.text or "").get("size_in_bytes")
        if size:
            return size // _MIB
        unread["memory_total_mib"] = f"{name}: {reading.refusal or 'no size_in_bytes'}"
        return None


def _partition_numbers(group: list[amd_kfd_nodes.AcceleratorKfdNode], mode: str | None) -> list[int] | None:
    """Return the partition number of each KFD node of a GPU, or None for a GPU without partitions."""
    told = [node.number or 0 for node in group]
    if len(group) == 1 and mode in (None, _WHOLE) and not told[0]:
        return None
    # In a container that sees some partitions, only the numbers that KFD tells are the same as on the host.
    return told if len(set(told)) == len(told) else list(range(len(group)))


def _from_pci(function: dict) -> dict:
    return {
        "kind": "gpu",
        "pci_address": function.get("address"),
        "pci_id": schema.pci_id(function.get("vendor_id"), function.get("device_id")),
        "numa_node": function.get("numa_node"),
    }


def _skip(address: str, reason: str) -> dict[str, str]:
    return {"pci_address": address, "reason": reason}
