# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans for gpu_container on hosts that are described by tables."""

from __future__ import annotations

import copy
import json
import platform
import re
import shutil

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import IsolationError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.vendor import Nvidia
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.plan_result import PlanError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.planner import Planner
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import Reservations
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import SelectionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import RequirementError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import gpu_processes
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Image, StoppedDocker
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.stopped_engine import StoppedEngine, Use
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.optional_features import FeatureError
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.missing_pynvml import BindingMissing
from ansible_collections.gpufleet.hosts.plugins.modules.gpu_container import argument_spec
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_tree import PROGRAMS
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import (
    CDI_CONTROL,
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
from ansible_collections.gpufleet.hosts.tests.unit.plugins.process_tree import (
    ALICE,
    ALL_CAPABILITIES,
    ProcessTree,
    identifier,
    numbers,
)

VOLUME_NAME = f"nvidia_driver_{DRIVER}"
MOUNT = {"Name": VOLUME_NAME, "Destination": "/usr/local/nvidia", "RW": False}
# The volume of these tests has one library.
LIBRARY = f"libnvidia-ml.so.{DRIVER}"
FILES = [f"/usr/lib/x86_64-linux-gnu/{LIBRARY}", f"/usr/lib64/{LIBRARY}"]
MOUNTS = [MOUNT, *({"Source": f"/volume/lib64/{LIBRARY}", "Destination": path, "RW": False} for path in FILES)]
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
            f"/volume/lib64/{LIBRARY}",
            *PROGRAMS,
        ):
            self.file(path)
        driver_tree.ubuntu(self.root, DRIVER)
        self.reservations = Reservations(str(tmp_path / "run"))
        self.docker = Engine(docker(), volumes={VOLUME_NAME: "/volume"})
        self.podman = Engine(podman(), absence="the command podman is not in PATH")
        self.facts = facts(gpu(index) for index in range(4))
        self.asked = []

    def file(self, path, text=""):
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def remove_driver(self):
        shutil.rmtree(self.root / "usr/lib")
        (self.root / "lib").unlink()

    def upgrade(self, version):
        """Install another driver and load it."""
        self.remove_driver()
        driver_tree.ubuntu(self.root, version)
        self.facts["nvidia_driver"]["version"] = version

    def gather(self, subsets):
        self.asked.append(subsets)
        return self.facts

    def plan(self, check=False, docker_host=None, root_user=True, jobs=lambda _inventory: [], **params):
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
            jobs=jobs,
        ).plan()

    def has(self, *made):
        self.docker.table.update({one["Name"].lstrip("/"): one for one in made})

    def reserved(self):
        return {holder.name: holder.uuids for holder in self.reservations.holders(("", ""))}


