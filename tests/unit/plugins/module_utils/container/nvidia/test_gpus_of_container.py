# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs of containers that any tool created."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import gpu_holders
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Inventory
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.gpus_of_container import assigned_gpus
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.inventory import inventory_from_facts
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

WHOLE = inventory_from_facts([gpu(index) for index in range(4)])
MINORS = {"gpu3/gi7/access": 21, "gpu3/gi7/ci0/access": 22, "gpu3/gi8/access": 31, "gpu3/gi8/ci0/access": 32}
MIXED = inventory_from_facts([gpu(0, mig=mig(slice_(0), slice_(1))), gpu(1), gpu(2), gpu(3)], MINORS)
NVIDIA = docker(runtimes={"runc": "runc", "nvidia": "nvidia-container-runtime"})
NVIDIA_BY_DEFAULT = docker(default_runtime="nvidia")


def as_holder(made, engine, inventory, **options):
    return gpu_holders.as_holder(made, engine, assigned_gpus(made, engine, inventory, **options).held)


def request(**options):
    return {"Driver": "", "Count": 0, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}, **options}


def cdi(*names):
    return request(Driver="cdi", DeviceIDs=list(names), Capabilities=None)


def podman_made(*command, **host):
    made = container("c", **host)
    made["Config"]["CreateCommand"] = ["podman", "run", *command, "image"]
    return made


ALL = set(UUIDS)
MIXED_ALL = {*MIG_UUIDS, *UUIDS[1:]}


