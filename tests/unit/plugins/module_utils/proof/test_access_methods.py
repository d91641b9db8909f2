# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The methods that a host offers, and the command lines by which a user would start the same container."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import access_methods, proof_containers
from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_tree import CDI_DIRS, ONE, Tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import DRIVER, UUIDS, docker, podman

HOOK, RUNTIME = "/usr/bin/nvidia-container-runtime-hook", "/usr/bin/nvidia-container-runtime"
ALL = (*UUIDS[:2], "all")
VOLUME = f"nvidia_driver_{DRIVER}"
NODES = "--device /dev/nvidiactl --device /dev/nvidia-uvm --device /dev/nvidia-uvm-tools --device /dev/nvidia2"
MOUNTED = "/usr/local/nvidia"
# The default runtime may be NVIDIA's, and the image may request GPUs from it.
OF_VOLUME = (
    f"{NODES} --volume {VOLUME}:{MOUNTED}:ro --env NVIDIA_VISIBLE_DEVICES=void "
    f"--env LD_LIBRARY_PATH={MOUNTED}/lib64:{MOUNTED}/lib"
)
ENVIRONMENT = "--env NVIDIA_VISIBLE_DEVICES=all --env NVIDIA_DRIVER_CAPABILITIES=compute,utility"
NEW = {"cdi_dirs": CDI_DIRS, "runtimes": {"nvidia": RUNTIME}, "started": None}


def containerd(**more):
    return EngineState("containerd", "2.0.5", cdi_dirs=CDI_DIRS, **more)


@pytest.mark.parametrize(
    ("engine", "files", "names", "expected"),
    [
        # The toolkit with Docker.
        (
            docker("29.1.0", **NEW),
            [HOOK, RUNTIME],
            ALL,
            [
                "docker run --gpus all",
                f"docker run --runtime nvidia {ENVIRONMENT}",
                "docker run --device nvidia.com/gpu=all",
                f"docker run {OF_VOLUME}",
            ],
        ),
        # The specification of another tool has no device for all GPUs.
        (
            podman(),
            [],
            UUIDS[:2],
            [f"podman run --device nvidia.com/gpu={UUIDS[1]}", f"podman run {OF_VOLUME}"],
        ),
        (
            podman(),
            [RUNTIME],
            ALL,
            [
                f"podman --runtime {RUNTIME} run {ENVIRONMENT}",
                "podman run --device nvidia.com/gpu=all",
                f"podman run {OF_VOLUME}",
            ],
        ),
        # Docker without the toolkit.
        (docker(), [], ALL, [f"docker run {OF_VOLUME}"]),
        (
            containerd(runtimes={"nvidia": RUNTIME}),
            [],
            ALL,
            [f"ctr run --runc-binary {RUNTIME} {ENVIRONMENT}", "ctr run --device nvidia.com/gpu=all"],
        ),
        (containerd(), [], (), []),
    ],
    ids=["docker", "podman", "podman-runtime", "docker-alone", "containerd", "containerd-alone"],
)
def test_host_offers_the_methods_of_its_software(tmp_path, engine, files, names, expected):
    host = Tree(tmp_path).files(*files).spec(names).host() if names else Tree(tmp_path).host()
    offer = access_methods.offered(engine, host, ONE, lambda name: name == VOLUME)
    assert [method.command() for method in offer.methods] == expected
    assert {method.isolation for method in offer.methods} | set(offer.obstacles) == set(access_methods.ISOLATIONS)


@pytest.mark.parametrize(
    ("change", "isolation", "why"),
    [
        (lambda tree: tree.remove("/dev/nvidia2"), "volume", "device node /dev/nvidia2 does not exist"),
        (lambda tree: tree, "volume", f"docker has no volume {VOLUME}"),
        (lambda tree: tree.spec(ALL, mounts=["/usr/lib/libcuda.so.470.141.03"]), "cdi", "is stale"),
        (
            lambda tree: tree.files("/sys/fs/selinux/enforce", text="1"),
            "device_requests",
            "SELinux is enforcing and denies the container access",
        ),
    ],
)
def test_obstacles_are_named(tmp_path, change, isolation, why):
    tree = Tree(tmp_path).files(HOOK, "/usr/lib/libcuda.so.470.141.03").spec(ALL)
    change(tree)
    offer = access_methods.offered(docker("28.3.0", selinux=True, **NEW), tree.host(), ONE, lambda name: False)
    assert why in offer.obstacles[isolation]


def test_docker_gets_what_its_client_sends():
    method = access_methods.AccessMethod("docker", "cdi", cdi_devices=("nvidia.com/gpu=all",), env=("A=1",))
    asked = proof_containers._container(method, "img", ("python3", "-c", "text"))
    assert asked["HostConfig"]["DeviceRequests"] == [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]
    assert (asked["Image"], asked["Entrypoint"], asked["Cmd"], asked["Env"]) == (
        "img",
        ["python3"],
        ["-c", "text"],
        ["A=1"],
    )
    assert asked["Labels"] == {proof_containers.LABEL: "1"}
    asked = proof_containers._container(
        access_methods.AccessMethod("docker", "device_requests", gpus=True), "img", ("a",)
    )
    assert asked["HostConfig"]["DeviceRequests"] == [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]
    asked = proof_containers._container(
        access_methods.AccessMethod("docker", "runtime", runtime="nvidia"), "img", ("a",)
    )
    assert asked["HostConfig"]["Runtime"] == "nvidia"
    asked = proof_containers._container(
        access_methods.AccessMethod("docker", "volume", devices=("/dev/nvidia0",), volumes=("v:/m:ro",)), "i", ()
    )
    node = {"PathOnHost": "/dev/nvidia0", "PathInContainer": "/dev/nvidia0", "CgroupPermissions": "rwm"}
    assert (asked["HostConfig"]["Devices"], asked["HostConfig"]["Binds"]) == ([node], ["v:/m:ro"])


@pytest.mark.parametrize(("node", "trusted"), [("/dev/nvidia2", True), ("/dev/nvidia3", False)])
def test_the_device_for_all_gpus_is_compared_with_the_host(tmp_path, node, trusted):
    tree = Tree(tmp_path).spec()
    edits = [{"path": path} for path in (node, "/dev/nvidiactl", "/dev/nvidia-uvm")]
    device = {"name": "all", "containerEdits": {"deviceNodes": edits}}
    tree.files(
        "/etc/cdi/zz.json", text=json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device]})
    )
    offer = access_methods.offered(
        EngineState("podman", "5.4.2", cdi_dirs=CDI_DIRS), tree.host(), ONE, lambda name: False
    )
    assert ("cdi" not in offer.obstacles) is trusted
    if not trusted:
        assert "nvidia.com/gpu=all, it has /dev/nvidia3, which is not a node of GPU 1" in offer.obstacles["cdi"]