@pytest.fixture
def case(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(gpu_processes, "device_numbers", numbers)
    return Case(tmp_path)


def given_gpu(index, name="ct", **options):
    """Return a container to which this module assigned a GPU with isolation=volume."""
    labels = {"gpufleet.gpus": UUIDS[index], "gpufleet.isolation": "volume", **options.pop("labels", {})}
    devices = nodes(*CONTROL, f"/dev/nvidia{3 - index}")
    return container(name, labels=labels, mounts=MOUNTS, Devices=devices, **options)


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
        "env": {"A": "1"},
        "devices": [*CONTROL, "/dev/nvidia2"],
        "volumes": [
            f"{VOLUME_NAME}:/usr/local/nvidia:ro",
            *(f"/volume/lib64/{LIBRARY}:{path}:ro" for path in FILES),
        ],
        "labels": {
            "gpufleet.container": "ct",
            "gpufleet.gpus": UUIDS[1],
            "gpufleet.isolation": "volume",
            "gpufleet.exclusive": "false",
            "gpufleet.capabilities": "",
            "gpufleet.features": "",
        },
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
        {"mounts": [{**MOUNT, "Name": "nvidia_driver_525.1"}, *MOUNTS[1:]]},
        {"mounts": [{**MOUNT, "RW": True}, *MOUNTS[1:]]},
        {"mounts": MOUNTS[:-1]},
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
        (CONTROL, ["compute", "utility", "video"]),
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
    case.upgrade("550.163.01")
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


@pytest.mark.parametrize("name", [UUIDS[1], "1", "all"])
def test_cdi_container_of_another_tool_is_adopted_unchanged(case, name):
    """Podman's module compares the command line literally, and the whole environment."""
    edits = {"deviceNodes": [{"path": "/dev/nvidia2"}, *CDI_CONTROL]}
    case.facts = facts([gpu(1)])
    devices = [{"name": one, "containerEdits": edits} for one in (UUIDS[1], "1", "all")]
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    case.file("/etc/cdi/nvidia.json", json.dumps(spec))
    made = container("ct")
    made["Config"]["CreateCommand"] = ["podman", "run", "--device", f"nvidia.com/gpu={name}", "image"]
    case.podman = Engine(podman(), containers=[made])
    plan = case.plan(engine="podman", gpus=[1])
    assert plan["gpu_assignment"]["changes"] == []
    assert plan["module_args"]["device"] == [f"nvidia.com/gpu={name}"]
    assert "env" not in plan["module_args"]


def test_volume_container_of_another_tool_is_adopted_unchanged(case):
    """Another tool may set LD_LIBRARY_PATH instead of mounting single files."""
    case.has(container("ct", mounts=[MOUNT], Devices=nodes(*CONTROL, "/dev/nvidia2")))
    plan = case.plan(gpus=[1], isolation="volume")
    assert plan["gpu_assignment"]["changes"] == []
    assert plan["module_args"]["volumes"] == [f"{VOLUME_NAME}:/usr/local/nvidia:ro"]
    assert "env" not in plan["module_args"]


def test_container_of_another_tool_keeps_the_way_in_which_it_finds_the_driver(case):
    """The engine's module may recreate the container for another option."""
    files = [f"/volume/lib64/{LIBRARY}:{path}:ro" for path in FILES]
    path = "/opt:/usr/local/nvidia/lib64"
    binds = [f"{VOLUME_NAME}:/usr/local/nvidia:ro", *files, "/data:/data"]
    env = [f"LD_LIBRARY_PATH={path}", "PATH=/bin"]
    case.has(container("ct", mounts=MOUNTS, env=env, Binds=binds, Devices=nodes(*CONTROL, "/dev/nvidia2")))
    plan = case.plan(gpus=[1], isolation="volume")
    assert plan["gpu_assignment"]["changes"] == []
    assert plan["module_args"]["volumes"] == [f"{VOLUME_NAME}:/usr/local/nvidia:ro", *files]
    assert plan["module_args"]["env"] == {"LD_LIBRARY_PATH": path}
    own = case.plan(gpus=[1], isolation="volume", env={"LD_LIBRARY_PATH": "/mine"})
    assert own["module_args"]["env"] == {"LD_LIBRARY_PATH": "/mine"}


@pytest.mark.parametrize(
    ("capabilities", "unmet"),
    [
        (["compute", "utility"], None),
        (["video"], "video"),
        (["ngx", "compat32", "video", "utility"], "compat32, ngx, video"),
    ],
)
def test_capability_without_files_in_the_driver_volume_causes_a_warning(case, capabilities, unmet):
    """The volume of these tests has one library, of utility."""
    warnings = case.plan(gpus=[1], isolation="volume", capabilities=capabilities)["gpu_assignment"]["warnings"]
    assert [text for text in warnings if "capabilities" in text] == (
        [
            f"container ct: capabilities: the driver volume has no files for {unmet}. Install the driver's packages "
            "that contain them, and if nvidia_driver_volume limits sets, add them to sets."
        ]
        if unmet
        else []
    )
    case.file(f"/volume/lib64/libnvidia-encode.so.{DRIVER}")
    case.file(f"/volume/lib64/libcuda.so.{DRIVER}")
    found = case.plan(gpus=[1], isolation="volume", capabilities=["video"])["gpu_assignment"]["warnings"]
    assert [text for text in found if "capabilities" in text] == []


def test_empty_capabilities_are_no_capabilities_of_the_request(case):
    """The value of the usual filter default([])."""
    runtime = {"nvidia": "nvidia-container-runtime"}
    case.docker = Engine(docker(runtimes=runtime), volumes={VOLUME_NAME: "/volume"})
    case.file("/usr/bin/nvidia-container-runtime")
    made = container("ct", env=[f"NVIDIA_VISIBLE_DEVICES={UUIDS[1]}"], Runtime="nvidia")
    made["Config"]["Labels"] = {"gpufleet.gpus": UUIDS[1], "gpufleet.isolation": "runtime"}
    case.has(made)
    plan = case.plan(gpus=[1], isolation="runtime", capabilities=[])
    assert plan["gpu_assignment"]["changes"] == []


def test_libraries_by_volume_extend_the_variables_of_the_image(case):
    case.docker.images["image"] = Image("sha256:1", env={"LD_LIBRARY_PATH": "/opt/lib", "PATH": "/opt/bin:/bin"})
    plan = case.plan(gpus=[1], libraries="volume")
    assert plan["module_args"]["env"] == {
        "LD_LIBRARY_PATH": "/opt/lib:/usr/local/nvidia/lib64:/usr/local/nvidia/lib",
        "PATH": "/opt/bin:/bin:/usr/local/nvidia/bin",
    }
    assert plan["module_args"]["volumes"] == [f"{VOLUME_NAME}:/usr/local/nvidia:ro"]


@pytest.mark.parametrize("env", [{}, {"LD_LIBRARY_PATH": "/mine"}])
def test_libraries_by_files_leave_the_variables_alone(case, env):
    case.docker.images["image"] = Image("sha256:1", env={"LD_LIBRARY_PATH": "/opt/lib", "PATH": "/opt/bin"})
    assert case.plan(gpus=[1], env=env)["module_args"]["env"] == env


@pytest.mark.parametrize(
    ("volume", "files", "is_covered"),
    [
        ("/srv:/data", FILES, False),
        ("/usr:/usr:ro", [], True),
        ("/:/", [], True),
        ("/usr/lib64:/usr/lib64:ro", FILES[:1], True),
        # The user's own file replaces the driver's.
        (f"/srv/x:{FILES[0]}:ro", FILES[1:], False),
        ("/usr/lib", [FILES[1]], True),
    ],
)
def test_volumes_of_the_user_receive_no_files(case, volume, files, is_covered):
    """The engine would create the missing files in the user's volume, or fail if that volume is read-only."""
    plan = case.plan(gpus=[1], volumes=[volume])
    mounted = [one for one in plan["module_args"]["volumes"] if one.startswith("/volume/")]
    assert mounted == [f"/volume/lib64/{LIBRARY}:{path}:ro" for path in files]
    assert ("LD_LIBRARY_PATH" in plan["module_args"].get("env", {})) is is_covered
    warning = f"container ct: volume {volume} covers directories"
    assert any(text.startswith(warning) for text in plan["gpu_assignment"]["warnings"]) is is_covered


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_container_keeps_the_libraries_of_its_capabilities(case, engine):
    """Podman's module compares the list of volumes exactly."""
    case.file(f"/volume/lib64/libnvidia-encode.so.{DRIVER}")
    made = given_gpu(1, labels={"gpufleet.capabilities": "compute,utility,video"})
    written = [
        f"/volume/lib64/{name}:{directory}/{name}:ro"
        for name in (LIBRARY, f"libnvidia-encode.so.{DRIVER}")
        for directory in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")
    ]
    if engine == "podman":
        made["Config"]["CreateCommand"] = ["podman", "run", *(f"--volume={one}" for one in written), "image"]
        case.podman = Engine(podman(), containers=[made], volumes={VOLUME_NAME: "/volume"})
    else:
        made["HostConfig"]["Binds"] = written
        case.has(made)
    plan = case.plan(engine=engine, gpus=[1], isolation="volume")
    assert plan["gpu_assignment"]["changes"] == []
    volumes = plan["module_args"]["volume" if engine == "podman" else "volumes"]
    assert sorted(volumes[1:]) == sorted(written)


def test_missing_driver_libraries_fail_before_the_first_change(case):
    case.docker.volumes = {}
    case.remove_driver()
    with pytest.raises(IsolationError, match="The driver volume cannot be created: found no x86_64 libcuda"):
        case.plan(gpus=[1])


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
    assert plan["module_args"]["labels"].get("gpufleet.exclusive", "false") == str(exclusive).lower()
    assert plan["gpu_assignment"]["exclusive"] is exclusive
    assert plan["gpu_diff"]["before"]["exclusive"] is bool(labels)
    assert plan["gpu_diff"]["after"]["exclusive"] is exclusive
    assert plan["gpu_diff"]["after"]["recreate"] == changes


def test_driver_upgrade_recreates_the_container_with_the_new_volume(case):
    case.has(given_gpu(1))
    case.upgrade("550.163.01")
    plan = case.plan(gpus=[1])
    assert plan["module_args"]["recreate"]
    volume, *files = plan["module_args"]["volumes"]
    assert volume == "nvidia_driver_550.163.01:/usr/local/nvidia:ro"
    directory = "/var/lib/gpufleet/volumes/nvidia_driver/550.163.01"
    assert f"{directory}/lib64/libcuda.so.550.163.01:/usr/lib/x86_64-linux-gnu/libcuda.so.1:ro" in files
    assert f"{directory}/bin/nvidia-smi:/usr/bin/nvidia-smi:ro" in files
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
    assert frozenset({"min", "identity", "nvlink", "topology", "processes"}) in case.asked
    assert sorted(case.plan(gpus=2)["gpu_assignment"]["indexes"]) == [2, 3]


def test_topology_is_read_only_for_a_count(case):
    case.plan(gpus=[1])
    assert case.asked == [frozenset({"min", "identity", "nvlink"})]


def test_container_without_gpus_does_not_query_the_driver(case):
    case.facts = facts([], state="no_driver")
    plan = case.plan(gpus="none")
    assert (case.asked, plan["gpu_assignment"]["reason"]) == ([], "gpus requests no GPU")
    assert not {"devices", "env", "volumes"} & set(plan["module_args"])
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
    devices = [{"name": UUIDS[1], "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia2"}, *CDI_CONTROL]}}]
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    case.file("/etc/cdi/nvidia.json", json.dumps(spec))
    plan = case.plan(engine="podman", gpus=[1])
    assert plan["module"] == "containers.podman.podman_container"
    assert plan["module_args"]["device"] == [f"nvidia.com/gpu={UUIDS[1]}"]
    assert plan["module_args"]["label"].items() >= {"gpufleet.gpus": UUIDS[1], "gpufleet.isolation": "cdi"}.items()
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
        ({"gpus": 1, "exclusive": True, "exclusive_scope": "user"}, False, False),
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


