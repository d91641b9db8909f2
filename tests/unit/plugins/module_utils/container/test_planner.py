# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans for gpu_container on hosts that are described by tables."""

from __future__ import annotations

import json
import re

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.image import RequirementError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation import IsolationError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia import Nvidia
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.planner import PlanError, Planner
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.request import SelectionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import Reservations
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
    """A host on which the module runs."""

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
    """Return a container to which this module assigned a GPU with isolation=volume."""
    labels = {"gpufleet.gpus": UUIDS[index], "gpufleet.isolation": "volume", **options.pop("labels", {})}
    devices = nodes(*CONTROL, f"/dev/nvidia{3 - index}")
    return container(name, labels=labels, mounts=[MOUNT], Devices=devices, **options)


def test_new_container_gets_the_device_node_of_its_gpu(case):
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
        "reason": f"GPU 1 ({UUIDS[1]}): volume is the first available isolation (cdi: docker 20.10.24 does not support "
        "CDI, which requires docker 25 or later)",
        "changes": [],
        "warnings": [],
    }
    assert case.reserved() == {"ct": {UUIDS[1]}}


@pytest.mark.parametrize("gpus", [[1], ["1"], [UUIDS[1]], ["GPU-aaaa1"], ["3b:00.0"], 1, "1"])
def test_same_gpu_in_another_notation_changes_nothing(case, gpus):
    case.has(given_gpu(1))
    plan = case.plan(gpus=gpus)
    assert plan["gpu_assignment"]["uuids"] == [UUIDS[1]]
    assert (plan["gpu_changed"], plan["module_args"]["recreate"]) == (False, False)
    assert plan["gpu_diff"]["before"] == plan["gpu_diff"]["after"]


def test_another_gpu_recreates_the_container_and_appears_in_the_diff(case):
    case.has(given_gpu(1))
    plan = case.plan(gpus=[2])
    assert plan["module_args"]["recreate"]
    assert plan["module_args"]["labels"]["gpufleet.gpus"] == UUIDS[2]
    assert plan["gpu_diff"]["before"]["gpus"] == [f"{UUIDS[1]} (GPU 1, NVIDIA A100-SXM4-40GB)"]
    assert plan["gpu_diff"]["after"]["gpus"] == [f"{UUIDS[2]} (GPU 2, NVIDIA A100-SXM4-40GB)"]


def test_fewer_gpus_recreate_the_container(case):
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
def test_modified_container_is_recreated(case, change):
    made = given_gpu(1)
    made["Mounts"] = change.pop("mounts", made["Mounts"])
    made["HostConfig"].update(change)
    case.has(made)
    assert case.plan(gpus=[1], isolation="volume")["module_args"]["recreate"]


def test_changed_minor_number_recreates_the_container(case):
    case.has(given_gpu(1))
    case.facts = facts([gpu(0), gpu(1, minor=1), gpu(2, minor=2), gpu(3)])
    plan = case.plan(gpus=[UUIDS[1]])
    assert plan["module_args"]["recreate"]
    assert "/dev/nvidia1" in plan["module_args"]["devices"]


def test_capabilities_with_other_nodes_recreate_the_container(case):
    case.has(given_gpu(1))
    assert not case.plan(gpus=[1], capabilities=["utility", "compute"])["gpu_changed"]
    assert case.plan(gpus=[1], capabilities=["utility"])["gpu_changed"]


