# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module gpu_container sees the containers that the program nvidia-docker starts as holders of their GPUs."""

from __future__ import annotations

import csv
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import as_holder
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.gpus_of_container import assigned_gpus
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.inventory import inventory_from_facts
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import nvidia_docker_program as wrapper
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import (
    MIG_UUIDS,
    UUIDS,
    container,
    docker,
    gpu,
    mig,
    nodes,
    slice_,
)

FACTS = [gpu(0), gpu(1), gpu(2), gpu(3, mig=mig(slice_(0), slice_(1)))]
MINORS = {"gpu3/gi7/access": 21, "gpu3/gi7/ci0/access": 22, "gpu3/gi8/access": 31, "gpu3/gi8/ci0/access": 32}
KNOWN = inventory_from_facts(FACTS, MINORS)
PARTS = [unit for unit in KNOWN.units if unit.is_partition]
GPUS = [
    *(
        wrapper.Gpu(fact["uuid"], str(n), fact["pci_bus_id"], fact["minor"], n == 3, None)
        for n, fact in enumerate(FACTS)
    ),
    *(wrapper.Gpu(unit.uuid, str(unit.index), None, None, False, UUIDS[3]) for unit in PARTS),
]
DEVICES = frozenset({"all", *(gpu.name for gpu in GPUS if not gpu.has_mig)})


def inspected(options: list[str]) -> dict[str, Any]:
    """Return what Docker stores for a container with these options: docker/cli, opts/gpus.go and docker inspect.

    The image has the variable that NVIDIA's images have. For --gpus, Docker sets it to the requested GPUs.
    """
    requests, devices, names, env, left = [], [], [], ["NVIDIA_VISIBLE_DEVICES=all"], list(options)
    while left:
        word = left.pop(0)
        option, _equals, value = word.partition("=")
        if option == "--gpus":
            ((field,),) = csv.reader([left.pop(0)])
            request = {"Driver": "", "Count": 0, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}
            key, has_value, value = field.partition("=")
            changes = {"DeviceIDs": value.split(",")} if has_value else {"Count": -1}
            assert key == "device" or changes == {"Count": -1}
            requests.append({**request, **changes})
        elif option == "--device" and value.startswith("/"):
            devices += nodes(value)
        elif option == "--device":
            names.append(value)
        elif option == "--env":
            env.append(value)
        else:
            assert option == "--volume", word
    if names:
        requests.append({"Driver": "cdi", "Count": 0, "DeviceIDs": names, "Capabilities": None, "Options": {}})
    return container("c", env=env, DeviceRequests=requests or None, Devices=devices)


@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        ("all", {*UUIDS[:3], *MIG_UUIDS}),
        ("0", {UUIDS[0]}),
        ("1 2", {UUIDS[1], UUIDS[2]}),
        (UUIDS[2], {UUIDS[2]}),
        ("3", set(MIG_UUIDS)),
        ("3:1", {MIG_UUIDS[1]}),
    ],
)
@pytest.mark.parametrize("way", ["hook", "cdi"])
def test_containers_of_nvidia_docker_hold_their_gpus(way: str, selected: str, expected: set[str]) -> None:
    engine = wrapper.Engine((28, 3), DEVICES if way == "cdi" else frozenset(), True, False)
    inventory = wrapper.Inventory("580.95.05", (13, 0), GPUS)
    host = wrapper.Host(engine, inventory, way == "hook", None, ())
    made = inspected(wrapper.access(selected.split(), host, None))
    # With the runtime of NVIDIA as the default, too: NVIDIA_VISIBLE_DEVICES of an image must not add GPUs.
    for state in (docker("28.3.3"), docker("28.3.3", default_runtime="nvidia")):
        assert as_holder(made, state, assigned_gpus(made, state, KNOWN).held).uuids == expected


@pytest.mark.parametrize(("selected", "expected"), [("0", {UUIDS[0]}), ("2 1", {UUIDS[1], UUIDS[2]})])
def test_containers_with_the_volume_hold_their_gpus(selected: str, expected: set[str]) -> None:
    inventory = wrapper.Inventory("580.95.05", (13, 0), GPUS)
    engine = wrapper.Engine((20, 10), frozenset(), True, False)
    host = wrapper.Host(engine, inventory, False, "/volumes/580.95.05", ("/dev/nvidiactl", "/dev/nvidia-uvm"))
    made = inspected(wrapper.access(selected.split(), host, {"NVIDIA_VISIBLE_DEVICES": "all"}))
    for state in (docker("20.10.24"), docker("20.10.24", default_runtime="nvidia")):
        assert as_holder(made, state, assigned_gpus(made, state, KNOWN).held).uuids == expected