@pytest.mark.parametrize("params", [{"gpus": 1}, {"gpus": [1]}, {"gpus": "all"}, {}])
@pytest.mark.parametrize("state", ["started", "present", "stopped"])
def test_exclusive_use_requires_root_before_an_image_is_pulled(case, params, state):
    with pytest.raises(PlanError) as error:
        case.plan(root_user=False, exclusive=True, state=state, image="missing", **params)
    assert str(error.value) == (
        "exclusive=true requires root, because other users cannot see all containers and processes. Set "
        "become: true, or set exclusive_scope: user to count only the containers of this user's engines."
    )
    assert case.asked == []


@pytest.mark.parametrize("params", [{"gpus": 1}, {"gpus": "none", "exclusive": True}, {"state": "absent"}])
def test_other_requests_do_not_require_root(case, params):
    case.plan(root_user=False, **params)


@pytest.mark.parametrize("root_user", [True, False])
def test_scope_user_counts_only_the_containers_of_the_users_engines(case, root_user):
    tree = holders_on(case)
    case.has(given_gpu(3, "trainer"))
    case.plan(name="own", gpus=[2], exclusive=True, exclusive_scope="user", root_user=root_user)
    assert tree.root == case.root
    given = case.plan(gpus=1, exclusive=True, exclusive_scope="user", root_user=root_user)["gpu_assignment"]
    assert given["indexes"] == [0]
    assert given["reason"].endswith("exclusive_scope is user: only containers of this user's engines count as holders")
    assert given["warnings"] == []


def holders_on(case):
    """Let GPU 0 be held by another user's container, and GPU 1 by a process."""
    tree = ProcessTree(case.root)
    tree.rootless_podman(40, "nvidia3", name="notebook")
    tree.process(70, "python3", user=ALICE)
    case.facts = facts([gpu(0), gpu(1, processes=[{"pid": 70, "name": "python3"}]), gpu(2), gpu(3)])
    return tree