@pytest.mark.parametrize(
    ("engine", "made", "inventory", "uuids", "isolation"),
    [
        (docker(), container("c"), WHOLE, set(), "none"),
        # Nodes by minor number: GPU 1 has minor 2.
        (docker(), container("c", Devices=nodes("/dev/nvidiactl", "/dev/nvidia2")), WHOLE, {UUIDS[1]}, "volume"),
        (docker(), container("c", Devices=nodes("/dev/nvidiactl", "/dev/fuse")), WHOLE, set(), "none"),
        (docker(), container("c", Devices=nodes("/dev/nvidia9")), WHOLE, {"/dev/nvidia9"}, "volume"),
        (docker(), container("c", Devices=nodes("/dev/nvidia2")), Inventory(), {"/dev/nvidia2"}, "volume"),
        # The node of a GPU in MIG mode does not give access without capability nodes.
        (docker(), container("c", Devices=nodes("/dev/nvidia3")), MIXED, set(), "none"),
        (
            docker(),
            container(
                "c", Devices=nodes("/dev/nvidia3", "/dev/nvidia-caps/nvidia-cap31", "/dev/nvidia-caps/nvidia-cap32")
            ),
            MIXED,
            {MIG_UUIDS[1]},
            "volume",
        ),
        (
            docker(),
            container("c", Devices=nodes("/dev/nvidia3", "/dev/nvidia-caps/nvidia-cap31")),
            MIXED,
            set(),
            "none",
        ),
        # docker run --gpus
        (docker(), container("c", DeviceRequests=[request(Count=-1)]), WHOLE, ALL, "device_requests"),
        (docker(), container("c", DeviceRequests=[request(Count=2)]), WHOLE, set(UUIDS[:2]), "device_requests"),
        (docker(), container("c", DeviceRequests=[request(DeviceIDs=["2"])]), WHOLE, {UUIDS[2]}, "device_requests"),
        (
            docker(),
            container("c", DeviceRequests=[request(DeviceIDs=[UUIDS[2]])]),
            WHOLE,
            {UUIDS[2]},
            "device_requests",
        ),
        (
            docker(),
            container("c", DeviceRequests=[request(Driver="nvidia", Capabilities=None, DeviceIDs=["0:1"])]),
            MIXED,
            {MIG_UUIDS[1]},
            "device_requests",
        ),
        (docker(), container("c", DeviceRequests=[request(Capabilities=[["tpu"]], Count=1)]), WHOLE, set(), "none"),
        (docker(), container("c", DeviceRequests=[request(Count=-1)]), MIXED, MIXED_ALL, "device_requests"),
        # CDI
        (docker("26.1"), container("c", DeviceRequests=[cdi(f"nvidia.com/gpu={UUIDS[1]}")]), WHOLE, {UUIDS[1]}, "cdi"),
        (docker("26.1"), container("c", DeviceRequests=[cdi("nvidia.com/gpu=all")]), WHOLE, ALL, "cdi"),
        (docker("26.1"), container("c", DeviceRequests=[cdi("nvidia.com/gpu=0:1")]), MIXED, {MIG_UUIDS[1]}, "cdi"),
        (docker("26.1"), container("c", DeviceRequests=[cdi("vendor.com/net=eth0")]), WHOLE, set(), "none"),
        (docker("29.2"), container("c", DeviceRequests=[cdi("runtime.nvidia.com/gpu=1")]), WHOLE, {UUIDS[1]}, "cdi"),
        (docker("29.2"), container("c", DeviceRequests=[cdi("management.nvidia.com/gpu=all")]), WHOLE, ALL, "cdi"),
        (podman(), podman_made("--device", "management.nvidia.com/gpu=all"), WHOLE, ALL, "cdi"),
        # Every capability of NVIDIA's driver in Docker selects this driver.
        (
            docker(),
            container("c", DeviceRequests=[request(Capabilities=[["compute"]], Count=-1)]),
            WHOLE,
            ALL,
            "device_requests",
        ),
        (
            docker(),
            container("c", DeviceRequests=[request(Driver="nvidia.cdi", Capabilities=None, DeviceIDs=["1"])]),
            WHOLE,
            {UUIDS[1]},
            "device_requests",
        ),
        (
            docker(),
            container("c", DeviceRequests=[request(Driver="amd", DeviceIDs=["1"])]),
            WHOLE,
            set(),
            "none",
        ),
        # NVIDIA's runtime gives all GPUs to the oldest images of CUDA, which do not request any.
        (NVIDIA, container("c", env=["CUDA_VERSION=8.0"], Runtime="nvidia"), WHOLE, ALL, "runtime"),
        (
            NVIDIA,
            container("c", env=["CUDA_VERSION=12.4", "NVIDIA_REQUIRE_CUDA=cuda>=12.4"], Runtime="nvidia"),
            WHOLE,
            set(),
            "none",
        ),
        (
            NVIDIA,
            container("c", env=["CUDA_VERSION=8.0", "NVIDIA_VISIBLE_DEVICES="], Runtime="nvidia"),
            WHOLE,
            set(),
            "none",
        ),
        (NVIDIA, container("c", env=["CUDA_VERSION=8.0"], Runtime="runc"), WHOLE, set(), "none"),
        (
            NVIDIA,
            container(
                "c",
                mounts=[{"Destination": "/var/run/nvidia-container-devices/cdi/runtime.nvidia.com/gpu=2"}],
                Runtime="nvidia",
            ),
            WHOLE,
            {UUIDS[2]},
            "runtime",
        ),
        # Only NVIDIA's runtime reads the environment.
        (NVIDIA, container("c", env=["NVIDIA_VISIBLE_DEVICES=all"], Runtime="nvidia"), WHOLE, ALL, "runtime"),
        (
            NVIDIA,
            container("c", env=["NVIDIA_VISIBLE_DEVICES=1,3"], Runtime="nvidia"),
            WHOLE,
            {UUIDS[1], UUIDS[3]},
            "runtime",
        ),
        (NVIDIA, container("c", env=["NVIDIA_VISIBLE_DEVICES=all"], Runtime="runc"), WHOLE, set(), "none"),
        (NVIDIA, container("c", env=["NVIDIA_VISIBLE_DEVICES=void"], Runtime="nvidia"), WHOLE, set(), "none"),
        (NVIDIA, container("c", env=["NVIDIA_VISIBLE_DEVICES=none"], Runtime="nvidia"), WHOLE, set(), "none"),
        (NVIDIA, container("c", Runtime="nvidia"), WHOLE, set(), "none"),
        (NVIDIA_BY_DEFAULT, container("c", env=["NVIDIA_VISIBLE_DEVICES=2"]), WHOLE, {UUIDS[2]}, "runtime"),
        (
            NVIDIA,
            container("c", env=["NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=2"], Runtime="nvidia"),
            WHOLE,
            {UUIDS[2]},
            "runtime",
        ),
        # Podman stores CDI devices only in the command that created the container.
        (podman(), podman_made("--device", f"nvidia.com/gpu={UUIDS[0]}"), WHOLE, {UUIDS[0]}, "cdi"),
        (podman(), podman_made("--device=nvidia.com/gpu=3", "-d"), WHOLE, {UUIDS[3]}, "cdi"),
        (podman(), podman_made("--gpus", "all"), WHOLE, ALL, "cdi"),
        (podman(), podman_made("--gpus=1"), WHOLE, {UUIDS[1]}, "cdi"),
        (podman(), podman_made("--device", "/dev/fuse"), WHOLE, set(), "none"),
        (podman(), podman_made("--device", "/dev/nvidia0", Devices=nodes("/dev/nvidia0")), WHOLE, {UUIDS[3]}, "volume"),
        (podman(), podman_made(Runtime="oci", Devices=nodes("/dev/nvidia0")), WHOLE, {UUIDS[3]}, "volume"),
        # NVIDIA's runtime accepts UUID prefixes, any case, and PCI addresses.
        (
            NVIDIA,
            container("c", env=["NVIDIA_VISIBLE_DEVICES=GPU-bbbb"], Runtime="nvidia"),
            WHOLE,
            {UUIDS[2]},
            "runtime",
        ),
        (
            NVIDIA,
            container("c", env=["NVIDIA_VISIBLE_DEVICES=gpu-AAAA0000, 3"], Runtime="nvidia"),
            WHOLE,
            {UUIDS[0], UUIDS[3]},
            "runtime",
        ),
        (
            NVIDIA,
            container("c", env=["NVIDIA_VISIBLE_DEVICES=GPU-aaaa"], Runtime="nvidia"),
            WHOLE,
            set(UUIDS[:2]),
            "runtime",
        ),
        (
            NVIDIA,
            container("c", env=["NVIDIA_VISIBLE_DEVICES=00000000:3B:00.0"], Runtime="nvidia"),
            WHOLE,
            {UUIDS[1]},
            "runtime",
        ),
        (
            NVIDIA,
            container("c", env=["NVIDIA_VISIBLE_DEVICES=MIG-2222"], Runtime="nvidia"),
            MIXED,
            {MIG_UUIDS[1]},
            "runtime",
        ),
        (
            NVIDIA,
            container("c", env=[f"NVIDIA_VISIBLE_DEVICES=MIG-{UUIDS[0]}/7/0"], Runtime="nvidia"),
            MIXED,
            {MIG_UUIDS[0]},
            "runtime",
        ),
        (
            docker(),
            container("c", DeviceRequests=[request(DeviceIDs=["GPU-cccc"])]),
            WHOLE,
            {UUIDS[3]},
            "device_requests",
        ),
        (NVIDIA, container("c", env=["NVIDIA_VISIBLE_DEVICES=0,void"], Runtime="nvidia"), WHOLE, set(), "none"),
        # NVIDIA's runtime under another name, or requests that are not in the environment.
        (
            docker(runtimes={"gpu": "/usr/bin/nvidia-container-runtime"}),
            container("c", env=["NVIDIA_VISIBLE_DEVICES=1"], Runtime="gpu"),
            WHOLE,
            {UUIDS[1]},
            "runtime",
        ),
        (
            NVIDIA,
            container(
                "c",
                env=["NVIDIA_VISIBLE_DEVICES=void"],
                mounts=[{"Destination": f"/var/run/nvidia-container-devices/{UUIDS[3]}"}],
                Runtime="nvidia",
            ),
            WHOLE,
            {UUIDS[3]},
            "runtime",
        ),
        (
            NVIDIA,
            container("c", Runtime="nvidia", Annotations={"cdi.k8s.io/gpu": "nvidia.com/gpu=0,nvidia.com/gpu=1"}),
            WHOLE,
            set(UUIDS[:2]),
            "runtime",
        ),
        # CDI devices with names other than index and UUID, and of other kinds.
        (podman(), podman_made("--device=nvidia.com/gpu=gpu2"), WHOLE, {UUIDS[2]}, "cdi"),
        (podman(), podman_made("--device=nvidia.com/gpu=mig0:1"), MIXED, {MIG_UUIDS[1]}, "cdi"),
        (podman(), podman_made(f"--device=k8s.device-plugin.nvidia.com/gpu={UUIDS[2]}"), WHOLE, {UUIDS[2]}, "cdi"),
        # Names of GPUs that the host does not have are kept as names.
        (
            docker(),
            container("c", DeviceRequests=[request(DeviceIDs=["GPU-gone"])]),
            WHOLE,
            {"GPU-gone"},
            "device_requests",
        ),
        (docker(), container("c", DeviceRequests=[request(DeviceIDs=["9"])]), WHOLE, set(), "none"),
        (docker(), container("c", DeviceRequests=[request(DeviceIDs=["0"])]), Inventory(), {"0"}, "device_requests"),
        (docker(), container("c", DeviceRequests=[request(Count=-1)]), Inventory(), {"all"}, "device_requests"),
        # If MIG was enabled later, the container holds all MIG devices of the GPU.
        (
            docker(),
            container("c", DeviceRequests=[request(DeviceIDs=[UUIDS[0]])]),
            MIXED,
            set(MIG_UUIDS),
            "device_requests",
        ),
        # A privileged container does not request GPUs.
        (docker(), container("c", Privileged=True), WHOLE, set(), "none"),
    ],
)
def test_gpus_and_isolation_of_a_container(engine, made, inventory, uuids, isolation):
    found = assigned_gpus(made, engine, inventory)
    assert (set(found.uuids), found.isolation) == (uuids, isolation)


