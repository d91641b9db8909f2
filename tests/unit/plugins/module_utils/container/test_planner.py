# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a request to what the engine's module is called with, on hosts that are tables."""

from __future__ import annotations

import json
import re

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.image import RequirementError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation import IsolationError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.planner import PlanError, Planner
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import Reservations
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection import SelectionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendors import Nvidia
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import Image, StoppedDocker
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.stopped import StoppedEngine, Use
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.volumes import EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.session import BindingMissing
from ansible_collections.gpufleet.hosts.plugins.modules.gpu_container import argument_spec
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import (
    DRIVER,
    MIG_UUIDS,
    UUIDS,
    Engine,
    container,
    docker,
    facts,
    gpu,
    mig,
    nodes,
    podman,
    slice_,
)

VOLUME_NAME = f"nvidia_driver_{DRIVER}"
MOUNT = {"Name": VOLUME_NAME, "Destination": "/usr/local/nvidia", "RW": False}
NOTHING = {
    "exists": False,
    "running": False,
    "gpus": [],
    "isolation": "none",
    "exclusive": False,
    "recreate": [],
}
CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


class Case:
    """A host, and runs of the module on it."""

    def __init__(self, tmp_path):
        self.root = tmp_path / "root"
        for path in (
            *CONTROL,
            *(f"/dev/nvidia{minor}" for minor in range(4)),
            f"/volume/lib64/libnvidia-ml.so.{DRIVER}",
        ):
            self.file(path)
        self.reservations = Reservations(str(tmp_path / "run"))
        self.docker = Engine(docker(), volumes={VOLUME_NAME: "/volume"})
        self.podman = Engine(podman(), absence="the command podman is not in PATH")
        self.facts = facts(gpu(index) for index in range(4))
        self.asked = []

    def file(self, path, text=""):
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def gather(self, subsets):
        self.asked.append(subsets)
        return self.facts

    def plan(self, check=False, docker_host=None, root_user=True, **params):
        given = {name: option.get("default") for name, option in argument_spec().items()}
        given.update({"name": "ct", "image": "image", **params})
        engines = {"docker": self.docker, "podman": self.podman}
        accelerator = Nvidia(self.gather, root=str(self.root))
        return Planner(
            given,
            engines,
            accelerator,
            self.reservations,
            check_mode=check,
            docker_host=docker_host,
            root_user=root_user,
        ).plan()

    def has(self, *made):
        self.docker.table.update({one["Name"].lstrip("/"): one for one in made})

    def reserved(self):
        return {holder.name: holder.uuids for holder in self.reservations.holders(("", ""))}


@pytest.fixture
def case(tmp_path):
    return Case(tmp_path)


def given_gpu(index, name="ct", **options):
    """A container that this module gave one GPU with isolation=volume."""
    labels = {"gpufleet.gpus": UUIDS[index], "gpufleet.isolation": "volume", **options.pop("labels", {})}
    devices = nodes(*CONTROL, f"/dev/nvidia{3 - index}")
    return container(name, labels=labels, mounts=[MOUNT], Devices=devices, **options)


def test_a_new_container_gets_the_gpu_by_its_node(case):
    plan = case.plan(gpus=[1], env={"A": "1"})
    assert (plan["module"], plan["engine"]) == ("community.docker.docker_container", "docker")
    assert plan["module_args"] == {
        "name": "ct",
        "image": "image",
        "state": "started",
        "pull": "never",
        "recreate": False,
        "restart": False,
        "env": {
            "A": "1",
            "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64:/usr/local/nvidia/lib",
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/nvidia/bin",
        },
        "devices": [*CONTROL, "/dev/nvidia2"],
        "volumes": [f"{VOLUME_NAME}:/usr/local/nvidia:ro"],
        "labels": {"gpufleet.gpus": UUIDS[1], "gpufleet.isolation": "volume"},
    }
    assert plan["driver_volume"] is None
    assert plan["gpu_diff"] == {
        "before": NOTHING,
        "after": {
            "exists": True,
            "running": True,
            "gpus": [f"{UUIDS[1]} (GPU 1, NVIDIA A100-SXM4-40GB)"],
            "isolation": "volume",
            "exclusive": False,
            "recreate": [],
        },
    }
    assert plan["gpu_assignment"] == {
        "uuids": [UUIDS[1]],
        "indexes": [1],
        "isolation": "volume",
        "engine": "docker",
        "exclusive": False,
        "reason": f"GPU 1 ({UUIDS[1]}): volume is the best that works here (cdi: docker 20.10.24 has no CDI, docker 25 "
        "and later do)",
        "changes": [],
        "warnings": [],
    }
    assert case.reserved() == {"ct": {UUIDS[1]}}


@pytest.mark.parametrize("gpus", [[1], ["1"], [UUIDS[1]], ["GPU-aaaa1"], ["3b:00.0"], 1, "1"])
def test_the_same_gpu_written_differently_changes_nothing(case, gpus):
    case.has(given_gpu(1))
    plan = case.plan(gpus=gpus)
    assert plan["gpu_assignment"]["uuids"] == [UUIDS[1]]
    assert (plan["gpu_changed"], plan["module_args"]["recreate"]) == (False, False)
    assert plan["gpu_diff"]["before"] == plan["gpu_diff"]["after"]


def test_another_gpu_recreates_and_the_diff_names_both(case):
    case.has(given_gpu(1))
    plan = case.plan(gpus=[2])
    assert plan["module_args"]["recreate"]
    assert plan["module_args"]["labels"]["gpufleet.gpus"] == UUIDS[2]
    assert plan["gpu_diff"]["before"]["gpus"] == [f"{UUIDS[1]} (GPU 1, NVIDIA A100-SXM4-40GB)"]
    assert plan["gpu_diff"]["after"]["gpus"] == [f"{UUIDS[2]} (GPU 2, NVIDIA A100-SXM4-40GB)"]


def test_fewer_gpus_recreate_though_the_engines_module_would_let_more_pass(case):
    two = container("ct", mounts=[MOUNT], Devices=nodes(*CONTROL, "/dev/nvidia2", "/dev/nvidia1"))
    case.has(two)
    assert case.plan(gpus=[1])["module_args"]["recreate"]
    assert case.plan(gpus="none")["module_args"]["recreate"]