def test_exclusive_use_counts_other_users_processes_and_pods(case):
    tree = holders_on(case)
    uid = "0f3c1d52-9c1e-4a57-8f0e-0c1de6a1b2c3"
    entry = {"PodUID": uid, "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"0": [UUIDS[2]]}}
    tree.checkpoint(entry, offered={"nvidia.com/gpu": UUIDS}, names=(f"ml_trainer-0_{uid}",))
    tree.container(50, cgroup=f"/kubepods/pod{uid}/{identifier(50)}")
    given = case.plan(gpus=1, exclusive=True)["gpu_assignment"]
    assert given["indexes"] == [3]
    assert [text.partition(": exclusive: ")[2][:40] for text in given["warnings"]] == [
        f"stopped containers of rootless engines (user {ALICE}) are not visible"[:40],
        f"Kubernetes can give GPU 3 ({UUIDS[3]}) to a pod"[:40],
    ]
    with pytest.raises(SelectionError) as error:
        case.plan(name="late", gpus=2, exclusive=True)
    for words in (
        f"GPU 0 ({UUIDS[0]}) by podman container notebook of user {ALICE};",
        f"GPU 1 ({UUIDS[1]}) by process 70 (python3) of user {ALICE};",
        f"GPU 2 ({UUIDS[2]}) by kubernetes pod ml/trainer-0;",
        f"GPU 3 ({UUIDS[3]}) by docker container ct (reserved by a run in progress",
    ):
        assert words in str(error.value)
    with pytest.raises(SelectionError, match=r"exclusive: GPU 1 .* is held by process 70 \(python3\) of user "):
        case.plan(name="late", gpus=[1], exclusive=True)


def test_a_count_prefers_gpus_that_nothing_else_holds(case):
    holders_on(case)
    assert case.plan(gpus=1)["gpu_assignment"]["indexes"] == [2]
    assert case.plan(gpus=[0])["gpu_assignment"]["warnings"] == []


def test_a_processes_container_is_named_and_can_be_ignored(case):
    tree = ProcessTree(case.root)
    tree.container(40, capabilities=ALL_CAPABILITIES)
    tree.process(70, "nv-hostengine")
    processes = [{"pid": 40, "name": "train"}, {"pid": 70, "name": "nv-hostengine"}]
    case.facts = facts([gpu(0, processes=processes)])
    case.has({**container("tools", Privileged=True), "Id": identifier(40)})
    with pytest.raises(SelectionError) as error:
        case.plan(gpus=[0], exclusive=True)
    assert "is held by docker container tools (process 40)" in str(error.value)
    assert "is held by process 70 (nv-hostengine) of user root" in str(error.value)
    assert case.plan(gpus=[0], exclusive=True, exclusive_ignore=["tools", "nv-hostengine"])
    with pytest.raises(SelectionError, match="is used by process 40 of docker container tools, process 70"):
        case.plan(gpus=[0], conditions={"idle": True})


def test_a_process_on_a_gpu_without_a_list_of_processes_is_found_by_its_open_files(case):
    opened = ("/dev/nvidia-uvm", "/dev/nvidia3")
    ProcessTree(case.root).process(70, "python3", user=ALICE, opened=opened)
    case.facts = facts([gpu(0, processes=None), gpu(1)])
    with pytest.raises(SelectionError, match=r"exclusive: GPU 0 .* is held by process 70 \(python3\) of user "):
        case.plan(gpus=[0], exclusive=True)
    assert case.plan(gpus=1, exclusive=True)["gpu_assignment"]["indexes"] == [1]


def test_gpus_of_a_swarms_service_are_held(case):
    case.file("/etc/nvidia-container-runtime/config.toml", 'swarm-resource = "DOCKER_RESOURCE_GPU, OTHER"\n')
    case.has(container("service", env=[f"DOCKER_RESOURCE_GPU={UUIDS[1]}"], Runtime="nvidia"))
    with pytest.raises(SelectionError, match=r"exclusive: GPU 1 .* is held by docker container service"):
        case.plan(gpus=[1], exclusive=True)
    assert case.plan(gpus=[2], exclusive=True)["gpu_assignment"]["indexes"] == [2]


def test_own_processes_do_not_prevent_exclusive_or_idle_use(case):
    ProcessTree(case.root).container(40, "nvidia2")
    case.facts = facts([gpu(0), gpu(1, memory_free_mib=100, processes=[{"pid": 40, "name": "train"}])])
    case.has({**given_gpu(1, labels=EXCLUSIVE), "Id": identifier(40)})
    conditions = {"idle": True, "memory_free_min_mib": 20000}
    for gpus in (1, [1]):
        plan = case.plan(gpus=gpus, exclusive=True, conditions=conditions)
        assert (plan["gpu_assignment"]["indexes"], plan["gpu_assignment"]["changes"]) == ([1], [])


def test_exclusive_use_says_that_the_driver_lists_no_processes(case):
    ProcessTree(case.root)
    case.facts = facts([gpu(0, processes=None), gpu(1)])
    (warning,) = case.plan(gpus=[0], exclusive=True)["gpu_assignment"]["warnings"]
    assert warning.startswith(f"container ct: exclusive: the driver does not list the processes on GPU 0 ({UUIDS[0]})")
    assert case.plan(name="other", gpus=[1], exclusive=True)["gpu_assignment"]["warnings"] == []
    assert case.plan(name="third", gpus=[0])["gpu_assignment"]["warnings"] != [warning]


@pytest.mark.parametrize(
    "params", [{"exclusive": True}, {"conditions": {"idle": True}}, {"exclusive": True, "conditions": {"idle": True}}]
)
def test_server_of_mps_is_no_holder_for_a_container_that_uses_mps(case, params):
    case.file("/tmp/nvidia-mps/control")
    tree = ProcessTree(case.root)
    tree.process(69, "nvidia-cuda-mps", words=("nvidia-cuda-mps-control", "-d"))
    # The kernel cuts the command after 15 characters.
    tree.process(70, "nvidia-cuda-mps", user=ALICE)
    case.facts = facts([gpu(0, processes=[{"pid": 70, "name": "nvidia-cuda-mps-server"}])])
    with pytest.raises(SelectionError, match=r"process 70 \(nvidia-cuda-mps\)"):
        case.plan(gpus=[0], **params)
    assert case.plan(gpus=[0], features=["mps"], **params)["gpu_assignment"]["indexes"] == [0]
    # Other clients of MPS count.
    tree.process(71, "python3", user=ALICE)
    case.facts = facts([gpu(0, processes=[{"pid": 70, "name": ""}, {"pid": 71, "name": ""}])])
    with pytest.raises(SelectionError, match=r"process 71 \(python3\)"):
        case.plan(name="other", gpus=[0], features=["mps"], **params)


@pytest.mark.parametrize(
    ("ignored", "is_free"),
    [("nvidia-persistenced", True), ("nvidia-persiste", True), ("nvidia", False), ("nvidia-powerd", False)],
)
def test_a_long_command_is_ignored_by_its_whole_name(case, ignored, is_free):
    ProcessTree(case.root).process(70, "nvidia-persiste")
    case.facts = facts([gpu(0, processes=[{"pid": 70, "name": ""}])])
    if is_free:
        case.plan(gpus=[0], exclusive=True, exclusive_ignore=[ignored])
    else:
        with pytest.raises(SelectionError, match="is held by process 70"):
            case.plan(gpus=[0], exclusive=True, exclusive_ignore=[ignored])


@pytest.mark.parametrize(
    ("params", "subsets"),
    [
        ({"gpus": [1]}, set()),
        ({"gpus": [1], "exclusive": True}, {"processes"}),
        ({"gpus": [1], "conditions": {"idle": True}}, {"processes"}),
        ({"gpus": "all", "conditions": {"memory_free_min_mib": 1}}, {"mig"}),
        ({"gpus": 1}, {"processes", "topology"}),
    ],
)
def test_only_the_required_facts_are_read(case, params, subsets):
    case.facts = facts([gpu(0, memory_free_mib=10), gpu(1, memory_free_mib=10)])
    case.plan(**params)
    assert case.asked == [frozenset({"min", "identity", "nvlink", *subsets})]


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
def test_image_is_pulled_before_gpus_are_reserved(case, engine, policy, is_local, expected):
    images = {"new": Image("1")} if is_local else {}
    case.docker, case.podman = Engine(docker(), images=images), Engine(podman(), images=images)
    plan = case.plan(engine=engine, image="new", pull=policy, gpus=[1])
    assert (plan["pull"]["module"], plan["pull"]["args"]) == expected
    assert case.reserved() == {}


@pytest.mark.parametrize(
    ("params", "error", "words"),
    [
        ({"gpus": [9]}, SelectionError, "9"),
        ({"gpus": 5}, SelectionError, "5"),
        ({"gpus": [1], "conditions": {"model": "T4"}}, SelectionError, "T4"),
        ({"gpus": [1], "isolation": "cdi"}, IsolationError, "isolation=cdi is not available"),
    ],
)
def test_request_that_fails_with_every_image_fails_before_the_pull(case, params, error, words):
    with pytest.raises(error, match=re.escape(words)):
        case.plan(image="new", **params)


def test_image_without_request_is_pulled_without_reading_the_gpus(case):
    assert "pull" in case.plan(image="new")
    assert "pull" in case.plan(image="new", gpus="none")
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
        "container ct: pull=always: check mode pulls nothing, so the prediction is for the local image image. If "
        "the registry has a newer image, a run outside check mode recreates the container."
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


COMPAT = "/usr/local/cuda/compat"
NEWER_CUDA = {"NVIDIA_REQUIRE_CUDA": "cuda>=13.0 brand=nvidia,driver>=535,driver<536"}


@pytest.mark.parametrize(
    ("image_env", "env", "libraries", "expected"),
    [
        ({}, {}, "files", COMPAT),
        ({"LD_LIBRARY_PATH": "/opt/lib"}, {}, "files", f"{COMPAT}:/opt/lib"),
        ({"LD_LIBRARY_PATH": "/opt/lib"}, {"LD_LIBRARY_PATH": "/mine"}, "files", f"{COMPAT}:/mine"),
        ({}, {}, "volume", f"{COMPAT}:/usr/local/nvidia/lib64:/usr/local/nvidia/lib"),
        # The user knows better.
        ({}, {"LD_LIBRARY_PATH": f"/mine:{COMPAT}"}, "files", f"/mine:{COMPAT}"),
    ],
)
def test_compatibility_package_of_the_image_comes_first(case, image_env, env, libraries, expected):
    case.docker.images["image"] = Image("sha256:1", env={**image_env, **NEWER_CUDA})
    plan = case.plan(gpus=[1], env=env, libraries=libraries)
    assert plan["module_args"]["env"]["LD_LIBRARY_PATH"] == expected
    assert plan["gpu_assignment"]["warnings"] == []


@pytest.mark.parametrize(
    ("cuda", "changes"), [("12.2", []), ("13.1", [f"LD_LIBRARY_PATH: {COMPAT} is no longer required"])]
)
def test_compatibility_package_is_removed_after_an_upgrade_of_the_driver(case, cuda, changes):
    case.docker.images["image"] = Image("sha256:1", env=NEWER_CUDA)
    case.has(given_gpu(1, env=[f"LD_LIBRARY_PATH={COMPAT}"]))
    case.facts["nvidia_driver"]["cuda_version"] = cuda
    assert case.plan(gpus=[1])["gpu_assignment"]["changes"] == changes


@pytest.mark.parametrize("own", [{"env": {"LD_LIBRARY_PATH": COMPAT}}, {}])
def test_compatibility_package_of_the_user_is_kept(case, own):
    case.docker.images["image"] = Image("sha256:1", env={} if own else {"LD_LIBRARY_PATH": COMPAT})
    case.has(given_gpu(1, env=[f"LD_LIBRARY_PATH={COMPAT}"]))
    assert case.plan(gpus=[1], **own)["gpu_assignment"]["changes"] == []


@pytest.mark.parametrize(
    ("mode", "files", "is_refused"),
    [
        ("legacy", (), True),
        ("jit-cdi", (), False),
        ("cdi", (), False),
        ("auto", ("/usr/lib/systemd/system/nvidia-cdi-refresh.service",), False),
        # An older version would refuse the image itself, and says why.
        ("auto", (), False),
    ],
)
def test_nvidias_runtime_is_not_stricter_than_its_mode(case, mode, files, is_refused):
    case.docker._state = docker(runtimes={"runc": "runc", "nvidia": "nvidia-container-runtime"})
    case.docker.images["image"] = Image("sha256:1", env={"NVIDIA_REQUIRE_CUDA": "cuda>=13.0"})
    case.file("/etc/nvidia-container-runtime/config.toml", f'[nvidia-container-runtime]\nmode = "{mode}"\n')
    for file in ("/usr/bin/nvidia-container-runtime", *files):
        case.file(file)
    if mode == "cdi":
        device = {"name": UUIDS[1], "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia2"}, *CDI_CONTROL]}}
        case.file("/etc/cdi/nvidia.json", json.dumps({"kind": "nvidia.com/gpu", "devices": [device]}))
    if is_refused:
        with pytest.raises(RequirementError, match=r"driver 12\.2 < image 13\.0"):
            case.plan(gpus=[1], isolation="runtime")
        config = 'disable-require = true\n[nvidia-container-runtime]\nmode = "legacy"\n'
        case.file("/etc/nvidia-container-runtime/config.toml", config)
    plan = case.plan(gpus=[1], isolation="runtime")
    (warning,) = (text for text in plan["gpu_assignment"]["warnings"] if "CUDA version" in text)
    assert "NVIDIA's runtime does not check this requirement" in warning
    assert "LD_LIBRARY_PATH" not in plan["module_args"]["env"]


