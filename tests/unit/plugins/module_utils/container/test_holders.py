# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs containers have, whoever made them and however."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.holders import (
    gpu_nodes,
    has_mount,
    held,
    holder,
    holds,
    kept_devices,
    labelled,
    requested_capabilities,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection import Inventory, inventory_from_facts
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
MIXED = inventory_from_facts([gpu(0, mig=mig(slice_(0), slice_(1))), gpu(1), gpu(2), gpu(3)])
MINORS = {"gpu3/gi7/access": 21, "gpu3/gi7/ci0/access": 22, "gpu3/gi8/access": 31, "gpu3/gi8/ci0/access": 32}
NVIDIA = docker(runtimes={"runc": "runc", "nvidia": "nvidia-container-runtime"})
NVIDIA_BY_DEFAULT = docker(default_runtime="nvidia")


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
        # MIG: the GPU's node alone opens nothing.
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
        # The runtime goes by the environment, and only then does that count.
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
        # Podman says CDI devices only on the command line that made the container.
        (podman(), podman_made("--device", f"nvidia.com/gpu={UUIDS[0]}"), WHOLE, {UUIDS[0]}, "cdi"),
        (podman(), podman_made("--device=nvidia.com/gpu=3", "-d"), WHOLE, {UUIDS[3]}, "cdi"),
        (podman(), podman_made("--gpus", "all"), WHOLE, ALL, "cdi"),
        (podman(), podman_made("--gpus=1"), WHOLE, {UUIDS[1]}, "cdi"),
        (podman(), podman_made("--device", "/dev/fuse"), WHOLE, set(), "none"),
        (podman(), podman_made("--device", "/dev/nvidia0", Devices=nodes("/dev/nvidia0")), WHOLE, {UUIDS[3]}, "volume"),
        (podman(), podman_made(Runtime="oci", Devices=nodes("/dev/nvidia0")), WHOLE, {UUIDS[3]}, "volume"),
        # Beginnings of UUIDs, whole ones in other letters, PCI addresses: NVIDIA's runtime takes them all.
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
        # The vendor's runtime by another name, or asked in another way than by the environment.
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
        # CDI devices by other names than index and UUID, and by other kinds.
        (podman(), podman_made("--device=nvidia.com/gpu=gpu2"), WHOLE, {UUIDS[2]}, "cdi"),
        (podman(), podman_made("--device=nvidia.com/gpu=mig0:1"), MIXED, {MIG_UUIDS[1]}, "cdi"),
        (podman(), podman_made(f"--device=k8s.device-plugin.nvidia.com/gpu={UUIDS[2]}"), WHOLE, {UUIDS[2]}, "cdi"),
        # Names of GPUs that are not here (any more) stay names.
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
        # A GPU that has got MIG on since: the container holds what it has become.
        (
            docker(),
            container("c", DeviceRequests=[request(DeviceIDs=[UUIDS[0]])]),
            MIXED,
            set(MIG_UUIDS),
            "device_requests",
        ),
        # Privileged is not a request for GPUs.
        (docker(), container("c", Privileged=True), WHOLE, set(), "none"),
    ],
)
def test_what_a_container_has(engine, made, inventory, uuids, isolation):
    found = held(made, engine, inventory, MINORS)
    assert (set(found.uuids), found.isolation) == (uuids, isolation)


@pytest.mark.parametrize(
    ("paths", "uuids"),
    [
        (["/dev/char/195:2"], {UUIDS[1]}),
        (["/dev/char/195:255"], set()),
        (["/dev/gpu-a"], {UUIDS[0]}),
    ],
)
def test_a_gpus_node_counts_by_whatever_name(paths, uuids):
    names = {"/dev/char/195:2": "/dev/nvidia2", "/dev/char/195:255": "/dev/nvidiactl", "/dev/gpu-a": "/dev/nvidia3"}
    made = container("c", Devices=nodes(*paths))
    found = held(made, docker(), WHOLE, MINORS, nodes=lambda path: [names[path]])
    assert set(found.uuids) == uuids
    who = holder(made, docker(), WHOLE, MINORS, nodes=lambda path: [names[path]])
    assert (set(who.uuids) if who else set()) == uuids


def test_a_holder_holds_what_it_was_given_in_all_ways_together():
    made = container("c", Devices=nodes("/dev/nvidia0"), DeviceRequests=[request(DeviceIDs=["0"])])
    assert holder(made, docker(), WHOLE, MINORS).uuids == {UUIDS[0], UUIDS[3]}
    assert held(made, docker(), WHOLE, MINORS).uuids == {UUIDS[0]}


def test_what_the_user_gave_past_gpus_can_be_left_out():
    made = container("c", Devices=nodes("/dev/nvidia2", "/dev/nvidia0"))
    assert held(made, docker(), WHOLE, MINORS, besides=["/dev/nvidia0"]).uuids == {UUIDS[1]}
    made = podman_made("--device", "nvidia.com/gpu=1", "--device=nvidia.com/gpu=0")
    assert held(made, podman(), WHOLE, MINORS, besides=["nvidia.com/gpu=0"]).uuids == {UUIDS[1]}