@pytest.mark.parametrize("where", ["devices", "engine_options"])
@pytest.mark.parametrize("own", ["/dev/nvidia-modeset", "/dev/fuse", "/dev/nvidia0", "/dev/dri/card9", "/dev/nvidia2"])
@pytest.mark.parametrize("gpus", [[1], 1])
def test_devices_of_the_user_do_not_recreate_the_container(case, where, own, gpus):
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
        # Did not exist when the container was created.
        (("/dev/nvidiactl", "/dev/nvidia-uvm"), None),
        (CONTROL, ["compute", "graphics", "utility"]),
        # Removed later, or not requested: these nodes give access to no GPU.
        ((*CONTROL, "/dev/nvidia-modeset"), None),
        ((*CONTROL, "/dev/nvidia-nvlink"), None),
    ],
)
def test_optional_control_nodes_do_not_recreate_the_container(case, has, capabilities):
    case.file("/dev/nvidia-modeset")
    labels = {"gpufleet.capabilities": ",".join(capabilities)} if capabilities else {}
    made = given_gpu(1, labels=labels)
    made["HostConfig"]["Devices"] = nodes(*has, "/dev/nvidia2")
    case.has(made)
    plan = case.plan(gpus=[1], capabilities=capabilities)
    assert plan["gpu_assignment"]["changes"] == []
    # Docker's module would recreate the container for a missing node.
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
            ["unexpected device node: /dev/dri/renderD129", "unexpected device node: /dev/nvidia-caps/nvidia-cap1"],
        ),
        ((*CONTROL, "/dev/nvidia0"), {}, [f"GPU removed: {UUIDS[3]} (GPU 3, NVIDIA A100-SXM4-40GB)"]),
        (
            CONTROL,
            {"gpus": [2]},
            [
                f"GPU removed: {UUIDS[1]} (GPU 1, NVIDIA A100-SXM4-40GB)",
                f"GPU added: {UUIDS[2]} (GPU 2, NVIDIA A100-SXM4-40GB)",
            ],
        ),
        (CONTROL, {"exclusive": True}, ["exclusive: false → true"]),
    ],
)
def test_reasons_to_recreate_are_reported(case, has, params, changes):
    made = given_gpu(1)
    made["HostConfig"]["Devices"] = nodes(*has, "/dev/nvidia2")
    case.has(made)
    plan = case.plan(**{"gpus": [1], **params})
    assert plan["gpu_assignment"]["changes"] == changes
    assert plan["gpu_diff"]["before"]["recreate"] == []
    assert plan["gpu_diff"]["after"]["recreate"] == changes
    assert plan["module_args"]["recreate"]


def test_missing_driver_volume_is_reported_as_reason(case):
    case.has(given_gpu(1))
    case.facts["nvidia_driver"]["version"] = "550.163.01"
    changes = ["driver volume: nvidia_driver_550.163.01:/usr/local/nvidia:ro is not mounted"]
    assert case.plan(gpus=[1])["gpu_assignment"]["changes"] == changes


def test_changed_isolation_is_reported_as_reason(case):
    case.file("/usr/bin/nvidia-container-runtime-hook")
    case.docker._state = docker(started=None)
    case.has(given_gpu(1))
    plan = case.plan(gpus=[1], isolation="device_requests")
    assert plan["gpu_assignment"]["changes"] == ["isolation: volume → device_requests"]


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("/dev/nvidia2", []),
        # Docker's module splits device options at colons.
        ("/dev/char/195:2", ["device node with an alias path: /dev/char/195:2"]),
    ],
)
def test_alias_of_a_node_is_kept_if_dockers_module_can_express_it(case, path, changes):
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
def test_cdi_container_of_another_tool_is_adopted_unchanged(case, ours, name):
    """Podman's module compares the command line literally, and the whole environment."""
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


def test_runtime_container_of_another_tool_is_adopted_unchanged(case):
    case.docker._state = docker(runtimes={"runc": "runc", "nvidia": "nvidia-container-runtime"})
    case.file("/usr/bin/nvidia-container-runtime")
    case.has(container("ct", env=["NVIDIA_VISIBLE_DEVICES=1"], Runtime="nvidia"))
    plan = case.plan(gpus=[UUIDS[1]], isolation="runtime")
    assert plan["gpu_assignment"]["changes"] == []
    assert plan["module_args"]["env"] == {"NVIDIA_VISIBLE_DEVICES": "1"}
    assert case.plan(gpus=[2], isolation="runtime")["module_args"]["env"] == {"NVIDIA_VISIBLE_DEVICES": UUIDS[2]}


def test_changed_image_recreates_a_podman_container(case):
    """Podman's module compares only the name of the image."""
    case.podman = Engine(podman(), containers=[given_gpu(1)], volumes={VOLUME_NAME: "/volume"})
    case.podman.images["image"] = Image(id="feedbeef0000ffff")
    plan = case.plan(engine="podman", gpus=[1])
    assert plan["module_args"]["recreate"]
    assert plan["gpu_assignment"]["changes"] == ["image: 1 → feedbeef0000"]
    case.podman.images["image"] = Image(id="1")
    assert not case.plan(engine="podman", gpus=[1])["module_args"]["recreate"]