def test_device_requests_check_requirements_only_with_nvidias_hook(case):
    case.docker.images["image"] = Image("sha256:1", env={"NVIDIA_REQUIRE_CUDA": "cuda>=13.0"})
    case.file("/usr/bin/nvidia-container-runtime-hook")
    case.docker._state = docker(started=None)
    with pytest.raises(RequirementError, match=r"driver 12\.2 < image 13\.0"):
        case.plan(gpus=[1], isolation="device_requests")
    case.file("/usr/bin/nvidia-cdi-hook")
    case.docker._state = docker("29.2.0", started=None, cdi_dirs=("/etc/cdi",))
    # Docker falls back to the hook, because no CDI specification names the GPU.
    with pytest.raises(RequirementError, match=r"driver 12\.2 < image 13\.0"):
        case.plan(gpus=[1], isolation="device_requests")
    device = {"name": UUIDS[1], "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia2"}, *CDI_CONTROL]}}
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device]}
    case.file("/etc/cdi/nvidia.json", json.dumps(spec))
    warnings = case.plan(gpus=[1], isolation="device_requests")["gpu_assignment"]["warnings"]
    assert any("does not check this requirement" in text for text in warnings)


def test_warnings_and_risks_are_in_the_result(case):
    case.docker.images["image"] = Image("1", labels={"com.nvidia.cuda.version": "12.9"})
    case.facts = facts(
        [gpu(0, compute_mode="prohibited", health={"state": "degraded", "reasons": ["it is too hot"]}), gpu(1)]
    )
    warnings = case.plan(gpus="all", privileged=True)["gpu_assignment"]["warnings"]
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


