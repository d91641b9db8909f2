# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_container with AMD's GPUs: selection, isolation, holders and groups."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import vendor_of_host
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import IsolationError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.planner import Planner
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import Reservations
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import SelectionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Image
from ansible_collections.gpufleet.hosts.plugins.module_utils.usage.gpu_usage_report import report
from ansible_collections.gpufleet.hosts.plugins.modules.gpu_container import argument_spec
from ansible_collections.gpufleet.hosts.tests.unit.plugins.amd_trees import KFD, MEMORY, MI210, AmdTree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import Engine, container, docker, nodes, podman
from ansible_collections.gpufleet.hosts.tests.unit.plugins.process_tree import ProcessTree

A, B, C = "00000000000000a1", "00000000000000b2", "00000000000000c3"
PARTS = [f"{C}/{number}" for number in range(8)]
DOCKER = docker("28.3.3", cdi_dirs=("/etc/cdi", "/var/run/cdi"))
PODMAN = podman(cdi_dirs=("/etc/cdi", "/var/run/cdi"))
ROOTLESS = podman(rootless=True, cdi_dirs=("/etc/cdi", "/var/run/cdi"))


def nodes_of(minor: int) -> list[str]:
    return ["/dev/kfd", f"/dev/dri/renderD{minor}", f"/dev/dri/card{minor - 127}"]


class AmdHost:
    """Two GPUs with an XGMI link on NUMA node 0, and one in mode CPX. The CDI specification can be written."""

    def __init__(self, root) -> None:
        self.tree = AmdTree(root)
        self.tree.gpu("0000:05:00.0", 128, MI210, unique_id=A, hive=7, peers=(3,), attributes=MEMORY)
        self.tree.gpu("0000:26:00.0", 129, MI210, unique_id=B, hive=7, peers=(2,), attributes=MEMORY)
        self.tree.gpu("0000:46:00.0", 130, unique_id=C, mode="CPX", partitions=8)
        self.processes = ProcessTree(root)
        self.engines = {"docker": Engine(DOCKER), "podman": Engine(PODMAN, absence="not installed")}
        self.reservations = Reservations(str(root / "run/reservations"))
        self.root = root

    def vendor(self, **params):
        given = {"accelerator": "amd", "cdi_kind": None, **params}
        return vendor_of_host.create(vendor_of_host.VendorHost(given, None, None, str(self.root)))

    def plan(self, check=True, **params):
        given = {name: option.get("default") for name, option in argument_spec().items()}
        given.update({"name": "ct", "image": "image", "accelerator": "amd", **params})
        vendor = vendor_of_host.create(vendor_of_host.VendorHost(given, None, None, str(self.root)))
        return Planner(given, self.engines, vendor, self.reservations, check_mode=check).plan()

    def uuids(self, **params):
        return self.plan(**params)["gpu_assignment"]["uuids"]

    def specification(self, kind="gpufleet-amd/gpu", path="var/run/cdi/gpufleet-amd.json", shift=0, **more) -> None:
        """Write a specification with the names of the index. `shift` gives each name the node of another GPU."""
        named = {str(number): 128 + (number + shift) % 10 for number in range(10)}
        devices = [
            {
                "name": name,
                "containerEdits": {"deviceNodes": [{"path": path} for path in nodes_of(minor)]},
            }
            for name, minor in named.items()
        ]
        spec = {"cdiVersion": "0.5.0", "kind": kind, "devices": devices, **more}
        self.tree.file(path, json.dumps(spec))

    def computes(self, pid: int, node: int, memory: int = 4096, queues: int = 0) -> None:
        """Let a process use the GPU of a KFD node, and open the nodes of all GPUs, as ROCm does."""
        for number in range(2, 12):
            self.tree.file(f"{KFD}/{number}/gpu_id", str(1000 + number))
            size = memory if number == node else 0
            self.tree.file(f"sys/class/kfd/kfd/proc/{pid}/vram_{1000 + number}", str(size))
        for queue in range(queues):
            self.tree.file(f"sys/class/kfd/kfd/proc/{pid}/queues/{queue}/gpuid", str(1000 + node))
        every = tuple(f"/dev/dri/renderD{128 + number}" for number in range(10))
        self.processes.process(pid, "train", opened=("/dev/kfd", *every))

    def has(self, *made, engine="docker"):
        self.engines[engine].table.update({one["Name"].lstrip("/"): one for one in made})