def test_podmans_own_command_line_ends_where_the_containers_begins():
    made = container("c")
    made["Config"]["CreateCommand"] = ["podman", "run", "image", "run.py", "--device", "nvidia.com/gpu=0"]
    made["Config"]["Cmd"] = ["run.py", "--device", "nvidia.com/gpu=0"]
    assert held(made, podman(), WHOLE, MINORS).uuids == frozenset()


@pytest.mark.parametrize(
    ("made", "besides", "kept"),
    [
        (container("c", Devices=nodes("/dev/nvidia0", "/dev/fuse")), [], ["/dev/nvidia0"]),
        (container("c", Devices=nodes("/dev/nvidia0", "/dev/nvidia1")), ["/dev/nvidia1"], ["/dev/nvidia0"]),
        (
            container(
                "c",
                Devices=[
                    {"PathOnHost": "/dev/char/195:2", "PathInContainer": "/dev/nvidia2", "CgroupPermissions": "rw"}
                ],
            ),
            [],
            ["/dev/char/195:2:/dev/nvidia2:rw"],
        ),
        (
            podman_made("--device", "/dev/nvidia0:/dev/x", "--device=/dev/kvm", "--device=nvidia.com/gpu=0"),
            [],
            ["/dev/nvidia0:/dev/x", "nvidia.com/gpu=0"],
        ),
        (podman_made("--device", "/dev/nvidia0:/dev/x"), ["/dev/nvidia0"], []),
    ],
)
def test_what_a_container_keeps_is_said_in_its_own_words(made, besides, kept):
    def named(path):
        return [path.replace("/dev/char/195:", "/dev/nvidia")]

    assert kept_devices(made, named, besides) == kept


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([], set()),
        ([request()], set()),
        ([request(Capabilities=[["gpu", "video"], ["nvidia", "compute"]])], {"video", "compute"}),
        ([cdi("nvidia.com/gpu=0")], set()),
    ],
)
def test_capabilities_of_device_requests(requests, expected):
    assert requested_capabilities(container("c", DeviceRequests=requests)) == expected


def test_podmans_vendor_runtime_goes_by_the_environment():
    made = container("c", env=["NVIDIA_VISIBLE_DEVICES=all"], Runtime="oci")
    assert held({**made, "OCIRuntime": "/usr/bin/nvidia-container-runtime"}, podman(), WHOLE, {}).isolation == "runtime"
    assert held({**made, "OCIRuntime": "crun"}, podman(), WHOLE, {}).uuids == frozenset()


@pytest.mark.parametrize(
    ("status", "policy", "expected"),
    [
        ("running", "", "running"),
        ("paused", "no", "paused"),
        ("restarting", "always", "restarting"),
        ("exited", "", None),
        ("exited", "no", None),
        ("exited", "on-failure", None),
        # Whoever stopped it by hand meant that; otherwise the engine would have restarted it.
        ("exited", "unless-stopped", None),
        ("created", "unless-stopped", "created, restart policy unless-stopped"),
        ("configured", "unless-stopped", "configured, restart policy unless-stopped"),
        ("exited", "always", "exited, restart policy always"),
        ("created", "always", "created, restart policy always"),
        ("created", "", None),
        ("dead", "no", None),
    ],
)
def test_a_stopped_container_holds_what_its_engine_will_start_again(status, policy, expected):
    assert holds(container("c", status=status, policy=policy)) == expected


def test_a_holder_says_who_it_is():
    made = container("trainer", labels={"gpufleet.exclusive": "true"}, Devices=nodes("/dev/nvidia2"))
    found = holder(made, docker(), WHOLE, MINORS)
    assert (found.name, found.engine, found.uuids, found.exclusive) == ("trainer", "docker", {UUIDS[1]}, True)
    assert str(found) == "docker container trainer"
    waiting = container("t", status="exited", policy="always", Devices=nodes("/dev/nvidia2"))
    assert str(holder(waiting, podman(), WHOLE, {})) == "podman container t (exited, restart policy always)"
    assert holder(container("t"), docker(), WHOLE, {}) is None
    assert holder(container("t", status="exited", Devices=nodes("/dev/nvidia2")), docker(), WHOLE, {}) is None


def test_mounts_nodes_and_labels_are_read():
    mount = {"Name": "nvidia_driver_1", "Destination": "/usr/local/nvidia", "RW": False}
    made = container(
        "c", labels={"gpufleet.gpus": "GPU-1,GPU-2"}, mounts=[mount], Devices=nodes("/dev/nvidia0", "/dev/kvm")
    )
    assert has_mount(made, "nvidia_driver_1:/usr/local/nvidia:ro")
    assert not has_mount(made, "nvidia_driver_2:/usr/local/nvidia:ro")
    assert not has_mount(container("c", mounts=[{**mount, "RW": True}]), "nvidia_driver_1:/usr/local/nvidia:ro")
    assert gpu_nodes(made) == {"/dev/nvidia0"}
    assert labelled(made) == {"GPU-1", "GPU-2"}
    assert labelled(container("c")) == frozenset()