def test_all_gpus_include_unusable_ones_with_a_warning(case):
    case.facts = facts([gpu(0, **PENDING), gpu(1, compute_mode="prohibited")])
    given = case.plan(gpus="all")["gpu_assignment"]
    assert given["indexes"] == [0, 1]
    assert given["warnings"] == [
        f"container ct: GPU 1 ({UUIDS[1]}) is in compute mode prohibited: CUDA programs cannot use it.",
        f"container ct: GPU 0 ({UUIDS[0]}) is degraded: the driver asks for a reset",
    ]
    assert "skipped" not in given["reason"]


def test_podman_uses_another_isolation_if_the_specification_is_stale(case):
    case.podman = Engine(podman(), volumes={VOLUME_NAME: "/volume"})
    devices = [{"name": UUIDS[1], "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia2"}, *CDI_CONTROL]}}]
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


def test_gpus_that_the_users_environment_requests_cause_no_warning(case):
    plan = case.plan(env={"NVIDIA_VISIBLE_DEVICES": "0"})
    assert plan["gpu_assignment"]["indexes"] == [0]
    assert "requested by the environment variable NVIDIA_VISIBLE_DEVICES (0)" in plan["gpu_assignment"]["reason"]
    assert plan["gpu_assignment"]["warnings"] == []
    (warning,) = case.plan(env={"NVIDIA_VISIBLE_DEVICES": "0"}, gpus=[1])["gpu_assignment"]["warnings"]
    assert "env NVIDIA_VISIBLE_DEVICES=0 is ignored, because gpus names the devices" in warning


def test_ambiguous_name_is_refused_before_the_pull(case):
    case.docker.matched_by_id_names = {"ct": "billing"}
    with pytest.raises(PlanError, match="the identifier of container billing"):
        case.plan(image="new", gpus=[1])