@pytest.mark.parametrize(
    "change",
    [
        {"mounts": []},
        {"mounts": [{**MOUNT, "Name": "nvidia_driver_525.1"}]},
        {"mounts": [{**MOUNT, "RW": True}]},
        {"Devices": nodes("/dev/nvidia2", "/dev/nvidiactl")},
        {"Devices": nodes("/dev/nvidia2", *CONTROL, "/dev/nvidia-caps/nvidia-cap1")},
        {"Devices": nodes("/dev/nvidia2", *CONTROL, "/dev/dri/renderD129")},
        {"Devices": nodes("/dev/nvidia1", *CONTROL)},
        {"Devices": [], "DeviceRequests": [{"Driver": "", "DeviceIDs": [UUIDS[1]], "Capabilities": [["gpu"]]}]},
    ],
)
def test_a_container_that_was_altered_is_repaired(case, change):
    made = given_gpu(1)
    made["Mounts"] = change.pop("mounts", made["Mounts"])
    made["HostConfig"].update(change)
    case.has(made)
    assert case.plan(gpus=[1], isolation="volume")["module_args"]["recreate"]


def test_a_moved_minor_number_recreates(case):
    case.has(given_gpu(1))
    case.facts = facts([gpu(0), gpu(1, minor=1), gpu(2, minor=2), gpu(3)])
    plan = case.plan(gpus=[UUIDS[1]])
    assert plan["module_args"]["recreate"]
    assert "/dev/nvidia1" in plan["module_args"]["devices"]


def test_capabilities_that_need_other_nodes_recreate(case):
    case.has(given_gpu(1))
    assert not case.plan(gpus=[1], capabilities=["utility", "compute"])["gpu_changed"]
    assert case.plan(gpus=[1], capabilities=["utility"])["gpu_changed"]


@pytest.mark.parametrize("where", ["devices", "engine_options"])
@pytest.mark.parametrize("own", ["/dev/nvidia-modeset", "/dev/fuse", "/dev/nvidia0", "/dev/dri/card9", "/dev/nvidia2"])
@pytest.mark.parametrize("gpus", [[1], 1])
def test_the_users_own_devices_are_no_difference(case, where, own, gpus):
    made = given_gpu(1)
    if own != "/dev/nvidia2":
        made["HostConfig"]["Devices"] += nodes(own)
    case.has(made)
    options = {"devices": [own]} if where == "devices" else {"engine_options": {"devices": own}}
    plan = case.plan(gpus=gpus, **options)
    assert plan["gpu_assignment"]["changes"] == []
    assert sorted(plan["module_args"]["devices"]) == sorted({own, *CONTROL, "/dev/nvidia2"})


@pytest.mark.parametrize(
    ("has", "capabilities"),
    [
        # Not there when the container was made.
        (("/dev/nvidiactl", "/dev/nvidia-uvm"), None),
        (CONTROL, ["compute", "graphics", "utility"]),
        # Gone since, or more than is asked for: they open no GPU.
        ((*CONTROL, "/dev/nvidia-modeset"), None),
        ((*CONTROL, "/dev/nvidia-nvlink"), None),
    ],
)
def test_control_nodes_that_come_and_go_are_no_difference(case, has, capabilities):
    case.file("/dev/nvidia-modeset")
    labels = {"gpufleet.capabilities": ",".join(capabilities)} if capabilities else {}
    made = given_gpu(1, labels=labels)
    made["HostConfig"]["Devices"] = nodes(*has, "/dev/nvidia2")
    case.has(made)
    plan = case.plan(gpus=[1], capabilities=capabilities)
    assert plan["gpu_assignment"]["changes"] == []
    # Docker's module would take a node that it lacks for a difference.
    assert sorted(plan["module_args"]["devices"]) == sorted([*has, "/dev/nvidia2"])
    case.docker.images["image"] = Image(id="sha256:2")
    assert "/dev/nvidia-uvm-tools" in case.plan(gpus=[1])["module_args"]["devices"]


@pytest.mark.parametrize(
    ("has", "params", "changes"),
    [
        (("/dev/nvidiactl",), {}, ["device node missing: /dev/nvidia-uvm"]),
        (("/dev/nvidia-uvm",), {}, ["device node missing: /dev/nvidiactl"]),
        (("/dev/nvidiactl",), {"capabilities": ["utility"]}, ["capabilities: compute, utility → utility"]),
        (
            (*CONTROL, "/dev/nvidia-caps/nvidia-cap1", "/dev/dri/renderD129"),
            {},
            ["device node too many: /dev/dri/renderD129", "device node too many: /dev/nvidia-caps/nvidia-cap1"],
        ),
        ((*CONTROL, "/dev/nvidia0"), {}, [f"GPU taken away: {UUIDS[3]} (GPU 3, NVIDIA A100-SXM4-40GB)"]),
        (
            CONTROL,
            {"gpus": [2]},
            [
                f"GPU taken away: {UUIDS[1]} (GPU 1, NVIDIA A100-SXM4-40GB)",
                f"GPU given: {UUIDS[2]} (GPU 2, NVIDIA A100-SXM4-40GB)",
            ],
        ),
        (CONTROL, {"exclusive": True}, ["exclusive: false → true"]),
    ],
)
def test_why_a_container_is_recreated_is_said(case, has, params, changes):
    made = given_gpu(1)
    made["HostConfig"]["Devices"] = nodes(*has, "/dev/nvidia2")
    case.has(made)
    plan = case.plan(**{"gpus": [1], **params})
    assert plan["gpu_assignment"]["changes"] == changes
    assert plan["gpu_diff"]["before"]["recreate"] == []
    assert plan["gpu_diff"]["after"]["recreate"] == changes
    assert plan["module_args"]["recreate"]


def test_a_missing_driver_volume_is_a_reason_that_is_said(case):
    case.has(given_gpu(1))
    case.facts["nvidia_driver"]["version"] = "550.163.01"
    changes = ["driver volume: nvidia_driver_550.163.01:/usr/local/nvidia:ro is not mounted"]
    assert case.plan(gpus=[1])["gpu_assignment"]["changes"] == changes