def test_container_without_labels_is_adopted_without_labels(case):
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
def test_change_of_exclusive_updates_the_label(case, labels, exclusive, changes):
    case.has(given_gpu(1, labels=labels))
    plan = case.plan(gpus=[1], exclusive=exclusive)
    assert plan["gpu_assignment"]["changes"] == changes
    assert plan["module_args"]["recreate"] is bool(changes)
    assert plan["module_args"]["labels"].get("gpufleet.exclusive") == ("true" if exclusive else None)
    assert plan["gpu_assignment"]["exclusive"] is exclusive
    assert plan["gpu_diff"]["before"]["exclusive"] is bool(labels)
    assert plan["gpu_diff"]["after"]["exclusive"] is exclusive
    assert plan["gpu_diff"]["after"]["recreate"] == changes


def test_driver_upgrade_recreates_the_container_with_the_new_volume(case):
    case.has(given_gpu(1))
    case.facts["nvidia_driver"]["version"] = "550.163.01"
    plan = case.plan(gpus=[1])
    assert plan["module_args"]["recreate"]
    assert plan["module_args"]["volumes"] == ["nvidia_driver_550.163.01:/usr/local/nvidia:ro"]
    assert plan["driver_volume"] == {"engine": ["docker"], "path": "/var/lib/gpufleet/volumes"}


@pytest.mark.parametrize("volumes", [{}, {VOLUME_NAME: "/empty"}, {VOLUME_NAME: ""}])
def test_missing_or_empty_driver_volume_is_created(case, volumes):
    case.docker.volumes = volumes
    plan = case.plan(gpus=[1], driver_volume_path="/srv/v", engine_options={"docker_host": "unix:///d"})
    assert plan["driver_volume"] == {"engine": ["docker"], "path": "/srv/v", "docker_host": "unix:///d"}


def test_count_keeps_the_gpus_of_the_container(case):
    case.has(given_gpu(3))
    plan = case.plan(gpus=1)
    assert (plan["gpu_assignment"]["indexes"], plan["gpu_changed"]) == ([3], False)
    assert frozenset({"min", "identity", "topology"}) in case.asked
    assert sorted(case.plan(gpus=2)["gpu_assignment"]["indexes"]) == [2, 3]


def test_topology_is_read_only_for_a_count(case):
    case.plan(gpus=[1])
    assert case.asked == [frozenset({"min", "identity"})]


def test_container_without_gpus_does_not_query_the_driver(case):
    case.facts = facts([], state="no_driver")
    plan = case.plan(gpus="none")
    assert (case.asked, plan["gpu_assignment"]["reason"]) == ([], "gpus requests no GPU")
    assert not {"devices", "env", "labels", "volumes"} & set(plan["module_args"])
    assert case.plan()["gpu_assignment"]["reason"] == "gpus is not set, and the image requests no GPU"


@pytest.mark.parametrize(
    ("image", "indexes", "words"),
    [
        (
            Image("1", labels={"com.nvidia.volumes.needed": "nvidia_driver"}),
            [0, 1, 2, 3],
            "label com.nvidia.volumes.needed",
        ),
        (Image("1", env={"NVIDIA_VISIBLE_DEVICES": "all"}), [0, 1, 2, 3], "NVIDIA_VISIBLE_DEVICES (all)"),
        (Image("1", env={"NVIDIA_VISIBLE_DEVICES": "0,2"}), [0, 2], "NVIDIA_VISIBLE_DEVICES (0,2)"),
        (Image("1", env={"NVIDIA_VISIBLE_DEVICES": "void"}), [], "the image requests no GPU"),
    ],
)
def test_image_decides_without_the_option_gpus(case, image, indexes, words):
    case.docker.images["image"] = image
    assignment = case.plan()["gpu_assignment"]
    assert assignment["indexes"] == indexes
    assert words in assignment["reason"]


def test_none_overrides_an_image_that_requests_all_gpus(case):
    case.docker.images["image"] = Image("1", env={"NVIDIA_VISIBLE_DEVICES": "all"})
    plan = case.plan(gpus="none")
    assert plan["module_args"]["env"] == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_mig_device_gets_its_capability_nodes(case):
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