def test_device_that_bypasses_gpus_gives_a_warning_with_the_container_name(case):
    (warning,) = case.plan(gpus=[1], devices=["/dev/nvidia0"])["gpu_assignment"]["warnings"]
    assert warning == "container ct: device /dev/nvidia0 gives access to GPUs in addition to gpus."


CHANNEL = "/dev/nvidia-caps-imex-channels/channel"


def test_features_add_nodes_mounts_and_the_environment(case):
    for path in ("/dev/nvidia-fs0", "/dev/gdrdrv", f"{CHANNEL}0", "/run/udev/control", "/tmp/nvidia-mps/control"):
        case.file(path)
    plan = case.plan(gpus=[1], features=["mps", "gds", "gdrcopy"], imex_channels=[0], devices=["/dev/fuse"])
    arguments = plan["module_args"]
    assert arguments["devices"] == [
        "/dev/fuse",
        "/dev/gdrdrv",
        "/dev/nvidia-fs0",
        f"{CHANNEL}0",
        *CONTROL,
        "/dev/nvidia2",
    ]
    assert arguments["volumes"][:2] == ["/run/udev:/run/udev:ro", "/tmp/nvidia-mps:/tmp/nvidia-mps"]
    assert arguments["env"]["CUDA_MPS_PIPE_DIRECTORY"] == "/tmp/nvidia-mps"
    assert arguments["ipc_mode"] == "host"
    assert arguments["labels"]["gpufleet.features"] == "gdrcopy,gds,mps,imex0"
    assert plan["gpu_assignment"]["warnings"] == []


def test_mps_keeps_the_ipc_mode_of_the_user(case):
    case.file("/tmp/nvidia-mps/control")
    arguments = case.plan(gpus=[1], features=["mps"], ipc_mode="container:mps")["module_args"]
    assert arguments["ipc_mode"] == "container:mps"


@pytest.mark.parametrize(
    ("label", "features", "changes"),
    [
        ("gds", ["gds"], []),
        ("gds", [], ["features: gds → none"]),
        ("", ["gds"], ["features: none → gds"]),
        ("gds,imex0", ["gds"], ["features: gds,imex0 → gds"]),
    ],
)
def test_changed_features_recreate_the_container(case, label, features, changes):
    case.file("/dev/nvidia-fs0")
    has = given_gpu(1, labels={"gpufleet.features": label} if label else {})
    if label:
        has["HostConfig"]["Devices"] += nodes("/dev/nvidia-fs0")
    case.has(has)
    plan = case.plan(gpus=[1], features=features)
    assert plan["gpu_assignment"]["changes"] == changes
    assert ("/dev/nvidia-fs0" in plan["module_args"]["devices"]) is bool(features)


def test_a_feature_that_the_host_lacks_is_refused_before_a_reservation(case):
    with pytest.raises(FeatureError, match="features=gds: no device node"):
        case.plan(gpus=[1], features=["gds"])
    assert case.reserved() == {}
    # A container is stopped and removed without its features.
    case.has(given_gpu(1))
    assert case.plan(state="stopped", features=["gds"])["gpu_diff"]["after"]["running"] is False
    assert case.plan(state="absent", features=["gds"])["gpu_diff"]["after"]["exists"] is False


EGL = "/usr/share/glvnd/egl_vendor.d/10_nvidia.json"
ICD = "/usr/share/vulkan/icd.d/nvidia_icd.json"
GRAPHICS = (
    "libEGL_nvidia",
    "libGLX_nvidia",
    "libnvidia-allocator",
    "libnvidia-eglcore",
    "libnvidia-glcore",
    "libnvidia-glsi",
    "libnvidia-glvkspirv",
    "libnvidia-tls",
)
ALLOCATOR = f"libnvidia-allocator.so.{DRIVER}"
GRAPHICS_MOUNTS = [
    f"/volume/{source}:{target}:ro"
    for source, target in (
        (f"lib64/{ALLOCATOR}", "/usr/lib/x86_64-linux-gnu/gbm/nvidia-drm_gbm.so"),
        (f"lib64/{ALLOCATOR}", "/usr/lib64/gbm/nvidia-drm_gbm.so"),
        ("share/10_nvidia.json", EGL),
        ("share/nvidia_icd.json", ICD),
    )
]
DRM_LINKS = "/dev/dri/by-path:/dev/dri/by-path:ro"