@pytest.fixture
def host(tmp_path):
    return AmdHost(tmp_path / "root")


@pytest.mark.parametrize(
    ("gpus", "options", "expected"),
    [
        (1, {}, [A]),
        # The GPUs with a link.
        (2, {"conditions": {"memory_min_mib": 100000}}, [A, B]),
        # Partitions of one GPU are closer to each other than two GPUs.
        (2, {}, PARTS[:2]),
        # All from one GPU.
        (3, {"conditions": {"model": "*MI300X*"}}, PARTS[:3]),
        ("all", {}, [A, B, *PARTS]),
        ([9], {}, [PARTS[7]]),
        ([PARTS[2].upper()], {}, [PARTS[2]]),
        (["00000000000000b"], {}, [B]),
        (["26:00.0"], {}, [B]),
        (1, {"conditions": {"memory_free_min_mib": 100000}}, [A]),
        ("none", {}, []),
        (None, {}, []),
    ],
)
def test_gpus_and_partitions_are_selected(host, gpus, options, expected):
    assert host.uuids(gpus=gpus, **options) == expected


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"gpus": [C]}, SelectionError, f"prefix {C} is ambiguous: it matches GPU 2 .{C}/0."),
        ({"gpus": ["46:00.0"]}, SelectionError, "There is no GPU at PCI address 46:00.0"),
        ({"gpus": [10]}, SelectionError, "There is no GPU 10"),
        (
            {"gpus": 1, "isolation": "runtime"},
            IsolationError,
            "isolation=runtime is not available: a container of amd needs only device nodes",
        ),
        (
            {"gpus": 1, "isolation": "cdi"},
            IsolationError,
            "no CDI specification of kind gpufleet-amd/gpu in",
        ),
        ({"gpus": 1, "features": ["mps"]}, SelectionError, "features requires accelerator=nvidia, but the .* is amd"),
    ],
)
def test_requests_that_cannot_be_met(host, options, error, message):
    with pytest.raises(error, match=message):
        host.plan(**options)


def test_a_host_without_a_driver_says_so(tmp_path):
    tree = AmdTree(tmp_path / "root", loaded=False, kfd=False)
    tree.function("0000:05:00.0", MI210, vendor="0x1002", class_id="0x038000")
    vendor = vendor_of_host.create(
        vendor_of_host.VendorHost({"accelerator": "auto", "cdi_kind": None}, None, None, tree.root)
    )
    with pytest.raises(
        SelectionError, match=r"no usable AMD GPU .state no_driver.: The PCI bus has MI210 0000:05:00.0"
    ):
        vendor.observe()


def arguments(plan):
    return {key: plan["module_args"].get(key) for key in ("devices", "device", "device_requests")}


def test_without_a_specification_a_container_gets_exactly_its_nodes(host):
    plan = host.plan(gpus=[1])
    assert plan["gpu_assignment"]["isolation"] == "devices"
    assert arguments(plan)["devices"] == ["/dev/kfd", "/dev/dri/renderD129", "/dev/dri/card2"]
    assert "env" not in plan["module_args"]
    two = host.plan(gpus=[0, 9])
    assert arguments(two)["devices"] == [
        "/dev/kfd",
        "/dev/dri/renderD128",
        "/dev/dri/card1",
        "/dev/dri/renderD137",
        "/dev/dri/card10",
    ]


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_with_a_specification_a_container_gets_the_cdi_device(host, engine):
    host.specification()
    host.engines["podman"] = Engine(PODMAN, images={"image": Image(id="sha256:1")})
    plan = host.plan(gpus=[3], engine=engine)
    assert plan["gpu_assignment"]["isolation"] == "cdi"
    if engine == "docker":
        (request,) = arguments(plan)["device_requests"]
        assert (request["driver"], request["device_ids"]) == ("cdi", ["gpufleet-amd/gpu=3"])
    else:
        assert arguments(plan)["device"] == ["gpufleet-amd/gpu=3"]