def test_podman_uses_cdi_if_a_specification_exists(case):
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
def test_device_request_is_repeated_as_docker_stores_it(case, options, count):
    """Docker's module compares requests literally, and Docker versions store missing values differently."""
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
def test_changed_capabilities_recreate_a_device_request(case, requested, env, capabilities, changes):
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
def test_number_in_visible_devices_is_an_index(case, visible, indexes):
    case.docker.images["image"] = Image("1", env={"NVIDIA_VISIBLE_DEVICES": visible})
    assert case.plan()["gpu_assignment"]["indexes"] == indexes


def test_count_of_zero_is_explained(case):
    assert case.plan(gpus=0)["gpu_assignment"]["reason"] == "gpus is a count of 0 (for GPU 0, write gpus: [0])"


def test_podman_container_to_recreate_is_not_restarted(case):
    case.podman = Engine(podman(), containers=[given_gpu(1)], volumes={VOLUME_NAME: "/volume"})
    plan = case.plan(engine="podman", gpus=[2], restart=True)
    assert plan["module_args"]["recreate"]
    assert "force_restart" not in plan["module_args"]
    assert case.plan(engine="podman", gpus=[1], restart=True)["module_args"]["force_restart"]


# -- exclusive ---------------------------------------------------------------------------------------------------


def test_exclusive_count_considers_both_engines_and_reservations(case):
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
    assert "exclusive: 1 GPU is requested, but only 0 of 4 are free." in message
    assert f"GPU 0 ({UUIDS[0]}) by docker container a;" in message
    assert f"GPU 1 ({UUIDS[1]}) by podman container p (exited, restart policy always);" in message
    assert re.search(
        r"GPU 2 \(.*\) by docker container r \(reserved by a run in progress for at most \d+ s\);", message
    )
    assert f"GPU 3 ({UUIDS[3]}) by docker container ct (reserved" in message


def test_exclusive_plans_never_assign_a_gpu_twice(case):
    plans = [case.plan(name=f"c{number}", gpus=1, exclusive=True) for number in range(4)]
    assert sorted(plan["gpu_assignment"]["indexes"][0] for plan in plans) == [0, 1, 2, 3]
    with pytest.raises(SelectionError, match="only 0 of 4 are free"):
        case.plan(name="c4", gpus=1, exclusive=True)
    with case.reservations.locked():
        case.reservations.release(plans[2]["token"])
    assert case.plan(name="c4", gpus=1, exclusive=True)["gpu_assignment"]["indexes"] == [2]


def test_shared_gpu_is_reserved_until_its_container_exists(case):
    case.plan(name="shared", gpus=[0])
    assert case.plan(gpus=1, exclusive=True)["gpu_assignment"]["indexes"] != [0]


def test_exclusive_container_keeps_and_reserves_its_gpu(case):
    case.has(given_gpu(2, labels=EXCLUSIVE))
    plan = case.plan(gpus=1, exclusive=True)
    assert (plan["gpu_assignment"]["indexes"], plan["gpu_changed"]) == ([2], False)
    assert case.reserved() == {"ct": {UUIDS[2]}}


def test_exclusive_count_replaces_a_shared_gpu(case):
    case.has(given_gpu(2), given_gpu(2, "other"))
    plan = case.plan(gpus=1, exclusive=True)
    assert plan["gpu_assignment"]["indexes"] != [2]
    assert plan["gpu_changed"]


def test_container_holds_present_and_reserved_gpus(case):
    """A reservation remains valid although a container of that name exists with another GPU."""
    case.has(given_gpu(0, "other"))
    with case.reservations.locked():
        case.reservations.reserve("docker", "other", [UUIDS[1]], exclusive=True)
        case.reservations.reserve("podman", "other", [UUIDS[2]], exclusive=False)
    assert case.plan(gpus=1, exclusive=True)["gpu_assignment"]["indexes"] == [3]
    with pytest.raises(SelectionError, match="only 0 of 4 are free") as error:
        case.plan(name="second", gpus=1, exclusive=True)
    assert f"GPU 1 ({UUIDS[1]}) by docker container other (reserved by" in str(error.value)
    # A count without exclusive also avoids an exclusive reservation.
    assert case.plan(name="third", gpus=1)["gpu_assignment"]["indexes"] == [2]