@pytest.mark.parametrize(
    ("paths", "uuids"),
    [
        (["/dev/char/195:2"], {UUIDS[1]}),
        (["/dev/char/195:255"], set()),
        (["/dev/gpu-a"], {UUIDS[0]}),
    ],
)
def test_alias_of_a_gpu_node_counts(paths, uuids):
    names = {"/dev/char/195:2": "/dev/nvidia2", "/dev/char/195:255": "/dev/nvidiactl", "/dev/gpu-a": "/dev/nvidia3"}
    made = container("c", Devices=nodes(*paths))
    found = assigned_gpus(made, docker(), WHOLE, nodes=lambda path: [names[path]])
    assert set(found.uuids) == uuids
    holder = as_holder(made, docker(), WHOLE, nodes=lambda path: [names[path]])
    assert holder.uuids == uuids


@pytest.mark.parametrize(
    ("env", "uuids"),
    [
        (["DOCKER_RESOURCE_GPU=1"], {UUIDS[1]}),
        ([f"DOCKER_RESOURCE_GPU={UUIDS[1]},3", "NVIDIA_VISIBLE_DEVICES=all"], {UUIDS[1], UUIDS[3]}),
        (["SECOND=2", "DOCKER_RESOURCE_GPU=1"], {UUIDS[1], UUIDS[2]}),
        (["DOCKER_RESOURCE_GPU=", "CUDA_VERSION=8.0"], set()),
        (["NVIDIA_VISIBLE_DEVICES=2"], {UUIDS[2]}),
        (["CUDA_VERSION=8.0"], ALL),
    ],
)
def test_services_of_a_swarm_hold_the_gpus_of_their_resources(env, uuids):
    made = container("c", env=env, Runtime="nvidia")
    variables = ["DOCKER_RESOURCE_GPU", "SECOND"]
    assert as_holder(made, NVIDIA, WHOLE, swarm_variables=variables).uuids == uuids
    assert assigned_gpus(made, NVIDIA, WHOLE, swarm_variables=variables).uuids == uuids