def test_another_isolation_is_a_reason_that_is_said(case):
    case.file("/usr/bin/nvidia-container-runtime-hook")
    case.docker._state = docker(started=None)
    case.has(given_gpu(1))
    plan = case.plan(gpus=[1], isolation="device_requests")
    assert plan["gpu_assignment"]["changes"] == ["isolation: volume → device_requests"]


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("/dev/nvidia2", []),
        # Docker's module would take it apart at each colon.
        ("/dev/char/195:2", ["device node by another name: /dev/char/195:2"]),
    ],
)
def test_a_node_in_other_words_is_adopted_where_dockers_module_can_say_it(case, path, changes):
    made = container("ct", mounts=[MOUNT], Devices=nodes(*CONTROL))
    made["HostConfig"]["Devices"].append(
        {"PathOnHost": path, "PathInContainer": "/dev/nvidia2", "CgroupPermissions": "rw"}
    )
    case.has(made)
    plan = case.plan(gpus=[1])
    assert plan["gpu_assignment"]["changes"] == changes
    last = "/dev/nvidia2" if changes else "/dev/nvidia2:/dev/nvidia2:rw"
    assert plan["module_args"]["devices"] == [*CONTROL, last]


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("name", [UUIDS[1], "1", "all"])
def test_somebody_elses_cdi_container_is_adopted_as_it_is(case, ours, name):
    """Podman's module compares the words of the command line, and all of the environment."""
    edits = {
        "deviceNodes": [{"path": "/dev/nvidia2"}],
        "mounts": [{"hostPath": "/", "containerPath": "/usr/local/nvidia"}],
    }
    case.facts = facts([gpu(1)])
    devices = [{"name": one, "containerEdits": edits} for one in (UUIDS[1], "1", "all")]
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    case.file("/etc/cdi/nvidia.json", json.dumps(spec))
    made = container("ct", labels={"gpufleet.isolation": "cdi"} if ours else {})
    made["Config"]["CreateCommand"] = ["podman", "run", "--device", f"nvidia.com/gpu={name}", "image"]
    case.podman = Engine(podman(), containers=[made])
    plan = case.plan(engine="podman", gpus=[1])
    assert plan["gpu_assignment"]["changes"] == []
    assert plan["module_args"]["device"] == [f"nvidia.com/gpu={name}"]
    assert ("env" in plan["module_args"]) is ours


def test_somebody_elses_container_with_the_vendors_runtime_is_adopted_as_it_is(case):
    case.docker._state = docker(runtimes={"runc": "runc", "nvidia": "nvidia-container-runtime"})
    case.has(container("ct", env=["NVIDIA_VISIBLE_DEVICES=1"], Runtime="nvidia"))
    plan = case.plan(gpus=[UUIDS[1]], isolation="runtime")
    assert plan["gpu_assignment"]["changes"] == []
    assert plan["module_args"]["env"] == {"NVIDIA_VISIBLE_DEVICES": "1"}
    assert case.plan(gpus=[2], isolation="runtime")["module_args"]["env"] == {"NVIDIA_VISIBLE_DEVICES": UUIDS[2]}


def test_podman_recreates_for_an_image_that_has_moved_on(case):
    """Its module goes by the image's name."""
    case.podman = Engine(podman(), containers=[given_gpu(1)], volumes={VOLUME_NAME: "/volume"})
    case.podman.images["image"] = Image(id="feedbeef0000ffff")
    plan = case.plan(engine="podman", gpus=[1])
    assert plan["module_args"]["recreate"]
    assert plan["gpu_assignment"]["changes"] == ["image: 1 → feedbeef0000"]
    case.podman.images["image"] = Image(id="1")
    assert not case.plan(engine="podman", gpus=[1])["module_args"]["recreate"]


def test_a_container_of_somebody_elses_is_adopted_without_labels(case):
    made = given_gpu(1)
    made["Config"]["Labels"] = {}
    case.has(made)
    plan = case.plan(gpus=[1])
    assert not plan["gpu_changed"]
    assert "labels" not in plan["module_args"]


EXCLUSIVE = {"gpufleet.exclusive": "true"}


@pytest.mark.parametrize(
    ("labels", "exclusive", "changes"),
    [
        ({}, False, []),
        (EXCLUSIVE, True, []),
        ({}, True, ["exclusive: false → true"]),
        (EXCLUSIVE, False, ["exclusive: true → false"]),
    ],
)
def test_exclusive_is_kept_on_the_container_so_that_others_go_by_it(case, labels, exclusive, changes):
    case.has(given_gpu(1, labels=labels))
    plan = case.plan(gpus=[1], exclusive=exclusive)
    assert plan["gpu_assignment"]["changes"] == changes
    assert plan["module_args"]["recreate"] is bool(changes)
    assert plan["module_args"]["labels"].get("gpufleet.exclusive") == ("true" if exclusive else None)
    assert plan["gpu_assignment"]["exclusive"] is exclusive
    assert plan["gpu_diff"]["before"]["exclusive"] is bool(labels)
    assert plan["gpu_diff"]["after"]["exclusive"] is exclusive
    assert plan["gpu_diff"]["after"]["recreate"] == changes


def test_a_driver_upgrade_recreates_with_the_new_volume(case):
    case.has(given_gpu(1))
    case.facts["nvidia_driver"]["version"] = "550.163.01"
    plan = case.plan(gpus=[1])
    assert plan["module_args"]["recreate"]
    assert plan["module_args"]["volumes"] == ["nvidia_driver_550.163.01:/usr/local/nvidia:ro"]
    assert plan["driver_volume"] == {"engine": ["docker"], "path": "/var/lib/gpufleet/volumes"}


@pytest.mark.parametrize("volumes", [{}, {VOLUME_NAME: "/empty"}, {VOLUME_NAME: ""}])
def test_a_driver_volume_that_is_missing_or_empty_is_asked_for(case, volumes):
    case.docker.volumes = volumes
    plan = case.plan(gpus=[1], driver_volume_path="/srv/v", engine_options={"docker_host": "unix:///d"})
    assert plan["driver_volume"] == {"engine": ["docker"], "path": "/srv/v", "docker_host": "unix:///d"}


def test_a_count_keeps_what_the_container_has(case):
    case.has(given_gpu(3))
    plan = case.plan(gpus=1)
    assert (plan["gpu_assignment"]["indexes"], plan["gpu_changed"]) == ([3], False)
    assert frozenset({"min", "identity", "topology"}) in case.asked
    assert sorted(case.plan(gpus=2)["gpu_assignment"]["indexes"]) == [2, 3]


def test_topology_is_only_asked_for_when_it_can_matter(case):
    case.plan(gpus=[1])
    assert case.asked == [frozenset({"min", "identity"})]


def test_without_gpus_the_driver_is_not_even_asked(case):
    case.facts = facts([], state="no_driver")
    plan = case.plan(gpus="none")
    assert (case.asked, plan["gpu_assignment"]["reason"]) == ([], "no GPU was asked for")
    assert not {"devices", "env", "labels", "volumes"} & set(plan["module_args"])
    assert case.plan()["gpu_assignment"]["reason"] == "the image needs no GPU and none was asked for"


@pytest.mark.parametrize(
    ("image", "indexes", "words"),
    [
        (
            Image("1", labels={"com.nvidia.volumes.needed": "nvidia_driver"}),
            [0, 1, 2, 3],
            "label com.nvidia.volumes.needed",
        ),
        (Image("1", env={"NVIDIA_VISIBLE_DEVICES": "all"}), [0, 1, 2, 3], "NVIDIA_VISIBLE_DEVICES asks (all)"),
        (Image("1", env={"NVIDIA_VISIBLE_DEVICES": "0,2"}), [0, 2], "NVIDIA_VISIBLE_DEVICES asks (0,2)"),
        (Image("1", env={"NVIDIA_VISIBLE_DEVICES": "void"}), [], "the image needs no GPU"),
    ],
)
def test_without_gpus_the_image_decides(case, image, indexes, words):
    case.docker.images["image"] = image
    assignment = case.plan()["gpu_assignment"]
    assert assignment["indexes"] == indexes
    assert words in assignment["reason"]


