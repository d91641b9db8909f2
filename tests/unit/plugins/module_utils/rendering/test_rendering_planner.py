# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments with which a user starts a container that has the selected GPUs."""

from __future__ import annotations

import csv
import json
import os
import platform

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.engine_module_options import OptionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import IsolationError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.vendor import Nvidia
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.plan_result import PlanError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import Reservations
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Image, StoppedDocker
from ansible_collections.gpufleet.hosts.plugins.module_utils.rendering import compose_file, engine_command_arguments
from ansible_collections.gpufleet.hosts.plugins.module_utils.rendering.rendering_planner import RenderingPlanner
from ansible_collections.gpufleet.hosts.plugins.modules.gpu_container import argument_spec
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_tree import PROGRAMS
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import (
    CDI_CONTROL,
    DRIVER,
    UUIDS,
    Engine,
    container,
    docker,
    facts,
    gpu,
    nodes,
    podman,
)

VOLUME = f"nvidia_driver_{DRIVER}"
MOUNT = f"{VOLUME}:/usr/local/nvidia:ro"
CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
IMAGE = Image(id="sha256:1", env={"PATH": "/opt/conda/bin:/usr/bin", "LD_LIBRARY_PATH": "/opt/lib"})
LIBRARIES = {
    "LD_LIBRARY_PATH": "/opt/lib:/usr/local/nvidia/lib64:/usr/local/nvidia/lib",
    "PATH": "/opt/conda/bin:/usr/bin:/usr/local/nvidia/bin",
}
# The volume of these tests has one library.
LIBRARY = f"libnvidia-ml.so.{DRIVER}"
FILES = [f"/volume/lib64/{LIBRARY}:{place}/{LIBRARY}:ro" for place in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")]
ENVIRONMENT = [f"--env={name}={value}" for name, value in LIBRARIES.items()]
NEWER_CUDA = "cuda>=13.0 brand=nvidia,driver>=535,driver<536"
CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
NVIDIA = {"runtimes": {"runc": "runc", "nvidia": "/usr/bin/nvidia-container-runtime"}}


class Host:
    """A host with four GPUs, Docker, and Podman if a test adds it."""

    def __init__(self, tmp_path):
        self.root = tmp_path / "root"
        self.reserved = tmp_path / "run"
        for path in (*CONTROL, *(f"/dev/nvidia{minor}" for minor in range(4)), *PROGRAMS):
            self.file(path)
        self.file(f"/volume/lib64/{LIBRARY}")
        driver_tree.ubuntu(self.root, DRIVER)
        self.docker = self.engine(docker())
        self.podman = Engine(podman(), absence="the command podman is not in PATH")

    def engine(self, state, *containers, volumes=None):
        images = {"image": IMAGE}
        return Engine(state, containers, images, {VOLUME: "/volume"} if volumes is None else volumes)

    def file(self, path, text=""):
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def specification(self, index):
        """Write a CDI specification that describes one GPU."""
        node = {"path": f"/dev/nvidia{3 - index}"}
        library = {"hostPath": f"/lib/libcuda.so.{DRIVER}", "containerPath": f"/lib/libcuda.so.{DRIVER}"}
        self.file(f"/lib/libcuda.so.{DRIVER}")
        device = {"name": UUIDS[index], "containerEdits": {"deviceNodes": [node, *CDI_CONTROL], "mounts": [library]}}
        self.file(
            "/etc/cdi/nvidia.json", json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device]})
        )

    def plan(self, check=False, **params):
        given = {name: option.get("default") for name, option in argument_spec().items()}
        given.update({"name": "ct", "image": "image", "state": "rendered", **params})
        return RenderingPlanner(
            given,
            {"docker": self.docker, "podman": self.podman},
            Nvidia(
                lambda subsets: facts(gpu(index) for index in range(4)),
                root=str(self.root),
                driver_root=given["driver_root"] or "/",
            ),
            Reservations(str(self.reserved)),
            check_mode=check,
        ).plan()

    def rendered(self, **params):
        return self.plan(**params)["rendered"]


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return Host(tmp_path)


def test_volume_is_written_for_docker_and_compose(host):
    plan = host.plan(gpus=[1], libraries="volume")
    assert plan["rendered"] == {
        "docker_args": [
            *ENVIRONMENT,
            f"--volume={MOUNT}",
            *(f"--device={node}" for node in (*CONTROL, "/dev/nvidia2")),
        ],
        "podman_args": None,
        "compose": {
            "services": {
                "ct": {
                    "environment": LIBRARIES,
                    "volumes": [MOUNT],
                    "devices": [*CONTROL, "/dev/nvidia2"],
                }
            },
            "volumes": {VOLUME: {"external": True}},
        },
    }
    assert plan["nothing_to_do"]
    assert (plan["gpu_assignment"]["uuids"], plan["gpu_assignment"]["isolation"]) == ([UUIDS[1]], "volume")