def test_a_specification_from_before_a_repartitioning_is_not_used(host):
    # Each name has the nodes of another GPU.
    host.specification(shift=9)
    plan = host.plan(gpus=[1])
    assert arguments(plan)["devices"] == nodes_of(129)
    assert "no CDI specification of kind gpufleet-amd/gpu" in plan["gpu_assignment"]["reason"]


def test_the_kind_of_amds_tool_is_used_if_it_is_the_only_one_or_requested(host):
    host.specification("amd.com/gpu", "etc/cdi/amd.json")
    assert arguments(host.plan(gpus=[0]))["device_requests"][0]["device_ids"] == ["amd.com/gpu=0"]
    host.specification()
    assert arguments(host.plan(gpus=[0]))["device_requests"][0]["device_ids"] == ["gpufleet-amd/gpu=0"]
    plan = host.plan(gpus=[0], cdi_kind="amd.com/gpu")
    assert arguments(plan)["device_requests"][0]["device_ids"] == ["amd.com/gpu=0"]


def test_a_specification_that_gives_more_than_the_gpu_is_not_used(host):
    host.specification(containerEdits={"deviceNodes": [{"path": "/dev/dri/renderD137"}]})
    plan = host.plan(gpus=[0])
    assert plan["gpu_assignment"]["isolation"] == "devices"
    assert "no CDI specification" in plan["gpu_assignment"]["reason"]


def cdi(*names):
    return {"DeviceRequests": [{"Driver": "cdi", "Count": 0, "DeviceIDs": list(names)}]}


@pytest.mark.parametrize(
    ("holder", "shown"),
    [
        (lambda host: host.has(container("other", **cdi("gpufleet-amd/gpu=0"))), "docker container other"),
        (lambda host: host.has(container("other", **cdi("amd.com/gpu=0"))), "docker container other"),
        (
            lambda host: host.has(container("byhand", Devices=nodes("/dev/kfd", "/dev/dri/renderD128"))),
            "docker container byhand",
        ),
        (lambda host: host.has(container("whole", Devices=nodes("/dev/kfd", "/dev/dri"))), "docker container whole"),
        (
            lambda host: host.has(container("amd", env=["AMD_VISIBLE_DEVICES=0x00000000000000A1"], Runtime="amd")),
            "docker container amd",
        ),
        (lambda host: host.computes(70, 2), "process 70 .train."),
        (lambda host: host.computes(70, 2, memory=0, queues=1), "process 70 .train."),
        (
            lambda host: host.processes.process(71, "vulkan", opened=("/dev/dri/renderD128",)),
            "process 71 .vulkan.",
        ),
    ],
    ids=["cdi", "kind of AMD's tool", "nodes", "directory", "runtime", "memory", "queue", "graphics"],
)
def test_an_exclusive_container_gets_a_gpu_that_nothing_holds(host, holder, shown):
    host.specification()
    host.specification("amd.com/gpu", "etc/cdi/amd.json")
    holder(host)
    with pytest.raises(SelectionError, match=rf"exclusive: GPU 0 .{A}. is held by {shown}"):
        host.plan(gpus=[0], exclusive=True)
    if shown != "docker container whole":
        assert host.uuids(gpus=1, exclusive=True) == [B]


def test_a_process_without_memory_or_queue_holds_nothing(host):
    host.computes(70, 2, memory=0)
    assert host.uuids(gpus=[0], exclusive=True) == [A]


def test_a_partition_is_held_alone(host):
    host.has(container("other", Devices=nodes("/dev/kfd", "/dev/dri/renderD130")))
    assert host.uuids(gpus=[3], exclusive=True) == [PARTS[1]]
    with pytest.raises(SelectionError, match="held by docker container other"):
        host.plan(gpus=[2], exclusive=True)


