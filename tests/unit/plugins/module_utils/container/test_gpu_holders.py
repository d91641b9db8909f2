# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which container, pod or process holds which GPU."""

from __future__ import annotations

import functools

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import gpu_holders
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import (
    Holder,
    find_use,
    holding_state,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.device_node_names import canonical_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.gpus_of_container import assigned_gpus
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.inventory import inventory_from_facts
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import gpu_processes
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import kubelet_pod_devices
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import (
    MIG_UUIDS,
    UUIDS,
    container,
    docker,
    gpu,
    mig,
    nodes,
    podman,
    slice_,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.process_tree import (
    ALICE,
    ALL_CAPABILITIES,
    ProcessTree,
    identifier,
    numbers,
)

POD = "0f3c1d52-9c1e-4a57-8f0e-0c1de6a1b2c3"
IN_POD = f"/kubepods/burstable/pod{POD}/"
MINORS = {"gpu3/gi7/access": 21, "gpu3/gi7/ci0/access": 22, "gpu3/gi8/access": 31, "gpu3/gi8/ci0/access": 32}


def process(pid, name="/usr/bin/python3", gi=None, ci=None):
    """Return an item of the fact `processes`."""
    return {"pid": pid, "type": "compute", "name": name, "memory_used_mib": 100, "gi": gi, "ci": ci}


def inventory(**processes):
    """Return four GPUs without processes, except for `gpu0` and so on. GPU i has minor number 3 - i."""
    return inventory_from_facts([gpu(index, processes=processes.get(f"gpu{index}", [])) for index in range(4)], MINORS)


def listed(number, name, *indexes, exclusive=False):
    uuids = frozenset(UUIDS[index] for index in indexes)
    return Holder(name, "docker", uuids, exclusive=exclusive, identifier=identifier(number))


@pytest.fixture
def tree(tmp_path):
    return ProcessTree(tmp_path)


def use(tree, gpus=None, containers=(), **options):
    gpus = gpus or inventory()
    pids = {process.pid for gpu in gpus.gpus for process in gpu.processes or ()}
    nodes = [f"/dev/nvidia{gpu.minor}" for gpu in gpus.gpus if gpu.processes is None]
    root = str(tree.root)
    uvm = "/dev/nvidia-uvm"
    table = gpu_processes.read(root, pids, numbers, nodes=nodes, compute_node=uvm)
    named = functools.partial(canonical_nodes, IsolationHost(None, root))
    return find_use(gpus, containers, table, kubelet_pod_devices.read(root), named, compute_node=uvm, **options)


def held(found):
    """Return the holders with the indexes of their GPUs."""
    return {str(holder): sorted(UUIDS.index(uuid) for uuid in holder.uuids) for holder in found.holders}


def test_containers_of_other_users_and_engines_hold_their_gpus(tree):
    tree.rootless_podman(40, "nvidia3", name="notebook")
    tree.container(50, "nvidia1", "nvidia2", cgroup=f"/default/{identifier(50)}")
    tree.container(60, "nvidia0", cgroup="/lxc.payload.build/init.scope")
    tree.container(70)
    assert held(use(tree)) == {
        f"podman container notebook of user {ALICE}": [0],
        f"containerd container {identifier(50)[:12]}": [1, 2],
        "lxc container build": [3],
    }


def test_a_listed_container_holds_only_what_its_engine_says(tree):
    tree.container(40, "nvidia3", "nvidia2")
    assert held(use(tree, containers=[listed(40, "trainer", 0)])) == {"docker container trainer": [0]}
    assert held(use(tree, containers=[listed(40, "trainer")])) == {}


def test_a_container_inside_of_a_listed_one_belongs_to_it(tree):
    tree.container(41, "nvidia3", cgroup=f"/docker/{identifier(40)}/docker/{identifier(41)}")
    assert held(use(tree, containers=[listed(40, "outer", 0)], own=("docker", "outer"))) == {}


@pytest.mark.parametrize(
    ("nodes", "privileged", "expected"),
    [
        (("nvidia0", "nvidia1", "nvidia2", "nvidia3"), True, []),
        (("nvidia0", "nvidia1", "nvidia2", "nvidia3"), False, [[0, 1, 2, 3]]),
        (("nvidia3",), True, [[0]]),
    ],
)
def test_all_nodes_of_a_privileged_container_are_no_request(tree, nodes, privileged, expected):
    capabilities = {"capabilities": ALL_CAPABILITIES} if privileged else {}
    tree.container(40, *nodes, **capabilities)
    assert list(held(use(tree)).values()) == expected


def test_processes_outside_containers_hold_their_gpus(tree):
    tree.process(70, "python3", user=ALICE)
    tree.pid_namespace(4026532500)
    found = use(tree, inventory(gpu1=[process(70), process(70)], gpu2=[process(70), process(999, "/opt/x/solver")]))
    assert held(found) == {f"process 70 (python3) of user {ALICE}": [1, 2], "process 999 (solver)": [2]}
    assert found.busy == {
        UUIDS[1]: ("process 70 (python3)",),
        UUIDS[2]: ("process 70 (python3)", "process 999 (solver)"),
    }


def test_a_process_that_has_ended_holds_nothing(tree):
    found = use(tree, inventory(gpu2=[process(999)]))
    assert (found.holders, found.busy) == ((), {})


def test_a_process_that_has_an_unlisted_gpu_open_for_computing_holds_it(tree):
    tree.process(70, "python3", user=ALICE, opened=("/dev/nvidia-uvm", "/dev/nvidia3", "/dev/nvidia2"))
    tree.process(71, "nvidia-persiste", opened=("/dev/nvidiactl", "/dev/nvidia3"))
    tree.container(40, opened=("/dev/nvidia-uvm", "/dev/nvidia3"), capabilities=ALL_CAPABILITIES, dev="0:5")
    # GPU 0 has minor number 3. The driver says that GPU 1 has no process.
    gpus = inventory_from_facts([gpu(0, processes=None), gpu(1, processes=[])])
    assert held(use(tree, gpus, [listed(40, "tools")])) == {
        f"process 70 (python3) of user {ALICE}": [0],
        "docker container tools (process 40)": [0],
    }


def test_a_process_in_a_container_makes_the_container_a_holder(tree):
    tree.container(40, capabilities=ALL_CAPABILITIES, dev="0:5")
    tree.rootless_podman(50, name="notebook")
    tree.container(60, "nvidia3", cgroup=f"{IN_POD}{identifier(60)}")
    tree.process(61, "train", cgroup=f"{IN_POD}{identifier(60)}", mounts="mnt:[60]")
    gpus = inventory(gpu0=[process(61)], gpu1=[process(40)], gpu2=[process(50)])
    assert held(use(tree, gpus, [listed(40, "monitor")])) == {
        f"kubernetes pod {POD}": [0],
        "docker container monitor (process 40)": [1],
        f"podman container notebook of user {ALICE} (process 50)": [2],
    }


def test_own_processes_do_not_count(tree):
    tree.container(40)
    found = use(tree, inventory(gpu0=[process(40)]), [listed(40, "ct", 0)], own=("docker", "ct"))
    assert (found.holders, found.busy) == ((), {})


def test_pods_hold_what_the_kubelet_gave_them_while_they_run(tree):
    entries = [
        {"PodUID": POD, "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"0": [UUIDS[1]]}},
        {"PodUID": "ended", "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"0": [UUIDS[2]]}},
    ]
    tree.checkpoint(*entries, offered={"nvidia.com/gpu": UUIDS[:3]}, names=(f"ml_trainer-0_{POD}",))
    tree.container(40, cgroup=f"{IN_POD}{identifier(40)}", command="pause")
    # NVIDIA's runtime can give more nodes than the kubelet knows, for example with the image's NVIDIA_VISIBLE_DEVICES.
    tree.container(41, "nvidia3", "nvidia2", "nvidia1", "nvidia0", cgroup=f"{IN_POD}{identifier(41)}")
    found = use(tree)
    assert held(found) == {"kubernetes pod ml/trainer-0": [1]}
    assert [holder.exclusive for holder in found.holders] == [True]
    assert found.offered == set(UUIDS[:3])


def test_a_pod_does_not_hold_a_shared_gpu_exclusively(tree):
    tree.checkpoint({"PodUID": POD, "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"0": [f"{UUIDS[1]}::0"]}})
    tree.container(40, cgroup=f"{IN_POD}{identifier(40)}")
    assert [(holder.uuids, holder.exclusive) for holder in use(tree).holders] == [({UUIDS[1]}, False)]


@pytest.mark.parametrize(
    ("nodes", "expected"), [(("nvidia0", "nvidia1", "nvidia2", "nvidia3"), {}), (("nvidia2",), {1})]
)
def test_a_pod_that_the_kubelet_gave_no_gpu_holds_those_that_it_alone_sees(tree, nodes, expected):
    """A pod with all GPUs watches them, as the device plugin and DCGM do. Other pods come from other drivers."""
    tree.container(40, *nodes, cgroup=f"{IN_POD}{identifier(40)}")
    assert {index for indexes in held(use(tree)).values() for index in indexes} == set(expected)


@pytest.mark.parametrize("name", ["notebook", "python3", "ml/trainer-0", "trainer-0", "docker-one"])
def test_ignored_names_do_not_count(tree, name):
    tree.rootless_podman(40, "nvidia3", name="notebook")
    tree.process(70, "python3", user=ALICE)
    tree.checkpoint(
        {"PodUID": POD, "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"0": [UUIDS[2]]}},
        names=(f"ml_trainer-0_{POD}",),
    )
    tree.container(50, cgroup=f"{IN_POD}{identifier(50)}")
    gpus = inventory(gpu1=[process(70)])
    containers = [listed(90, "docker-one", 3)]
    everything = held(use(tree, gpus, containers))
    assert len(everything) == 4
    left = held(use(tree, gpus, containers, ignored=[name]))
    assert len(left) == 3
    assert not any(name in text for text in left)


def test_mig_devices_are_held_by_nodes_and_by_processes(tree):
    facts = gpu(0, mig=mig(slice_(0), slice_(1)), processes=[process(70, gi=8, ci=0)])
    gpus = inventory_from_facts([facts, gpu(1, processes=[])], MINORS)
    tree.process(70, "python3")
    tree.container(40, "nvidia3", "nvidia-caps/nvidia-cap21", "nvidia-caps/nvidia-cap22")
    found = use(tree, gpus)
    assert {str(holder): set(holder.uuids) for holder in found.holders} == {
        f"docker container {identifier(40)[:12]}": {MIG_UUIDS[0]},
        "process 70 (python3) of user root": {MIG_UUIDS[1]},
    }
    assert set(found.busy) == {MIG_UUIDS[1]}


def test_without_a_process_table_only_the_listed_containers_hold_gpus():
    found = find_use(inventory(gpu1=[process(70)]), [listed(1, "trainer", 0)])
    assert held(found) == {"docker container trainer": [0]}
    assert found.busy == {UUIDS[1]: ("process 70 (python3)",)}


def test_limits_are_reported_only_where_they_are_true(tree):
    units = inventory().units
    assert use(tree).limits(units) == []
    tree.pid_namespace(4026532500)
    (nested,) = use(tree).limits(units)
    assert nested == "this host is a container itself. Processes and containers outside of it are not visible."
    tree.pid_namespace(4026531836)
    gpus = inventory_from_facts([gpu(0, processes=None), gpu(1, processes=[])])
    tree.checkpoint(offered={"nvidia.com/gpu": [UUIDS[1]]})
    tree.rootless_podman(40, name="notebook")
    found = use(tree, gpus)
    rootless = (
        f"stopped containers of rootless engines (user {ALICE}) are not visible. They use their GPUs again when they "
        "are started."
    )
    assert found.limits(gpus.units[:1]) == [
        f"the driver does not list the processes on GPU 0 ({UUIDS[0]}). Only processes that have both "
        "the device node of the GPU and /dev/nvidia-uvm open are counted.",
        rootless,
    ]
    kubernetes = found.limits(gpus.units[1:])
    assert kubernetes[0] == rootless
    assert kubernetes[1].startswith(f"Kubernetes can give GPU 1 ({UUIDS[1]}) to a pod")


@pytest.mark.parametrize(
    ("status", "policy", "expected"),
    [
        ("running", "", "running"),
        ("paused", "no", "paused"),
        ("restarting", "always", "restarting"),
        ("exited", "", None),
        ("exited", "no", None),
        ("exited", "on-failure", None),
        # The engine does not restart a container that was stopped manually.
        ("exited", "unless-stopped", None),
        ("created", "unless-stopped", "created, restart policy unless-stopped"),
        ("configured", "unless-stopped", "configured, restart policy unless-stopped"),
        ("exited", "always", "exited, restart policy always"),
        ("created", "always", "created, restart policy always"),
        ("created", "", None),
        ("dead", "no", None),
    ],
)
def test_stopped_container_holds_gpus_if_the_engine_restarts_it(status, policy, expected):
    assert holding_state(container("c", status=status, policy=policy)) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("unless-stopped", "exited, restart policy unless-stopped"), ("on-failure", None), ("no", None)],
)
def test_failed_start_holds_gpus_because_the_engine_tries_it_again(policy, expected):
    made = container("c", status="exited", policy=policy)
    made["State"]["Error"] = "could not select device driver"
    assert holding_state(made) == expected


WHOLE = inventory_from_facts([gpu(index) for index in range(4)])


def as_holder(made, engine, inventory, **options):
    return gpu_holders.as_holder(made, engine, assigned_gpus(made, engine, inventory, **options).held)


def request(**options):
    return {"Driver": "", "Count": 0, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}, **options}


def test_holder_combines_all_isolations():
    made = container("c", Devices=nodes("/dev/nvidia0"), DeviceRequests=[request(DeviceIDs=["0"])])
    assert as_holder(made, docker(), WHOLE).uuids == {UUIDS[0], UUIDS[3]}
    assert assigned_gpus(made, docker(), WHOLE).uuids == {UUIDS[0]}


def test_holder_describes_its_container():
    labels = {"gpufleet.exclusive": "true", "gpufleet.gpus": UUIDS[1], "gpufleet.isolation": "volume"}
    made = container("trainer", labels=labels, Devices=nodes("/dev/nvidia2"))
    found = as_holder(made, docker(), WHOLE)
    assert (found.name, found.engine, found.uuids, found.exclusive) == ("trainer", "docker", {UUIDS[1]}, True)
    assert str(found) == "docker container trainer"
    waiting = container("t", status="exited", policy="always", Devices=nodes("/dev/nvidia2"))
    assert str(as_holder(waiting, podman(), WHOLE)) == "podman container t (exited, restart policy always)"
    assert found.identifier == "id-of-trainer"
    dead = container("t", status="dead", policy="always", Devices=nodes("/dev/nvidia2"))
    assert as_holder(dead, docker(), WHOLE).uuids == set()
    assert as_holder(container("t"), docker(), WHOLE).uuids == set()
    stopped = container("t", status="exited", Devices=nodes("/dev/nvidia2"))
    assert as_holder(stopped, docker(), WHOLE).uuids == set()