def test_libraries_are_written_as_mounts_of_files(host):
    host.podman = host.engine(podman())
    rendered = host.rendered(gpus=[1])
    mounts = [f"--volume={mount}" for mount in (MOUNT, *FILES)]
    nodes_of_gpu = [f"--device={node}" for node in (*CONTROL, "/dev/nvidia2")]
    assert rendered["docker_args"] == rendered["podman_args"] == [*mounts, *nodes_of_gpu]
    # Compose declares only the named volume.
    assert rendered["compose"]["services"]["ct"]["volumes"] == [MOUNT, *FILES]
    assert rendered["compose"]["volumes"] == {VOLUME: {"external": True}}


def test_compatibility_package_of_the_image_comes_first_in_each_engine(host):
    host.docker.images["image"] = Image("sha256:1", env={**IMAGE.env, "NVIDIA_REQUIRE_CUDA": NEWER_CUDA})
    host.podman = host.engine(podman())
    rendered = host.rendered(gpus=[1])
    word = "--env=LD_LIBRARY_PATH=/usr/local/cuda/compat:/opt/lib"
    assert (rendered["docker_args"][0], rendered["podman_args"][0]) == (word, word)
    assert rendered["compose"]["services"]["ct"]["environment"] == {"LD_LIBRARY_PATH": word.partition("PATH=")[2]}


def test_features_are_written_for_each_engine(host):
    for path in ("/dev/gdrdrv", CHANNEL, "/tmp/nvidia-mps/control"):
        host.file(path)
    host.specification(1)
    host.podman = host.engine(podman())
    rendered = host.rendered(gpus=[1], features=["mps", "gdrcopy"], imex_channels=[0], shm_size="1g")
    shared = ["--ipc=host", "--env=CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps", "--volume=/tmp/nvidia-mps:/tmp/nvidia-mps"]
    extra = [*shared, "--device=/dev/gdrdrv", f"--device={CHANNEL}"]
    assert set(extra) < set(rendered["docker_args"])
    assert sorted(rendered["podman_args"]) == sorted([*extra, f"--device=nvidia.com/gpu={UUIDS[1]}"])
    assert rendered["compose"]["services"]["ct"]["ipc"] == "host"


def test_driver_in_another_root_fills_the_volume(host):
    host.docker = host.engine(docker(), volumes={})
    (host.root / "usr/lib").rename(host.root / "driver-lib")
    with pytest.raises(IsolationError, match="The driver volume cannot be created: found no x86_64 libcuda"):
        host.plan(gpus=[1])
    driver_tree.ubuntu(host.root / "run/nvidia/driver", DRIVER)
    plan = host.plan(gpus=[1], driver_root="/run/nvidia/driver")
    assert plan["driver_volume"]["driver_root"] == "/run/nvidia/driver"
    assert any(word.endswith(":/usr/lib64/libcuda.so.1:ro") for word in plan["rendered"]["docker_args"])


def test_nothing_is_reserved(host):
    assert host.plan(gpus=2)["token"] is None
    assert not os.path.exists(host.reserved)


def test_both_engines_get_the_same_gpu_each_in_its_own_way(host):
    host.specification(2)
    host.podman = host.engine(podman())
    rendered = host.rendered(gpus=[2])
    assert rendered["podman_args"] == [f"--device=nvidia.com/gpu={UUIDS[2]}"]
    assert "--device=/dev/nvidia1" in rendered["docker_args"]


def test_cdi_is_written_for_docker_and_compose(host):
    host.specification(0)
    host.docker = host.engine(docker("28.5.1", cdi_dirs=("/etc/cdi",)))
    rendered = host.rendered(gpus=[0], isolation="cdi")
    device = f"nvidia.com/gpu={UUIDS[0]}"
    assert rendered["docker_args"] == [f"--device={device}"]
    assert rendered["compose"]["services"]["ct"]["deploy"]["resources"]["reservations"]["devices"] == [
        {"driver": "cdi", "device_ids": [device], "capabilities": ["gpu"]}
    ]


def test_runtime_is_written_for_docker_and_podman(host):
    host.docker = host.engine(docker(**NVIDIA))
    host.podman = host.engine(podman())
    host.file("/usr/bin/nvidia-container-runtime")
    rendered = host.rendered(gpus=[1, 3], isolation="runtime", capabilities=["utility"])
    visible = [f"--env=NVIDIA_VISIBLE_DEVICES={UUIDS[1]},{UUIDS[3]}", "--env=NVIDIA_DRIVER_CAPABILITIES=utility"]
    assert rendered["docker_args"] == [*visible, "--runtime=nvidia"]
    assert rendered["podman_args"] == [*visible, "--runtime=/usr/bin/nvidia-container-runtime"]
    assert rendered["compose"]["services"]["ct"]["runtime"] == "nvidia"