def test_none_is_none_also_for_an_image_that_wants_all(case):
    case.docker.images["image"] = Image("1", env={"NVIDIA_VISIBLE_DEVICES": "all"})
    plan = case.plan(gpus="none")
    assert plan["module_args"]["env"] == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_mig_devices_are_given_by_their_capability_nodes(case):
    case.facts = facts([gpu(0, mig=mig(slice_(0), slice_(1))), gpu(1)])
    case.file("/proc/driver/nvidia-caps/mig-minors", "gpu3/gi8/access 31\ngpu3/gi8/ci0/access 32\n")
    case.file("/dev/nvidia-caps/nvidia-cap31")
    case.file("/dev/nvidia-caps/nvidia-cap32")
    plan = case.plan(gpus=["0:1"])
    assert plan["module_args"]["devices"][3:] == [
        "/dev/nvidia3",
        "/dev/nvidia-caps/nvidia-cap31",
        "/dev/nvidia-caps/nvidia-cap32",
    ]
    assert plan["gpu_assignment"]["indexes"] == ["0:1"]
    assert plan["gpu_diff"]["after"]["gpus"] == [f"{MIG_UUIDS[1]} (MIG 0:1, 1g.5gb)"]


def test_podman_gets_cdi_where_there_is_a_specification(case):
    case.podman = Engine(podman())
    devices = [{"name": UUIDS[1], "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia2"}]}}]
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    case.file("/etc/cdi/nvidia.json", json.dumps(spec))
    plan = case.plan(engine="podman", gpus=[1])
    assert plan["module"] == "containers.podman.podman_container"
    assert plan["module_args"]["device"] == [f"nvidia.com/gpu={UUIDS[1]}"]
    assert plan["module_args"]["label"] == {"gpufleet.gpus": UUIDS[1], "gpufleet.isolation": "cdi"}
    assert plan["driver_volume"] is None


@pytest.mark.parametrize("options", [None, {}])
@pytest.mark.parametrize("count", [0, None])
def test_a_device_request_is_repeated_as_docker_keeps_it(case, options, count):
    """Docker's module compares requests word by word, and docker versions differ in what they make of a gap."""
    case.file("/usr/bin/nvidia-container-runtime-hook")
    case.docker._state = docker(started=None)
    kept = {"Driver": "", "Count": count, "DeviceIDs": [UUIDS[1]], "Capabilities": [["gpu"]], "Options": options}
    case.has(container("ct", DeviceRequests=[kept, {"Driver": "cdi", "DeviceIDs": ["vendor.com/net=a"]}]))
    plan = case.plan(gpus=[1], isolation="device_requests")
    assert not plan["gpu_changed"]
    assert plan["module_args"]["device_requests"] == [
        {"driver": "", "count": count, "device_ids": [UUIDS[1]], "capabilities": [["gpu"]], "options": options}
    ]


@pytest.mark.parametrize(
    ("requested", "env", "capabilities", "changes"),
    [
        (["gpu"], [], None, []),
        (["gpu"], [], ["compute", "utility"], []),
        (["gpu", "video"], [], None, []),
        (["gpu", "video", "utility"], [], ["utility", "video"], []),
        (["gpu"], ["NVIDIA_DRIVER_CAPABILITIES=video"], ["video"], []),
        (["gpu"], [], ["video"], ["capabilities: compute, utility → video"]),
        (["gpu", "video"], [], ["video", "utility"], ["capabilities: video → utility, video"]),
    ],
)
def test_capabilities_count_under_device_requests(case, requested, env, capabilities, changes):
    case.file("/usr/bin/nvidia-container-runtime-hook")
    case.docker._state = docker(started=None)
    kept = {"Driver": "", "Count": 0, "DeviceIDs": [UUIDS[1]], "Capabilities": [requested], "Options": {}}
    case.has(container("ct", DeviceRequests=[kept], env=env))
    plan = case.plan(gpus=[1], isolation="device_requests", capabilities=capabilities)
    assert plan["gpu_assignment"]["changes"] == changes
    asked = plan["module_args"]["device_requests"][0]["capabilities"]
    assert asked == ([["gpu", *capabilities]] if changes else [requested])


@pytest.mark.parametrize(
    ("visible", "indexes"), [("0", [0]), ("2", [2]), ("1,3", [1, 3]), ("GPU-bbbb", [2]), ("all", [0, 1, 2, 3])]
)
def test_what_an_image_names_is_never_a_count(case, visible, indexes):
    case.docker.images["image"] = Image("1", env={"NVIDIA_VISIBLE_DEVICES": visible})
    assert case.plan()["gpu_assignment"]["indexes"] == indexes


def test_a_count_of_none_says_so(case):
    assert case.plan(gpus=0)["gpu_assignment"]["reason"] == "a count of 0 was asked for (GPU 0 is gpus: [0])"


def test_podman_is_not_asked_to_restart_what_it_must_recreate(case):
    case.podman = Engine(podman(), containers=[given_gpu(1)], volumes={VOLUME_NAME: "/volume"})
    plan = case.plan(engine="podman", gpus=[2], restart=True)
    assert plan["module_args"]["recreate"]
    assert "force_restart" not in plan["module_args"]
    assert case.plan(engine="podman", gpus=[1], restart=True)["module_args"]["force_restart"]


# -- exclusive ---------------------------------------------------------------------------------------------------


def test_exclusive_counts_see_both_engines_and_reservations(case):
    case.has(given_gpu(0, "a"), container("all", status="exited", Devices=nodes("/dev/nvidia1")))
    case.podman = Engine(
        podman(), containers=[container("p", policy="always", status="exited", Devices=nodes("/dev/nvidia2"))]
    )
    with case.reservations.locked():
        case.reservations.reserve("docker", "r", [UUIDS[2]], exclusive=True)
    plan = case.plan(gpus=1, exclusive=True)
    assert plan["gpu_assignment"]["indexes"] == [3]
    with pytest.raises(SelectionError) as error:
        case.plan(name="second", gpus=1, exclusive=True)
    message = str(error.value)
    assert "exclusive: 1 GPU asked for, but only 0 of 4 are free." in message
    assert f"GPU 0 ({UUIDS[0]}) by docker container a;" in message
    assert f"GPU 1 ({UUIDS[1]}) by podman container p (exited, restart policy always);" in message
    assert re.search(
        r"GPU 2 \(.*\) by docker container r \(reserved by a run in progress for at most \d+ s\);", message
    )
    assert f"GPU 3 ({UUIDS[3]}) by docker container ct (reserved" in message