@pytest.mark.parametrize("status", ["running", "exited"])
@pytest.mark.parametrize("exclusive", [True, False])
def test_gpus_are_reserved_even_if_they_do_not_change(case, status, exclusive):
    """The engine's module may recreate the container for another reason. Meanwhile, no container holds the GPUs."""
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
def test_reservation_includes_the_stop_timeout(case, params, config, seconds):
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
    ("state", "status", "changed"),
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
def test_check_mode_predicts_for_a_stopped_docker(case, state, status, changed):
    case.docker = sleeping("ctc (running)", *([f"ct ({status})"] if status else []))
    plan = case.plan(check=True, gpus=[1], state=state)
    assert (plan["predicted"], plan["nothing_to_do"], plan["engine"]) == (True, not changed, "docker")
    ran = status in ("running", "paused")
    runs = state == "started" or (state == "present" and ran)
    assert plan["gpu_diff"]["before"] == {**NOTHING, "exists": status is not None, "running": ran}
    assert plan["gpu_diff"]["after"] == {**NOTHING, "exists": state != "absent", "running": runs}
    (warning,) = plan["gpu_assignment"]["warnings"]
    assert warning.startswith("container ct: docker is not running, and check mode does not start it. The prediction")


def test_missing_image_is_refused_for_a_stopped_docker(case):
    case.docker = sleeping()
    with pytest.raises(PlanError, match="state=started requires image for container ct"):
        case.plan(check=True, image=None)


@pytest.mark.parametrize("exclusive", [False, True])
def test_stopped_docker_does_not_prevent_a_check_with_podman(case, exclusive):
    case.docker, case.podman = sleeping(), Engine(podman(), volumes={VOLUME_NAME: "/volume"})
    plan = case.plan(check=True, engine="podman", gpus=1, exclusive=exclusive)
    assert plan["gpu_assignment"]["uuids"] == [UUIDS[0]]
    said = (
        "Cannot determine which GPUs docker's containers hold: docker is not running, and check mode does not start it."
    )
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
def test_failing_other_engine_is_an_error_only_for_exclusive_use_as_root(case, params, root_user, refused):
    case.podman = Broken(podman())
    if refused:
        with pytest.raises(EngineError) as error:
            case.plan(root_user=root_user, **params)
        assert str(error.value) == (
            "exclusive: cannot determine which GPUs podman's containers hold: Error: newuidmap not found. Repair or "
            "remove podman, or remove exclusive."
        )
    else:
        warnings = case.plan(root_user=root_user, **params)["gpu_assignment"]["warnings"]
        said = "container ct: Cannot determine which GPUs podman's containers hold: Error: newuidmap not found."
        assert said in warnings
    assert case.plan(gpus=[1], root_user=root_user)["gpu_assignment"]["warnings"] == []