@pytest.mark.parametrize(
    ("present", "changes"),
    [
        (["/dev/kfd", "/dev/dri/renderD128", "/dev/dri/card1"], []),
        # Compute needs no card node.
        (["/dev/kfd", "/dev/dri/renderD128"], []),
        (["/dev/dri/renderD128"], ["device nodes missing: /dev/kfd"]),
    ],
)
def test_a_container_that_has_its_gpu_stays(host, present, changes):
    labels = {"gpufleet.gpus": A, "gpufleet.isolation": "devices", "gpufleet.container": "ct"}
    host.has(container("ct", labels=labels, Devices=nodes(*present)))
    found = host.plan(gpus=[0])["gpu_assignment"]["changes"]
    assert len(found) == len(changes), found


def test_usage_shows_the_holders(host):
    host.has(container("other", Devices=nodes("/dev/kfd", "/dev/dri/renderD130")))
    host.computes(70, 2)
    vendor = host.vendor()
    vendor.observe(("processes",))
    found = report(host.engines, vendor, host.reservations, user=0)
    assert [gpu["uuid"] for gpu in found["gpus"] if gpu["holders"]] == [A, PARTS[0]]


@pytest.mark.parametrize(
    ("engine", "options", "expected"),
    [
        ("docker", {"user": "1000"}, (["GID"], "can open the device nodes only through their groups")),
        ("docker", {}, (None, None)),
        ("rootless", {}, (["keep-groups"], None)),
        ("rootless", {"user": "1000"}, (["keep-groups"], None)),
        (
            "rootless of another user",
            {},
            (None, "the user of rootless podman is not in all groups of the device nodes"),
        ),
        ("rootless", {"engine_options": {"group_add": ["5"]}}, (["5"], "cannot be combined with keep-groups")),
    ],
)
def test_the_groups_of_the_nodes_are_those_of_the_host(host, monkeypatch, engine, options, expected):
    for node in ("kfd", "dri/renderD128", "dri/card1"):
        os.chmod(host.root / "dev" / node, 0o660)
    groups, warning = expected
    gid, is_member = os.stat(host.root / "dev/kfd").st_gid, "another user" not in engine
    engine = engine.partition(" ")[0]
    monkeypatch.setattr(os, "getgroups", lambda: [gid] if is_member else [])
    monkeypatch.setattr(os, "getegid", lambda: gid if is_member else 77)
    if engine == "rootless":
        host.engines["podman"] = Engine(ROOTLESS, images={"image": Image(id="sha256:1")})
    plan = host.plan(gpus=[0], engine=engine.replace("rootless", "podman"), **options)
    found = plan["module_args"].get("groups" if engine == "docker" else "group_add")
    assert found == (groups and [name.replace("GID", str(gid)) for name in groups])
    texts = " ".join(plan["gpu_assignment"]["warnings"])
    assert (warning is None and "group" not in texts) or warning in texts


@pytest.mark.parametrize(
    ("addresses", "option", "expected"),
    [
        ({"nvidia": "nvidia", "amd": "amdgpu"}, "auto", "nvidia"),
        ({"nvidia": None, "amd": "amdgpu"}, "auto", "amd"),
        ({"amd": None}, "auto", "amd"),
        ({"nvidia": "nvidia", "amd": "amdgpu"}, "amd", "amd"),
    ],
)
def test_the_vendor_of_a_host(tmp_path, addresses, option, expected):
    tree = AmdTree(tmp_path / "root")
    if addresses.get("amd"):
        tree.gpu("0000:05:00.0", 128, MI210, unique_id=A)
    elif "amd" in addresses:
        tree.function("0000:05:00.0", MI210, vendor="0x1002", class_id="0x038000")
    if "nvidia" in addresses:
        tree.function("0000:3b:00.0", driver=addresses["nvidia"])
    params = {"accelerator": option, "cdi_kind": None, "driver_root": None}
    assert vendor_of_host.create(vendor_of_host.VendorHost(params, None, SimpleNamespace, tree.root)).name == expected