def test_two_plans_never_give_one_gpu_twice(case):
    plans = [case.plan(name=f"c{number}", gpus=1, exclusive=True) for number in range(4)]
    assert sorted(plan["gpu_assignment"]["indexes"][0] for plan in plans) == [0, 1, 2, 3]
    with pytest.raises(SelectionError, match="only 0 of 4 are free"):
        case.plan(name="c4", gpus=1, exclusive=True)
    with case.reservations.locked():
        case.reservations.release(plans[2]["token"])
    assert case.plan(name="c4", gpus=1, exclusive=True)["gpu_assignment"]["indexes"] == [2]


def test_a_reservation_also_guards_what_is_not_exclusive_until_it_is_there(case):
    case.plan(name="shared", gpus=[0])
    assert case.plan(gpus=1, exclusive=True)["gpu_assignment"]["indexes"] != [0]


def test_an_exclusive_container_keeps_its_gpu_and_guards_it_while_it_may_be_recreated(case):
    case.has(given_gpu(2, labels=EXCLUSIVE))
    plan = case.plan(gpus=1, exclusive=True)
    assert (plan["gpu_assignment"]["indexes"], plan["gpu_changed"]) == ([2], False)
    assert case.reserved() == {"ct": {UUIDS[2]}}


def test_a_shared_gpu_is_given_up_for_a_free_one(case):
    case.has(given_gpu(2), given_gpu(2, "other"))
    plan = case.plan(gpus=1, exclusive=True)
    assert plan["gpu_assignment"]["indexes"] != [2]
    assert plan["gpu_changed"]


def test_what_a_container_is_about_to_get_counts_beside_what_it_has(case):
    """Its reservation must not be dropped because a container of that name is there, with another GPU."""
    case.has(given_gpu(0, "other"))
    with case.reservations.locked():
        case.reservations.reserve("docker", "other", [UUIDS[1]], exclusive=True)
        case.reservations.reserve("podman", "other", [UUIDS[2]], exclusive=False)
    assert case.plan(gpus=1, exclusive=True)["gpu_assignment"]["indexes"] == [3]
    with pytest.raises(SelectionError, match="only 0 of 4 are free") as error:
        case.plan(name="second", gpus=1, exclusive=True)
    assert f"GPU 1 ({UUIDS[1]}) by docker container other (reserved by" in str(error.value)
    # A count of others is told as well that it is promised.
    assert case.plan(name="third", gpus=1)["gpu_assignment"]["indexes"] == [2]


@pytest.mark.parametrize("status", ["running", "exited"])
@pytest.mark.parametrize("exclusive", [True, False])
def test_whatever_the_engines_module_may_do_the_gpus_are_reserved(case, status, exclusive):
    """It may recreate the container for another reason than the GPUs, and while it is away nobody else holds them."""
    case.has(given_gpu(2, status=status, labels=EXCLUSIVE if exclusive else {}))
    plan = case.plan(gpus=[2], exclusive=exclusive, env={"A": "new"})
    assert not plan["gpu_changed"]
    assert plan["token"]
    del case.docker.table["ct"]
    assert 2 not in [case.plan(name=f"d{n}", gpus=1, exclusive=True)["gpu_assignment"]["indexes"][0] for n in range(3)]


@pytest.mark.parametrize(
    ("params", "config", "seconds"),
    [
        ({}, {}, 300),
        ({"stop_timeout": 900}, {}, 1200),
        ({"engine_options": {"stop_timeout": 900}}, {}, 1200),
        ({"engine": "podman", "engine_options": {"stop_time": "600"}}, {}, 900),
        ({}, {"StopTimeout": 700}, 1000),
        ({"stop_timeout": 60}, {"StopTimeout": 700}, 1000),
        ({"stop_timeout": -1}, {"StopTimeout": None}, 300),
    ],
)
def test_a_reservation_outlasts_the_time_that_the_container_takes_to_stop(case, params, config, seconds):
    made = given_gpu(1)
    made["Config"].update(config)
    case.has(made)
    case.podman = Engine(podman(), containers=[made], volumes={VOLUME_NAME: "/volume"})
    case.plan(gpus=[1], **{"engine": "docker", **params})
    (holder,) = case.reservations.holders(("", ""))
    assert holder.detail == f"reserved by a run in progress for at most {seconds} s"


def sleeping(*titles):
    uses = tuple(Use(title, frozenset()) for title in titles)
    return StoppedDocker(lambda: StoppedEngine("docker", uses=uses))


@pytest.mark.parametrize(
    ("state", "there", "changed"),
    [
        ("started", None, True),
        ("started", "exited", True),
        ("started", "running", False),
        ("present", None, True),
        ("present", "exited", False),
        ("present", "running", False),
        ("stopped", None, True),
        ("stopped", "exited", False),
        ("stopped", "running", True),
        ("stopped", "paused", True),
        ("absent", None, False),
        ("absent", "exited", True),
        ("absent", "running", True),
    ],
)
def test_a_check_predicts_for_a_docker_that_sleeps_by_what_it_has(case, state, there, changed):
    case.docker = sleeping("ctc (running)", *([f"ct ({there})"] if there else []))
    plan = case.plan(check=True, gpus=[1], state=state)
    assert (plan["predicted"], plan["needless"], plan["engine"]) == (True, not changed, "docker")
    ran = there in ("running", "paused")
    runs = state == "started" or (state == "present" and ran)
    assert plan["gpu_diff"]["before"] == {**NOTHING, "exists": there is not None, "running": ran}
    assert plan["gpu_diff"]["after"] == {**NOTHING, "exists": state != "absent", "running": runs}
    (warning,) = plan["gpu_assignment"]["warnings"]
    assert warning.startswith("container ct: docker is not running, and check mode does not start it: only whether the")


def test_a_docker_that_sleeps_refuses_what_it_would_refuse_awake(case):
    case.docker = sleeping()
    with pytest.raises(PlanError, match="state=started needs an image for container ct"):
        case.plan(check=True, image=None)


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_docker_that_sleeps_is_not_in_the_way_of_a_check_with_podman(case, exclusive):
    case.docker, case.podman = sleeping(), Engine(podman(), volumes={VOLUME_NAME: "/volume"})
    plan = case.plan(check=True, engine="podman", gpus=1, exclusive=exclusive)
    assert plan["gpu_assignment"]["uuids"] == [UUIDS[0]]
    said = "Which GPUs docker's containers hold is not known: docker is not running, and check mode does not start it"
    assert f"container ct: {said}" in plan["gpu_assignment"]["warnings"]