def test_docker_reads_the_device_request_as_one_field_per_key(host):
    host.docker = host.engine(docker(started=2e9))
    host.file("/usr/bin/nvidia-container-runtime-hook")
    os.utime(host.root / "usr/bin/nvidia-container-runtime-hook")
    rendered = host.rendered(gpus=[0, 1], isolation="device_requests", capabilities=["compute", "utility"])
    (word,) = rendered["docker_args"]
    # Docker's client reads the value as a line of CSV.
    assert next(csv.reader([word.removeprefix("--gpus=")])) == [
        f"device={UUIDS[0]},{UUIDS[1]}",
        "capabilities=compute,utility",
    ]
    assert rendered["compose"]["services"]["ct"]["deploy"]["resources"]["reservations"]["devices"] == [
        {"device_ids": [UUIDS[0], UUIDS[1]], "capabilities": ["gpu", "compute", "utility"]}
    ]


def test_engine_that_cannot_give_access_is_named(host):
    host.docker = host.engine(docker(runtimes={"nvidia": "/opt/nvidia-container-runtime"}))
    host.file("/opt/nvidia-container-runtime")
    host.podman = host.engine(podman())
    plan = host.plan(gpus=[1], isolation="runtime")
    assert plan["rendered"]["podman_args"] is None
    assert any(
        "podman_args is not available: isolation=runtime is not" in one for one in plan["gpu_assignment"]["warnings"]
    )


def test_engine_that_is_not_requested_is_not_written(host):
    host.podman = host.engine(podman())
    assert host.rendered(gpus=1, engine="podman")["docker_args"] is None
    assert host.rendered(gpus=1, engine="docker")["podman_args"] is None
    assert None not in host.rendered(gpus=1).values()


@pytest.mark.parametrize(
    ("without", "engines"), [((), None), (("podman",), ["podman"]), (("docker", "podman"), ["docker", "podman"])]
)
def test_missing_driver_volume_is_created_for_the_engines_that_need_it(host, without, engines):
    # With a missing volume, the engine would mount a new, empty one.
    host.docker = host.engine(docker(), volumes={} if "docker" in without else None)
    host.podman = host.engine(podman(), volumes={} if "podman" in without else None)
    volume = host.plan(gpus=1, isolation="volume")["driver_volume"]
    assert (volume and volume["engine"]) == engines


def test_count_takes_free_gpus_and_keeps_those_of_the_container(host):
    taken = {"gpufleet.gpus": UUIDS[0], "gpufleet.isolation": "volume", "gpufleet.exclusive": "true"}
    host.docker = host.engine(
        docker(), container("other", labels=taken, Devices=nodes("/dev/nvidiactl", "/dev/nvidia3"))
    )
    assert UUIDS[0] not in host.plan(gpus=3)["gpu_assignment"]["uuids"]
    own = container("ct", Devices=nodes(*CONTROL, "/dev/nvidia0"))
    host.docker = host.engine(docker(), own)
    plan = host.plan(gpus=1)
    assert plan["gpu_assignment"]["uuids"] == [UUIDS[3]]
    assert plan["gpu_diff"]["before"] == plan["gpu_diff"]["after"]


def test_container_without_gpus_gets_none_from_a_default_runtime(host):
    host.docker.images["image"] = Image(id="sha256:1", env={"NVIDIA_VISIBLE_DEVICES": "all"})
    assert host.rendered(gpus="none")["docker_args"] == ["--env=NVIDIA_VISIBLE_DEVICES=void"]


def test_the_users_paths_are_kept(host):
    rendered = host.rendered(gpus=[1], env={"LD_LIBRARY_PATH": "/mine", "SECRET": "x"}, libraries="volume")
    assert "--env=LD_LIBRARY_PATH=/mine:/usr/local/nvidia/lib64:/usr/local/nvidia/lib" in rendered["docker_args"]
    assert not any("SECRET" in word for word in rendered["docker_args"])


def test_exclusive_is_refused(host):
    with pytest.raises(PlanError, match="nothing reserves the GPUs until you start the container"):
        host.plan(gpus=1, exclusive=True)


def test_check_mode_without_the_image_or_with_a_stopped_docker_writes_nothing(host):
    host.docker.images = {}
    assert set(host.plan(check=True, gpus=1)["rendered"].values()) == {None}
    host.docker = StoppedDocker(lambda: None)
    host.docker.container = lambda name: None
    with pytest.raises(PlanError, match="requires a running engine, but docker is not running"):
        host.plan(check=True, gpus=1)


def test_compose_does_not_replace_variables():
    file = compose_file.compose("ct", {"env": {"PATH": "/a:$HOME/bin"}, "volumes": ["/srv:/data:ro"]})
    assert file == {"services": {"ct": {"environment": {"PATH": "/a:$$HOME/bin"}, "volumes": ["/srv:/data:ro"]}}}


@pytest.mark.parametrize(
    "write",
    [
        engine_command_arguments.docker_args,
        engine_command_arguments.podman_args,
        lambda options: compose_file.compose("ct", options),
    ],
)
def test_unknown_option_is_not_lost(write):
    with pytest.raises(OptionError, match="cannot write the option privileged"):
        write({"privileged": True})