def test_exclusive_ignore_skips_containers(case):
    case.has(container("dcgm", DeviceRequests=[{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]))
    with pytest.raises(SelectionError, match="by docker container dcgm"):
        case.plan(gpus=1, exclusive=True)
    assert case.plan(gpus=1, exclusive=True, exclusive_ignore=["dcgm"])["gpu_assignment"]["uuids"]


def test_sharing_an_exclusive_gpu_gives_a_warning(case):
    case.has(given_gpu(1, "trainer", labels={"gpufleet.exclusive": "true"}))
    (warning,) = case.plan(gpus=[1])["gpu_assignment"]["warnings"]
    assert warning == (
        f"container ct: GPU 1 ({UUIDS[1]}) is shared with docker container trainer, which requested exclusive use."
    )
    assert case.plan(gpus=1)["gpu_assignment"]["indexes"] != [1]


def test_check_mode_reserves_nothing_and_writes_no_file(case, tmp_path):
    plan = case.plan(check=True, gpus=1, exclusive=True)
    assert plan["gpu_assignment"]["uuids"]
    assert plan["token"] is None
    assert not (tmp_path / "run").exists()


# -- states ------------------------------------------------------------------------------------------------------


def test_absent_requires_neither_driver_nor_image(case):
    case.facts = facts([], state="error")
    case.has(given_gpu(1))
    plan = case.plan(
        state="absent", image=None, engine_options={"keep_volumes": False, "log_driver": "x"}, stop_timeout=3
    )
    assert plan["module_args"] == {"name": "ct", "state": "absent", "keep_volumes": False, "stop_timeout": 3}
    assert plan["gpu_diff"]["before"]["gpus"] == [UUIDS[1]]
    assert plan["gpu_diff"]["after"] == NOTHING
    assert case.asked == []
    assert not plan["nothing_to_do"]


def test_absent_does_nothing_without_a_container(case):
    assert case.plan(state="absent", image=None)["nothing_to_do"]


def test_stopped_requires_no_driver_and_changes_no_option(case):
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
        # Created by another tool, without labels.
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
def test_result_of_stopped_contains_the_gpus_of_the_container(case, made, status, expected):
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


def test_stopped_works_without_a_binding(case):
    def gather(_subsets):
        raise BindingMissing("no pynvml")

    case.gather = gather
    case.has(given_gpu(1))
    assert case.plan(state="stopped")["gpu_assignment"]["uuids"] == [UUIDS[1]]


@pytest.mark.parametrize("state", ["stopped", "present"])
def test_missing_container_is_created_but_not_started(case, state):
    plan = case.plan(state=state, gpus=[1])
    assert plan["module_args"]["state"] == state
    assert plan["module_args"]["devices"]
    assert (plan["gpu_diff"]["after"]["exists"], plan["gpu_diff"]["after"]["running"]) == (True, False)


def test_stopped_container_starts_with_its_gpus(case):
    case.has(given_gpu(2, status="exited", labels=EXCLUSIVE))
    plan = case.plan(gpus=1, exclusive=True)
    assert (plan["gpu_assignment"]["indexes"], plan["gpu_changed"]) == ([2], False)
    assert case.reserved() == {"ct": {UUIDS[2]}}


def test_stopped_container_gets_other_gpus_if_its_own_are_in_use(case):
    case.has(given_gpu(2, status="exited"), given_gpu(2, "other"))
    plan = case.plan(gpus=1, exclusive=True)
    assert plan["gpu_assignment"]["indexes"] != [2]
    assert plan["gpu_changed"]


# -- engines and images ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("docker_absence", "podman_absence", "owner", "expected"),
    [
        (None, None, None, "docker"),
        (None, "no podman", None, "docker"),
        ("no docker", None, None, "podman"),
        (None, None, "podman", "podman"),
        (None, None, "docker", "docker"),
    ],
)
def test_auto_prefers_the_engine_with_the_container_then_the_first_available(
    case, docker_absence, podman_absence, owner, expected
):
    case.docker = Engine(docker(), absence=docker_absence, containers=[container("ct")] if owner == "docker" else [])
    case.podman = Engine(podman(), absence=podman_absence, containers=[container("ct")] if owner == "podman" else [])
    assert case.plan(gpus="none")["engine"] == expected


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("docker", "engine=docker: docker does not answer. Install and start docker, for example with role "),
        ("podman", "engine=podman: the command podman is not in PATH. Install"),
        (
            "auto",
            "No container engine answers (docker: docker does not answer; podman: the command podman is not in PATH). "
            "Install and start Docker or Podman, for example with role container_engine.",
        ),
    ],
)
def test_unavailable_engine_is_named(case, engine, words):
    case.docker = Engine(docker(), absence="docker does not answer")
    with pytest.raises(EngineError) as error:
        case.plan(engine=engine, gpus=[1])
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("engine", "policy", "is_local", "expected"),
    [
        ("docker", "missing", False, ("community.docker.docker_image_pull", {"name": "new", "pull": "not_present"})),
        ("docker", "always", True, ("community.docker.docker_image_pull", {"name": "new", "pull": "always"})),
        ("podman", "missing", False, ("containers.podman.podman_image", {"name": "new", "force": False})),
        ("podman", "always", True, ("containers.podman.podman_image", {"name": "new", "force": True})),
    ],
)
def test_image_is_pulled_before_gpus_are_selected(case, engine, policy, is_local, expected):
    images = {"new": Image("1")} if is_local else {}
    case.docker, case.podman = Engine(docker(), images=images), Engine(podman(), images=images)
    plan = case.plan(engine=engine, image="new", pull=policy, gpus=[1])
    assert (plan["pull"]["module"], plan["pull"]["args"]) == expected
    assert case.asked == []


def test_plan_is_complete_after_the_pull(case):
    plan = case.plan(pull="always", gpus=[1], _pulled=True)
    assert plan["gpu_assignment"]["indexes"] == [1]
    with pytest.raises(PlanError, match="image new was pulled, but docker does not list it under that name"):
        case.plan(image="new", gpus=[1], _pulled=True)