class Broken(Engine):
    def containers(self):
        raise EngineError("podman ps exited 125: level=warning\nError: newuidmap not found")

    def container(self, name):
        return self.containers()


@pytest.mark.parametrize(
    ("params", "root_user", "refused"),
    [
        ({"gpus": 1, "exclusive": True}, True, True),
        ({"gpus": 1, "exclusive": True}, False, False),
        ({"gpus": 1}, True, False),
    ],
)
def test_another_engine_that_does_not_work_is_in_the_way_of_what_it_could_veto(case, params, root_user, refused):
    case.podman = Broken(podman())
    if refused:
        with pytest.raises(EngineError) as error:
            case.plan(root_user=root_user, **params)
        assert str(error.value) == (
            "exclusive: which GPUs podman's containers hold cannot be found out (Error: newuidmap not found). Mend or "
            "remove podman, or leave exclusive out."
        )
    else:
        warnings = case.plan(root_user=root_user, **params)["gpu_assignment"]["warnings"]
        said = "container ct: Which GPUs podman's containers hold is not known: Error: newuidmap not found"
        assert said in warnings
    assert case.plan(gpus=[1], root_user=root_user)["gpu_assignment"]["warnings"] == []


def test_names_that_hold_nothing_can_be_told(case):
    case.has(container("dcgm", DeviceRequests=[{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]))
    with pytest.raises(SelectionError, match="by docker container dcgm"):
        case.plan(gpus=1, exclusive=True)
    assert case.plan(gpus=1, exclusive=True, exclusive_ignore=["dcgm"])["gpu_assignment"]["uuids"]


def test_sharing_what_was_promised_to_another_is_warned_of(case):
    case.has(given_gpu(1, "trainer", labels={"gpufleet.exclusive": "true"}))
    (warning,) = case.plan(gpus=[1])["gpu_assignment"]["warnings"]
    assert warning == (
        f"container ct: GPU 1 ({UUIDS[1]}) is shared with docker container trainer, which was promised it for itself "
        "alone."
    )
    assert case.plan(gpus=1)["gpu_assignment"]["indexes"] != [1]


def test_check_mode_reserves_nothing_and_leaves_no_file(case, tmp_path):
    plan = case.plan(check=True, gpus=1, exclusive=True)
    assert plan["gpu_assignment"]["uuids"]
    assert plan["token"] is None
    assert not (tmp_path / "run").exists()


# -- states ------------------------------------------------------------------------------------------------------


def test_absent_needs_neither_driver_nor_image(case):
    case.facts = facts([], state="error")
    case.has(given_gpu(1))
    plan = case.plan(
        state="absent", image=None, engine_options={"keep_volumes": False, "log_driver": "x"}, stop_timeout=3
    )
    assert plan["module_args"] == {"name": "ct", "state": "absent", "keep_volumes": False, "stop_timeout": 3}
    assert plan["gpu_diff"]["before"]["gpus"] == [UUIDS[1]]
    assert plan["gpu_diff"]["after"] == NOTHING
    assert case.asked == []
    assert not plan["needless"]


def test_absent_of_nothing_needs_no_call(case):
    assert case.plan(state="absent", image=None)["needless"]


def test_stopped_needs_no_driver_and_leaves_the_container_as_it_is(case):
    case.facts = facts([], state="error")
    case.has(given_gpu(1))
    plan = case.plan(state="stopped", gpus=[2], stop_timeout=3)
    assert plan["module_args"] == {
        "name": "ct",
        "state": "stopped",
        "stop_timeout": 3,
        "comparisons": {"*": "ignore"},
    }
    assert plan["gpu_assignment"]["uuids"] == [UUIDS[1]]
    assert (plan["gpu_diff"]["before"]["running"], plan["gpu_diff"]["after"]["running"]) == (True, False)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (given_gpu(1), ([UUIDS[1]], [1], "volume", False)),
        (given_gpu(1, labels={"gpufleet.exclusive": "true"}), ([UUIDS[1]], [1], "volume", True)),
        # Somebody else's, without labels.
        (
            container("ct", Devices=nodes("/dev/nvidia2", "/dev/nvidia3")),
            ([UUIDS[0], UUIDS[1]], [0, 1], "volume", False),
        ),
        (
            container("ct", DeviceRequests=[{"Driver": "", "DeviceIDs": ["GPU-gone"], "Capabilities": [["gpu"]]}]),
            (["GPU-gone"], [], "device_requests", False),
        ),
        (container("ct"), ([], [], "none", False)),
    ],
)
@pytest.mark.parametrize("status", ["running", "exited"])
def test_a_stopped_containers_result_is_what_it_has(case, made, status, expected):
    made["State"] = {"Status": status, "Running": status == "running"}
    case.has(made)
    plan = case.plan(state="stopped", gpus=[3], exclusive=True)
    said = plan["gpu_assignment"]
    assert (said["uuids"], said["indexes"], said["isolation"], said["exclusive"]) == expected
    before, after = plan["gpu_diff"]["before"], plan["gpu_diff"]["after"]
    assert after == {**before, "running": False}
    assert before["running"] is (status == "running")
    assert [name.partition(" ")[0] for name in after["gpus"]] == said["uuids"]
    assert plan["token"] is None


def test_stopping_works_without_a_binding(case):
    def gather(_subsets):
        raise BindingMissing("no pynvml")

    case.gather = gather
    case.has(given_gpu(1))
    assert case.plan(state="stopped")["gpu_assignment"]["uuids"] == [UUIDS[1]]


@pytest.mark.parametrize("state", ["stopped", "present"])
def test_a_container_that_is_not_there_is_made_but_not_started(case, state):
    plan = case.plan(state=state, gpus=[1])
    assert plan["module_args"]["state"] == state
    assert plan["module_args"]["devices"]
    assert (plan["gpu_diff"]["after"]["exists"], plan["gpu_diff"]["after"]["running"]) == (True, False)


def test_a_stopped_container_is_started_with_the_gpus_it_has(case):
    case.has(given_gpu(2, status="exited", labels=EXCLUSIVE))
    plan = case.plan(gpus=1, exclusive=True)
    assert (plan["gpu_assignment"]["indexes"], plan["gpu_changed"]) == ([2], False)
    assert case.reserved() == {"ct": {UUIDS[2]}}


def test_a_stopped_container_gets_others_where_its_own_are_taken(case):
    case.has(given_gpu(2, status="exited"), given_gpu(2, "other"))
    plan = case.plan(gpus=1, exclusive=True)
    assert plan["gpu_assignment"]["indexes"] != [2]
    assert plan["gpu_changed"]