@pytest.mark.parametrize("engine", [docker("26.1"), podman()])
def test_a_cdi_device_of_another_vendor_holds_the_gpus_of_its_nodes(engine):
    made = container("c", DeviceRequests=[cdi("acme.com/slot=left", "acme.com/net=eth0")])
    if engine.name == "podman":
        made = podman_made("--device", "acme.com/slot=left", "--device", "/dev/fuse")
    found = {"acme.com/slot=left": ("/dev/nvidia2", "/dev/nvidiactl")}
    holder = as_holder(made, engine, WHOLE, cdi_nodes=lambda name: found.get(name, ()))
    assert holder.uuids == {UUIDS[1]}
    assert as_holder(made, engine, WHOLE).uuids == set()


def test_devices_of_the_user_can_be_excluded():
    made = container("c", Devices=nodes("/dev/nvidia2", "/dev/nvidia0"))
    assert assigned_gpus(made, docker(), WHOLE, exclude=["/dev/nvidia0"]).uuids == {UUIDS[1]}
    made = podman_made("--device", "nvidia.com/gpu=1", "--device=nvidia.com/gpu=0")
    assert assigned_gpus(made, podman(), WHOLE, exclude=["nvidia.com/gpu=0"]).uuids == {UUIDS[1]}


def test_options_of_the_containers_own_command_are_ignored():
    made = container("c")
    made["Config"]["CreateCommand"] = ["podman", "run", "image", "run.py", "--device", "nvidia.com/gpu=0"]
    made["Config"]["Cmd"] = ["run.py", "--device", "nvidia.com/gpu=0"]
    assert assigned_gpus(made, podman(), WHOLE).uuids == frozenset()


@pytest.mark.parametrize(
    ("requests", "env", "expected"),
    [
        ([request(Count=-1)], [], ("compute", "utility")),
        ([request(Count=-1)], ["NVIDIA_DRIVER_CAPABILITIES=video"], ("video",)),
        ([request(Count=1, Capabilities=[["gpu", "video"], ["nvidia", "compute"]])], [], ("compute", "video")),
        ([cdi("nvidia.com/gpu=0")], [], None),
    ],
)
def test_capabilities_of_device_requests(requests, env, expected):
    made = container("c", env=env, DeviceRequests=requests)
    assert assigned_gpus(made, docker(), WHOLE).capabilities == expected


def test_nvidias_runtime_in_podman_reads_the_environment():
    made = container("c", env=["NVIDIA_VISIBLE_DEVICES=all"], Runtime="oci")
    assert (
        assigned_gpus({**made, "OCIRuntime": "/usr/bin/nvidia-container-runtime"}, podman(), WHOLE).isolation
        == "runtime"
    )
    assert assigned_gpus({**made, "OCIRuntime": "crun"}, podman(), WHOLE).uuids == frozenset()