def test_pull_uses_the_connection_options(case):
    plan = case.plan(image="new", engine_options={"docker_host": "unix:///x", "log_driver": "journald"})
    assert plan["pull"]["args"] == {"docker_host": "unix:///x", "name": "new", "pull": "not_present"}


def test_every_module_call_uses_the_same_docker_host(case):
    """Not every module that is called reads DOCKER_HOST."""
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
def test_check_mode_does_not_pull_and_gives_a_warning(case, engine):
    case.podman = Engine(podman(), volumes={VOLUME_NAME: "/volume"})
    plan = case.plan(check=True, engine=engine, pull="always", gpus=[1])
    assert "pull" not in plan
    assert not plan["predicted"]
    (warning,) = [text for text in plan["gpu_assignment"]["warnings"] if "pull" in text]
    assert warning == (
        "container ct: pull=always: check mode pulls nothing, so the prediction is for the local image image. A newer "
        "image recreates the container."
    )
    assert "is not pulled in check mode" in str(
        case.plan(check=True, engine=engine, pull="always", image="new", gpus=[1])
    )


def test_check_mode_without_an_image_predicts_creation_and_gives_a_warning(case):
    plan = case.plan(check=True, image="new", gpus=[1])
    assert plan["predicted"]
    assert plan["gpu_assignment"]["warnings"] == [
        "container ct: image new is not pulled in check mode, so its requirements are not checked."
    ]
    assert not case.plan(check=True, gpus=[1])["predicted"]


@pytest.mark.parametrize(
    ("params", "error", "words"),
    [
        ({"image": None}, PlanError, "state=started requires image for container ct"),
        ({"image": None, "state": "present"}, PlanError, "state=present requires image"),
        (
            {"image": "new", "pull": "never"},
            PlanError,
            "image new is not in docker, and pull=never. Load the image",
        ),
        ({"gpus": [9]}, SelectionError, "There is no GPU 9. This host has GPU 0 (GPU-aaaa0000"),
        ({"gpus": 9}, SelectionError, "9 GPUs are requested, but only 4 can be assigned"),
        ({"gpus": ["0:0"]}, SelectionError, "MIG device 0:0 is requested, but MIG is disabled on GPU 0"),
        (
            {"gpus": [1], "isolation": "cdi"},
            IsolationError,
            "isolation=cdi is not available: docker 20.10.24 does not support CDI",
        ),
        ({"gpus": [1], "isolation": "runtime"}, IsolationError, "docker has no runtime nvidia, only runc"),
        ({"gpus": True}, SelectionError, "gpus=True is a boolean"),
    ],
)
def test_errors_come_before_the_first_change(case, params, error, words):
    with pytest.raises(error) as raised:
        case.plan(**params)
    assert words in str(raised.value)
    assert case.reserved() == {}