# -- engines and images ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("docker_absence", "podman_absence", "there", "expected"),
    [
        (None, None, None, "docker"),
        (None, "no podman", None, "docker"),
        ("no docker", None, None, "podman"),
        (None, None, "podman", "podman"),
        (None, None, "docker", "docker"),
    ],
)
def test_auto_takes_the_engine_that_is_there_or_has_the_container(
    case, docker_absence, podman_absence, there, expected
):
    case.docker = Engine(docker(), absence=docker_absence, containers=[container("ct")] if there == "docker" else [])
    case.podman = Engine(podman(), absence=podman_absence, containers=[container("ct")] if there == "podman" else [])
    assert case.plan(gpus="none")["engine"] == expected


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("docker", "engine=docker: docker does not answer. Install and start it (role container_engine)"),
        ("podman", "engine=podman: the command podman is not in PATH. Install"),
        (
            "auto",
            "No container engine answers (docker: docker does not answer; podman: the command podman is not in PATH)",
        ),
    ],
)
def test_an_engine_that_is_not_there_is_named(case, engine, words):
    case.docker = Engine(docker(), absence="docker does not answer")
    with pytest.raises(EngineError) as error:
        case.plan(engine=engine, gpus=[1])
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("engine", "policy", "there", "expected"),
    [
        ("docker", "missing", False, ("community.docker.docker_image_pull", {"name": "new", "pull": "not_present"})),
        ("docker", "always", True, ("community.docker.docker_image_pull", {"name": "new", "pull": "always"})),
        ("podman", "missing", False, ("containers.podman.podman_image", {"name": "new", "force": False})),
        ("podman", "always", True, ("containers.podman.podman_image", {"name": "new", "force": True})),
    ],
)
def test_an_image_is_pulled_before_anything_is_decided(case, engine, policy, there, expected):
    images = {"new": Image("1")} if there else {}
    case.docker, case.podman = Engine(docker(), images=images), Engine(podman(), images=images)
    plan = case.plan(engine=engine, image="new", pull=policy, gpus=[1])
    assert (plan["pull"]["module"], plan["pull"]["args"]) == expected
    assert case.asked == []


def test_after_the_pull_the_plan_goes_on(case):
    plan = case.plan(pull="always", gpus=[1], _pulled=True)
    assert plan["gpu_assignment"]["indexes"] == [1]
    with pytest.raises(PlanError, match="image new was pulled, but docker does not have it under that name"):
        case.plan(image="new", gpus=[1], _pulled=True)


def test_connection_options_reach_the_pull(case):
    plan = case.plan(image="new", engine_options={"docker_host": "unix:///x", "log_driver": "journald"})
    assert plan["pull"]["args"] == {"docker_host": "unix:///x", "name": "new", "pull": "not_present"}


def test_docker_is_reached_in_one_way_throughout(case):
    """Not all modules look at DOCKER_HOST; those that are called are told."""
    case.docker.volumes = {}
    plan = case.plan(gpus=[1], docker_host="unix:///env")
    assert plan["module_args"]["docker_host"] == "unix:///env"
    assert plan["driver_volume"]["docker_host"] == "unix:///env"
    assert case.plan(image="new", docker_host="unix:///env")["pull"]["args"]["docker_host"] == "unix:///env"
    case.has(container("ct"))
    for state in ("stopped", "absent"):
        assert case.plan(state=state, docker_host="unix:///env")["module_args"]["docker_host"] == "unix:///env"
    case.podman = Engine(podman(), volumes={VOLUME_NAME: "/volume"})
    assert "docker_host" not in case.plan(engine="podman", gpus=[1], docker_host="unix:///env")["module_args"]


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_check_mode_does_not_pull_and_says_what_it_leaves_open(case, engine):
    case.podman = Engine(podman(), volumes={VOLUME_NAME: "/volume"})
    plan = case.plan(check=True, engine=engine, pull="always", gpus=[1])
    assert "pull" not in plan
    assert not plan["predicted"]
    (warning,) = [text for text in plan["gpu_assignment"]["warnings"] if "pull" in text]
    assert warning == (
        "container ct: pull=always: check mode pulls nothing, so this is predicted with the image image that is here. "
        "A newer one recreates the container."
    )
    assert "is not here yet" in str(case.plan(check=True, engine=engine, pull="always", image="new", gpus=[1]))


def test_check_mode_predicts_without_an_image_and_says_what_it_could_not_check(case):
    plan = case.plan(check=True, image="new", gpus=[1])
    assert plan["predicted"]
    assert plan["gpu_assignment"]["warnings"] == [
        "container ct: image new is not here yet: what it requires is checked once it is pulled."
    ]
    assert not case.plan(check=True, gpus=[1])["predicted"]


@pytest.mark.parametrize(
    ("params", "error", "words"),
    [
        ({"image": None}, PlanError, "state=started needs an image for container ct"),
        ({"image": None, "state": "present"}, PlanError, "state=present needs an image"),
        (
            {"image": "new", "pull": "never"},
            PlanError,
            "image new is not on this host's docker and pull=never. Load or pull",
        ),
        ({"gpus": [9]}, SelectionError, "There is no GPU 9. This host has GPU 0 (GPU-aaaa0000"),
        ({"gpus": 9}, SelectionError, "9 GPUs asked for, but this host has 4"),
        ({"gpus": ["0:0"]}, SelectionError, "MIG device 0:0 is asked for, but MIG is off on GPU 0"),
        (
            {"gpus": [1], "isolation": "cdi"},
            IsolationError,
            "isolation=cdi cannot work here: docker 20.10.24 has no CDI",
        ),
        ({"gpus": [1], "isolation": "runtime"}, IsolationError, "docker has no runtime nvidia, only runc"),
        ({"gpus": True}, SelectionError, "gpus=True is a truth value"),
    ],
)
def test_errors_come_before_anything_is_touched(case, params, error, words):
    with pytest.raises(error) as raised:
        case.plan(**params)
    assert words in str(raised.value)
    assert case.reserved() == {}


@pytest.mark.parametrize("state", ["no_hardware", "no_driver", "driver_not_loaded", "version_mismatch", "error"])
def test_gpus_without_a_ready_driver_are_refused_with_the_state(case, state):
    case.facts = facts([], state=state, reason="Load the module.")
    with pytest.raises(SelectionError) as error:
        case.plan(gpus=[1])
    assert (
        str(error.value)
        == f"GPUs are asked for, but this host cannot give any (nvidia_gpu_state is {state}): Load the module."
    )