@pytest.fixture
def graphics_case(case, monkeypatch):
    """A host with a driver, its files for graphics, and DRM nodes."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for base in GRAPHICS:
        soname = {"libEGL_nvidia": "libEGL_nvidia.so.0", "libGLX_nvidia": "libGLX_nvidia.so.0"}.get(
            base, f"{base}.so.1"
        )
        path = case.root / f"usr/lib/x86_64-linux-gnu/{base}.so.{DRIVER}"
        driver_tree.write_elf(path, soname=soname, abi=(2, 3, 99))
    case.file(EGL, '{"ICD": {"library_path": "libEGL_nvidia.so.0"}}')
    case.file(ICD, '{"ICD": {"library_path": "libGLX_nvidia.so.0"}}')
    for path in ("/dev/nvidia-modeset", "/dev/dri/card1", "/dev/dri/by-path/pci-0000:3b:00.0-card"):
        case.file(path)
    case.file("/sys/bus/pci/devices/0000:3b:00.0/drm/card1/x")
    return case


def test_graphics_has_its_files_and_links(graphics_case):
    options = {"gpus": [1], "isolation": "volume", "libraries": "volume", "capabilities": ["graphics"]}
    plan = graphics_case.plan(**options)
    arguments = plan["module_args"]
    assert arguments["volumes"] == [f"{VOLUME_NAME}:/usr/local/nvidia:ro", DRM_LINKS, *GRAPHICS_MOUNTS]
    assert arguments["devices"] == ["/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia2", "/dev/dri/card1"]
    # The volume was created without graphics.
    assert plan["driver_volume"] is not None
    for mount in GRAPHICS_MOUNTS:
        graphics_case.file(mount.split(":")[0])
    (graphics_case.root / "volume/lib64/nvidia-drm_gbm.so").symlink_to(ALLOCATOR)
    plan = graphics_case.plan(**options)
    assert plan["driver_volume"] is None
    assert plan["module_args"]["volumes"] == arguments["volumes"]


def test_graphics_libraries_are_mounted_as_files(graphics_case):
    options = {"gpus": [1], "isolation": "volume", "capabilities": ["graphics"]}
    volumes = graphics_case.plan(**options)["module_args"]["volumes"]
    library = f"libnvidia-eglcore.so.{DRIVER}"
    assert f"/volume/lib64/{library}:/usr/lib64/{library}:ro" in volumes
    assert set(GRAPHICS_MOUNTS) < set(volumes)
    assert not any(":/usr/lib64/nvidia-drm_gbm.so" in volume for volume in volumes)
    volumes = graphics_case.plan(**{**options, "capabilities": ["compute"]})["module_args"]["volumes"]
    assert not any("egl" in volume or "10_nvidia" in volume or "dri" in volume.split(":")[0] for volume in volumes[1:])


def test_a_container_without_the_files_for_graphics_is_recreated(graphics_case):
    made = given_gpu(1, labels={"gpufleet.capabilities": "graphics"})
    made["HostConfig"]["Devices"] = nodes("/dev/nvidiactl", "/dev/nvidia2", "/dev/dri/card1")
    graphics_case.has(made)
    options = {"gpus": [1], "capabilities": ["graphics"], "libraries": "volume"}
    expected = [f"driver volume: {DRM_LINKS} is not mounted"]
    assert graphics_case.plan(**options)["gpu_assignment"]["changes"] == expected
    for mount, changes in ((DRM_LINKS, 1), *((mount, 1) for mount in GRAPHICS_MOUNTS[:-1]), (GRAPHICS_MOUNTS[-1], 0)):
        source, target, _mode = mount.split(":")
        made["Mounts"] = [*made["Mounts"], {"Source": source, "Destination": target, "RW": False}]
        assert len(graphics_case.plan(**options)["gpu_assignment"]["changes"]) == changes


@pytest.mark.parametrize("capability", ["graphics", "display"])
@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (
            f"usr/lib/x86_64-linux-gnu/libGLX_nvidia.so.{DRIVER}",
            f"libGLX_nvidia.so.{DRIVER}, nvidia_icd.json (",
        ),
        (EGL[1:], "10_nvidia.json ("),
    ],
)
def test_incomplete_graphics_is_refused(graphics_case, missing, words, capability):
    (graphics_case.root / missing).unlink()
    with pytest.raises(IsolationError) as caught:
        graphics_case.plan(gpus=[1], isolation="volume", capabilities=[capability])
    assert f"these files are missing: {words}" in str(caught.value)


@pytest.mark.parametrize("complete", [True, False])
def test_an_image_for_graphics_also_runs_on_a_host_without_graphics(graphics_case, complete):
    graphics_case.docker.images["image"] = Image("1", env={"NVIDIA_DRIVER_CAPABILITIES": "all"})
    if not complete:
        (graphics_case.root / EGL[1:]).unlink()
    arguments = graphics_case.plan(gpus=[1])["module_args"]
    assert ("/dev/dri/card1" in arguments["devices"]) is complete
    assert any("10_nvidia.json" in volume for volume in arguments["volumes"]) is complete


@pytest.mark.parametrize(
    ("mounts", "capabilities", "isolation"),
    [
        ([], ["graphics"], "volume"),
        ([EGL], ["graphics"], "cdi"),
        ([], ["compute"], "cdi"),
        ([], None, "cdi"),
    ],
)
def test_a_specification_without_graphics_is_not_used_for_graphics(graphics_case, mounts, capabilities, isolation):
    graphics_case.docker = Engine(docker("28.3.0", cdi_dirs=("/etc/cdi",)), volumes={VOLUME_NAME: "/volume"})
    edits = {
        "deviceNodes": [{"path": "/dev/nvidia2"}, *CDI_CONTROL, {"path": "/dev/nvidia-modeset"}],
        "mounts": [{"hostPath": path, "containerPath": path} for path in mounts],
    }
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": UUIDS[1], "containerEdits": edits}]}
    graphics_case.file("/etc/cdi/gpu.json", json.dumps(spec))
    plan = graphics_case.plan(gpus=[1], capabilities=capabilities)
    assert plan["gpu_assignment"]["isolation"] == isolation


@pytest.mark.parametrize("engine", ["auto", "podman"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_container_that_two_engines_list_does_not_block_itself(case, engine, count):
    case.docker._state = docker("5.4.2", runtimes={"crun": "crun"}, default_runtime="crun")
    case.podman = Engine(podman(), volumes={VOLUME_NAME: "/volume"})
    made = given_gpu(0, labels={"gpufleet.exclusive": "true"})
    case.docker.table["ct"], case.podman.table["ct"] = made, {**copy.deepcopy(made), "Name": "ct"}
    case.facts = facts([gpu(index) for index in range(count)])
    plan = case.plan(gpus=1, exclusive=True, engine=engine)
    assert (plan["gpu_assignment"]["uuids"], plan["gpu_changed"]) == ([UUIDS[0]], False)