@pytest.mark.parametrize("state", ["no_hardware", "no_driver", "driver_not_loaded", "version_mismatch", "error"])
def test_gpus_require_a_ready_driver(case, state):
    case.facts = facts([], state=state, reason="Load the module.")
    with pytest.raises(SelectionError) as error:
        case.plan(gpus=[1])
    assert (
        str(error.value)
        == f"GPUs are requested, but this host has no usable GPU (nvidia_gpu_state is {state}): Load the module."
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
def test_image_with_unmet_requirements_is_refused(case, image, env, words):
    case.docker.images["image"] = image
    with pytest.raises(RequirementError) as error:
        case.plan(gpus=[1], env=env)
    assert words in str(error.value)
    assert case.plan(gpus=[1], env={**env, "NVIDIA_DISABLE_REQUIRE": "true"})["gpu_assignment"]["uuids"]
    assert case.plan(gpus="none", env=env)["gpu_assignment"]["uuids"] == []


def test_warnings_and_risks_are_in_the_result(case):
    case.docker.images["image"] = Image("1", labels={"com.nvidia.cuda.version": "12.9"})
    case.facts = facts(
        [gpu(0, compute_mode="prohibited", health={"state": "degraded", "reasons": ["it is too hot"]}), gpu(1)]
    )
    warnings = case.plan(gpus=[0], privileged=True)["gpu_assignment"]["warnings"]
    for words in ("compute mode prohibited", "it is too hot", "minor-version compatibility", "privileged: "):
        assert words in str(warnings)
    first = case.plan(gpus=[1])["gpu_assignment"]["warnings"][0]
    assert first.startswith("container ct: The image is built for CUDA 12.9")


PENDING = {"recovery_action": "gpu_reset", "health": {"state": "degraded", "reasons": ["the driver asks for a reset"]}}
HOT = {"health": {"state": "degraded", "reasons": ["it is too hot"]}}


def test_count_reports_unusable_and_degraded_gpus(case):
    case.facts = facts([gpu(0, **PENDING), gpu(1, compute_mode="prohibited"), gpu(2, **HOT), gpu(3)])
    given = case.plan(gpus=2)["gpu_assignment"]
    assert given["indexes"] == [2, 3]
    assert given["reason"].endswith(
        f"Unusable GPUs were skipped: GPU 0 ({UUIDS[0]}): recovery action gpu_reset is pending; the driver asks for a "
        f"reset; GPU 1 ({UUIDS[1]}): compute mode is prohibited (nvidia-smi --id=1 --compute-mode=DEFAULT changes it)"
    )
    assert given["warnings"] == [f"container ct: GPU 2 ({UUIDS[2]}) is degraded: it is too hot"]


def test_running_container_gives_up_a_gpu_that_became_unusable(case):
    case.has(given_gpu(0))
    assert case.plan(gpus=1)["gpu_assignment"]["indexes"] == [0]
    case.facts = facts([gpu(0, **HOT), gpu(1)])
    assert case.plan(gpus=1)["gpu_assignment"]["indexes"] == [0]
    case.facts = facts([gpu(0, **PENDING), gpu(1)])
    plan = case.plan(gpus=1)
    assert plan["gpu_assignment"]["indexes"] == [1]
    assert plan["gpu_assignment"]["changes"][0].startswith(f"GPU removed: {UUIDS[0]}")
    assert "recovery action gpu_reset is pending" in plan["gpu_assignment"]["reason"]


@pytest.mark.parametrize("gpus", ["all", [0, 1]])
def test_named_or_all_gpus_include_unusable_ones_with_a_warning(case, gpus):
    case.facts = facts([gpu(0, **PENDING), gpu(1, compute_mode="prohibited")])
    given = case.plan(gpus=gpus)["gpu_assignment"]
    assert given["indexes"] == [0, 1]
    assert given["warnings"] == [
        f"container ct: GPU 1 ({UUIDS[1]}) is in compute mode prohibited: CUDA programs cannot use it.",
        f"container ct: GPU 0 ({UUIDS[0]}) is degraded: the driver asks for a reset",
    ]
    assert "skipped" not in given["reason"]


def test_podman_uses_another_isolation_if_the_specification_is_stale(case):
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
    with pytest.raises(IsolationError, match=r"isolation=cdi is not available: .*/etc/cdi/nvidia\.json is stale"):
        case.plan(engine="podman", gpus=[1], isolation="cdi")


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("state", ["started", "present", "stopped", "absent"])
def test_name_that_begins_the_identifier_of_another_container_is_refused(case, state, exists):
    case.docker.matched_by_id_names = {"ct": "billing"}
    if exists:
        case.has(container("ct"))
    if state == "absent" and not exists:
        assert case.plan(state=state)["nothing_to_do"]
        return
    with pytest.raises(PlanError, match="name=ct is ambiguous: the identifier of container billing begins with it"):
        case.plan(state=state)
    assert case.reserved() == {}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"gpus": True}, "gpus=True is a boolean"),
        ({"gpus": [9]}, "There is no GPU 9."),
        ({"gpus": [1], "isolation": "cdi"}, "isolation=cdi is not available"),
        ({"gpus": [1], "image": None}, "requires image"),
    ],
)
def test_ambiguous_name_does_not_hide_other_errors(case, params, words):
    case.docker.matched_by_id_names = {"ct": "billing"}
    with pytest.raises((PlanError, SelectionError, IsolationError), match=words):
        case.plan(**params)


def test_ambiguous_name_is_refused_before_the_pull(case):
    case.docker.matched_by_id_names = {"ct": "billing"}
    with pytest.raises(PlanError, match="the identifier of container billing"):
        case.plan(image="new", gpus=[1])


def test_device_that_bypasses_gpus_gives_a_warning_with_the_container_name(case):
    (warning,) = case.plan(gpus=[1], devices=["/dev/nvidia0"])["gpu_assignment"]["warnings"]
    assert warning == "container ct: device /dev/nvidia0 gives access to GPUs in addition to gpus."