@pytest.mark.parametrize(
    ("image", "env", "words"),
    [
        (
            Image("1", labels={"com.nvidia.cuda.version": "13.0"}),
            {},
            "unsupported CUDA version: driver 12.2 < image 13.0",
        ),
        (
            Image("1", env={"NVIDIA_REQUIRE_CUDA": "cuda>=13.0"}),
            {},
            "unsupported CUDA version: driver 12.2 < image 13.0",
        ),
        (Image("1"), {"NVIDIA_REQUIRE_DRIVER": "driver>=999"}, "NVIDIA_REQUIRE_DRIVER=driver>=999"),
    ],
)
def test_an_image_that_is_not_served_is_refused(case, image, env, words):
    case.docker.images["image"] = image
    with pytest.raises(RequirementError) as error:
        case.plan(gpus=[1], env=env)
    assert words in str(error.value)
    assert case.plan(gpus=[1], env={**env, "NVIDIA_DISABLE_REQUIRE": "true"})["gpu_assignment"]["uuids"]
    assert case.plan(gpus="none", env=env)["gpu_assignment"]["uuids"] == []


def test_remarks_and_risks_are_in_the_result(case):
    case.docker.images["image"] = Image("1", labels={"com.nvidia.cuda.version": "12.9"})
    case.facts = facts(
        [gpu(0, compute_mode="prohibited", health={"state": "degraded", "reasons": ["it is too hot"]}), gpu(1)]
    )
    warnings = case.plan(gpus=[0], privileged=True)["gpu_assignment"]["warnings"]
    for words in ("compute mode prohibited", "it is too hot", "minor-version compatibility", "privileged: "):
        assert words in str(warnings)
    first = case.plan(gpus=[1])["gpu_assignment"]["warnings"][0]
    assert first.startswith("container ct: The image is made for CUDA 12.9")


PENDING = {"recovery_action": "gpu_reset", "health": {"state": "degraded", "reasons": ["the driver asks for a reset"]}}
HOT = {"health": {"state": "degraded", "reasons": ["it is too hot"]}}


def test_a_count_says_which_gpus_it_left_out_and_which_of_the_given_ones_are_degraded(case):
    case.facts = facts([gpu(0, **PENDING), gpu(1, compute_mode="prohibited"), gpu(2, **HOT), gpu(3)])
    given = case.plan(gpus=2)["gpu_assignment"]
    assert given["indexes"] == [2, 3]
    assert given["reason"].endswith(
        f"Left out as not usable: GPU 0 ({UUIDS[0]}): recovery action gpu_reset is pending; the driver asks for a "
        f"reset; GPU 1 ({UUIDS[1]}): compute mode is prohibited (nvidia-smi --id=1 --compute-mode=DEFAULT changes it)"
    )
    assert given["warnings"] == [f"container ct: GPU 2 ({UUIDS[2]}) is degraded: it is too hot"]


def test_a_running_container_leaves_a_gpu_that_became_unusable(case):
    case.has(given_gpu(0))
    assert case.plan(gpus=1)["gpu_assignment"]["indexes"] == [0]
    case.facts = facts([gpu(0, **HOT), gpu(1)])
    assert case.plan(gpus=1)["gpu_assignment"]["indexes"] == [0]
    case.facts = facts([gpu(0, **PENDING), gpu(1)])
    plan = case.plan(gpus=1)
    assert plan["gpu_assignment"]["indexes"] == [1]
    assert plan["gpu_assignment"]["changes"][0].startswith(f"GPU taken away: {UUIDS[0]}")
    assert "recovery action gpu_reset is pending" in plan["gpu_assignment"]["reason"]


@pytest.mark.parametrize("gpus", ["all", [0, 1]])
def test_unusable_gpus_that_are_named_or_part_of_all_are_given_with_a_warning_each(case, gpus):
    case.facts = facts([gpu(0, **PENDING), gpu(1, compute_mode="prohibited")])
    given = case.plan(gpus=gpus)["gpu_assignment"]
    assert given["indexes"] == [0, 1]
    assert given["warnings"] == [
        f"container ct: GPU 1 ({UUIDS[1]}) is in compute mode prohibited: no CUDA program can use it.",
        f"container ct: GPU 0 ({UUIDS[0]}) is degraded: the driver asks for a reset",
    ]
    assert "Left out" not in given["reason"]


def test_podman_gets_its_gpus_in_another_way_where_the_specification_is_stale(case):
    case.podman = Engine(podman(), volumes={VOLUME_NAME: "/volume"})
    devices = [{"name": UUIDS[1], "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia2"}]}}]
    library = "/usr/lib/libcuda.so.470.256.02"
    edits = {"mounts": [{"hostPath": library, "containerPath": library}]}
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": edits}
    case.file(library)  # left behind by the driver before
    case.file("/etc/cdi/nvidia.json", json.dumps(spec))
    given = case.plan(engine="podman", gpus=[1])["gpu_assignment"]
    assert given["isolation"] == "volume"
    assert "the CDI specification /etc/cdi/nvidia.json is stale" in given["reason"]
    with pytest.raises(IsolationError, match=r"isolation=cdi cannot work here: .*/etc/cdi/nvidia\.json is stale"):
        case.plan(engine="podman", gpus=[1], isolation="cdi")


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("state", ["started", "present", "stopped", "absent"])
def test_a_container_that_only_has_an_identifier_like_the_name_is_not_touched(case, state, there):
    case.docker.matched_by_id_names = {"ct": "billing"}
    if there:
        case.has(container("ct"))
    if state == "absent" and not there:
        assert case.plan(state=state)["needless"]
        return
    with pytest.raises(PlanError, match="name=ct: docker's module would take it for the container billing"):
        case.plan(state=state)
    assert case.reserved() == {}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"gpus": True}, "gpus=True is a truth value"),
        ({"gpus": [9]}, "There is no GPU 9."),
        ({"gpus": [1], "isolation": "cdi"}, "isolation=cdi cannot work here"),
        ({"gpus": [1], "image": None}, "needs an image"),
    ],
)
def test_a_name_like_an_identifier_hides_nothing_else_that_is_wrong(case, params, words):
    case.docker.matched_by_id_names = {"ct": "billing"}
    with pytest.raises((PlanError, SelectionError, IsolationError), match=words):
        case.plan(**params)


def test_nothing_is_pulled_for_a_name_that_is_refused(case):
    case.docker.matched_by_id_names = {"ct": "billing"}
    with pytest.raises(PlanError, match="would take it for the container billing"):
        case.plan(image="new", gpus=[1])


def test_a_gpu_past_gpus_is_warned_of_by_the_containers_name(case):
    (warning,) = case.plan(gpus=[1], devices=["/dev/nvidia0"])["gpu_assignment"]["warnings"]
    assert warning == "container ct: device /dev/nvidia0 goes past gpus."
