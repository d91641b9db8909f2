# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A vendor that does not exist: three devices, the last one with two partitions, and CDI devices of its own kind.

The partitions have nodes of their own. Containers get CDI devices; device nodes that a user passes by hand count, too.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import (
    Gpu,
    GpuProcess,
    Inventory,
    Unit,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing import inspected_container
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.inspected_container import AssignedGpus
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import find_use
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import (
    CDI,
    DEVICES,
    NONE,
    Choice,
    IsolationError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpu_distance import Topology
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import Request
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import gpu_processes
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.optional_features import Extras
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import kubelet_pod_devices
from ansible_collections.gpufleet.hosts.tests.unit.plugins.process_tree import numbers

KIND = "acme.example/npu"
IDS = ("a0b0c0d0", "a1b1c1d1", "a2b2c2d2")
PARTITIONS = (f"{IDS[2]}/0", f"{IDS[2]}/1")
_MAJOR = 260


def nodes_of(number):
    return frozenset({f"/dev/acme{number}"})


def devices(*, busy=()):
    """Return the devices. `busy` maps an index to the IDs of its processes."""
    whole = [
        Gpu(
            index=index,
            uuid=uuid,
            name="Acme N1",
            pci_bus_id=f"0000:0{index + 1}:00.0",
            memory_total_mib=32768,
            is_partitioned=index == 2,
            processes=tuple(GpuProcess(pid) for pid in dict(busy).get(index, ())),
            nodes=nodes_of(index) if index != 2 else frozenset(),
        )
        for index, uuid in enumerate(IDS)
    ]
    units = [Unit(gpu.uuid, gpu, nodes=gpu.nodes) for gpu in whole[:2]]
    units += [
        Unit(uuid, whole[2], part, (part,), "half", 16384, nodes=nodes_of(10 + part))
        for part, uuid in enumerate(PARTITIONS)
    ]
    return Inventory(tuple(whole), tuple(units))


def acme_numbers(path):
    """Return the numbers of a device node: see process_tree.numbers."""
    found = re.search(r"/acme(\d+)$", path)
    return (_MAJOR, int(found.group(1))) if found else numbers(path)


class AcmeVendor:
    """See container/vendor_protocol.py."""

    name = "acme"

    def __init__(self, root, found=None):
        self._root = str(root)
        self._found = found or devices()
        self.inventory = Inventory()
        self.topology = Topology()
        self.asked = []

    def observe(self, needs=()):
        self.asked.append(set(needs))
        self.inventory = self._found

    def extras(self, features, channels, env):
        return Extras()

    def image_request(self, image, env):
        return (Request("count", 1), "GPUs are requested by ACME") if env.get("ACME") else None

    def choose_isolation(self, engine, units, task):
        requested = task.params["isolation"]
        if requested not in ("auto", CDI, DEVICES):
            raise IsolationError(f"isolation={requested} is not available: use cdi.")
        return Choice(CDI if requested == "auto" else requested, f"isolation is {requested}")

    def access(self, isolation, engine, units, task):
        ordered = sorted(units, key=lambda unit: unit.uuid)
        if isolation == DEVICES:
            return Access(DEVICES, devices=tuple(node for unit in ordered for node in sorted(unit.nodes)))
        if isolation == NONE:
            return Access()
        return Access(CDI, cdi_devices=tuple(f"{KIND}={unit.uuid}" for unit in ordered), warnings=("it is a fake.",))

    def driver_volume(self, accesses, task):
        return None

    def assigned_gpus(self, container, engine, exclude=()):
        names = {
            name.partition("=")[2]
            for name in inspected_container.cdi_names(container, exclude)
            if name.startswith(KIND)
        }
        by_cdi = frozenset(unit.uuid for unit in self.inventory.units if unit.uuid in names)
        given = (container.get("HostConfig") or {}).get("Devices") or ()
        paths = [node for one in given if one["PathOnHost"] not in exclude for node in self.nodes(one["PathOnHost"])]
        by_node = frozenset(unit.uuid for unit in self.inventory.by_nodes(paths))
        requests = (container.get("HostConfig") or {}).get("DeviceRequests") or ()
        return AssignedGpus(
            by_cdi or by_node,
            CDI if by_cdi else DEVICES if by_node else NONE,
            by_cdi | by_node,
            tuple(one for one in requests if any(name.startswith(KIND) for name in one.get("DeviceIDs") or ())),
        )

    def nodes(self, device):
        name = device.replace(f"/dev/char/{_MAJOR}:", "/dev/acme")
        return {name: inspected_container.ACCESS if name.startswith(("/dev/acme", KIND)) else None}

    def use(self, listed, *, whole_host, ignored=(), own=None):
        if not whole_host:
            return find_use(self.inventory, listed, ignored=ignored, own=own)
        pids = {process.pid for gpu in self.inventory.gpus for process in gpu.processes or ()}
        table = gpu_processes.read(self._root, pids, acme_numbers)
        pods = kubelet_pod_devices.read(self._root, (KIND,))
        return find_use(self.inventory, listed, table, pods, self.nodes, ignored=ignored, own=own)
