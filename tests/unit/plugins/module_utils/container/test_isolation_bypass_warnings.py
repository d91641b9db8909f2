# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests of container/isolation_bypass_warnings.py."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_bypass_warnings import (
    isolation_bypass_warnings,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import UUIDS, docker, podman

LIBRARIES = "/usr/local/nvidia/lib64:/usr/local/nvidia/lib"


VOLUME = Access(
    isolation="volume",
    devices=("/dev/nvidiactl", "/dev/nvidia2"),
    volumes=("nvidia_driver_1.2:/usr/local/nvidia:ro",),
    driver_volume="nvidia_driver_1.2",
    search_last={"LD_LIBRARY_PATH": tuple(LIBRARIES.split(":")), "PATH": ("/usr/local/nvidia/bin",)},
    env={"NVIDIA_VISIBLE_DEVICES": "void"},
)


def bypasses(own, state, allowed=(), *, access=VOLUME, vendor="nvidia", by_option=True):
    return isolation_bypass_warnings(own, state, access, [UUIDS[1]], list(allowed), vendor=vendor, by_option=by_option)


@pytest.mark.parametrize(
    ("engine", "own", "words"),
    [
        ("docker", {"privileged": True}, "privileged: the container can access every GPU of the host"),
        ("docker", {"env": {"NVIDIA_VISIBLE_DEVICES": "all"}}, "env NVIDIA_VISIBLE_DEVICES=all is ignored"),
        ("docker", {"volumes": ["/dev:/dev"]}, "volume /dev:/dev exposes the host's device nodes"),
        ("podman", {"volume": ["/:/host:ro"]}, "volume /:/host:ro exposes the host's device nodes"),
        ("docker", {"devices": ["/dev/nvidia0"]}, "device /dev/nvidia0 gives access to GPUs in addition to gpus"),
        (
            "podman",
            {"device": ["nvidia.com/gpu=all"]},
            "device nvidia.com/gpu=all gives access to GPUs",
        ),
        ("docker", {"devices": ["/dev:/dev"]}, "device /dev:/dev gives access to GPUs in addition to gpus"),
        (
            "podman",
            {"device": ["/dev/char/195:3:/dev/x"]},
            "device /dev/char/195:3:/dev/x gives access to GPUs",
        ),
        (
            "docker",
            {"device_cgroup_rules": ["c 195:* rwm"]},
            "device cgroup rule 'c 195:* rwm' gives access to every GPU",
        ),
        ("podman", {"device_cgroup_rule": "c *:* rwm"}, "device cgroup rule 'c *:* rwm' gives access to every GPU"),
        (
            "docker",
            {"device_requests": [{"capabilities": [["gpu"]], "count": -1}]},
            "engine_options.device_requests gives access",
        ),
        ("podman", {"gpus": "all"}, "engine_options.gpus=all gives access to GPUs"),
        ("docker", {"device_requests": [{"driver": "nvidia", "count": -1}]}, "engine_options.device_requests gives"),
        ("docker", {"device_requests": [{"driver": "amd", "count": 1}]}, "engine_options.device_requests gives"),
        (
            "docker",
            {"device_requests": [{"driver": "cdi", "device_ids": ["nvidia.com/mig=MIG-1"]}]},
            "engine_options.device_requests gives",
        ),
        ("docker", {"volumes": ["//dev:/d"]}, "volume //dev:/d exposes"),
        ("docker", {"volumes": ["/dev/..:/d"]}, "volume /dev/..:/d exposes"),
        ("docker", {"volumes": ["/dev/./dri/:/d"]}, "volume /dev/./dri/:/d exposes"),
        ("docker", {"volumes": ["/proc/1/root/dev:/d"]}, "volume /proc/1/root/dev:/d exposes"),
        ("docker", {"volumes": ["/proc/self/root/dev:/d"]}, "volume /proc/self/root/dev:/d exposes"),
        ("docker", {"devices": ["/proc/thread-self/root/proc/1/root/dev/nvidia1"]}, "root/dev/nvidia1 gives access"),
        ("docker", {"volumes": ["~root/../dev:/d"]}, "volume ~root/../dev:/d exposes"),
        ("docker", {"volumes": ["/dev/null:/var/run/nvidia-container-devices/all"]}, "requests GPUs from NVIDIA's"),
        ("podman", {"mount": ["type=bind,src=/dev/null,dst=/run/nvidia-container-devices/0"]}, "requests GPUs from"),
        ("docker", {"device_cgroup_rules": ["c 0195:01 rw"]}, "gives access to /dev/nvidia1 in addition"),
        ("docker", {"mounts": [{"source": "/dev/", "target": "/d", "type": "bind"}]}, "mount of /dev/ exposes"),
        (
            "docker",
            {"mounts": [{"source": "v", "target": "/d", "type": "volume", "volume_options": {"device": "/dev"}}]},
            "mount of v exposes",
        ),
        ("podman", {"mount": ["type=bind,src=//dev,target=/d"]}, "mount of //dev exposes"),
        ("docker", {"devices": ["/dev//nvidia1"]}, "device /dev//nvidia1 gives access"),
        ("docker", {"devices": ["/dev/../dev/nvidia1:/dev/x:rw"]}, "device /dev/../dev/nvidia1:/dev/x:rw gives"),
        ("docker", {"devices": ["/dev/dri"]}, "device /dev/dri gives access"),
        ("docker", {"devices": ["/dev/dri/renderD128"]}, "device /dev/dri/renderD128 gives access"),
        ("docker", {"devices": ["/dev/nvidia-caps/nvidia-cap21"]}, "nvidia-cap21 gives access"),
        ("podman", {"device": ["nvidia.com/mig=0:1"]}, "device nvidia.com/mig=0:1 gives access"),
        ("podman", {"device": ["example.com/slice=MIG-1"]}, "device example.com/slice=MIG-1 gives access"),
        ("docker", {"volumes_from": ["other"]}, "volumes_from other: the container gets the mounts of other"),
        ("docker", {"env_file": "/etc/a.env"}, "env_file /etc/a.env: its variables are not checked"),
        ("podman", {"cmd_args": ["--privileged"]}, "privileged: the container can access every GPU"),
        ("podman", {"cmd_args": ["--device", "/dev/nvidia1"]}, "device /dev/nvidia1 gives access"),
        ("podman", {"cmd_args": ["--device=nvidia.com/gpu=all"]}, "device nvidia.com/gpu=all gives access"),
        ("podman", {"cmd_args": ["--gpus", "all"]}, "engine_options.gpus=all gives access"),
        ("podman", {"cmd_args": ["-v", "/dev:/dev"]}, "volume /dev:/dev exposes"),
        ("podman", {"cmd_args": ["-v/dev:/dev"]}, "volume /dev:/dev exposes"),
        ("podman", {"cmd_args": ["-tv", "/dev:/dev"]}, "volume /dev:/dev exposes"),
        ("podman", {"cmd_args": ["--volume=/:/h"]}, "volume /:/h exposes"),
        ("podman", {"cmd_args": ["--mount=type=bind,source=/dev,target=/d"]}, "mount of /dev exposes"),
        ("podman", {"cmd_args": ["--volumes-from", "x"]}, "volumes_from x"),
        ("podman", {"cmd_args": ["--env-file=/a"]}, "env_file /a"),
        ("podman", {"cmd_args": ["--device-cgroup-rule=a"]}, "device cgroup rule 'a' gives access to every GPU"),
        ("docker", {"device_cgroup_rules": ["a"]}, "gives access to every GPU"),
        ("docker", {"device_cgroup_rules": ["c 195:1 rwm"]}, "'c 195:1 rwm' gives access to /dev/nvidia1 in addition"),
        ("docker", {"device_cgroup_rules": ["c 226:* rw"]}, "gives access to the DRM nodes of every GPU"),
        ("docker", {"runtime": "kata-runtime"}, "runtime kata-runtime runs the container in a virtual machine"),
        ("podman", {"cmd_args": ["--runtime=kata"]}, "runtime kata runs the container in a virtual machine"),
        ("podman", {"cmd_args": ["--runtime", "nvidia"]}, "runtime nvidia gives the container the GPUs that its"),
        (
            "podman",
            {"cmd_args": ["--runtime=/usr/bin/nvidia-container-runtime.cdi"]},
            "-runtime.cdi gives the",
        ),
        ("docker", {"runtime": "amd"}, "runtime amd gives the container the GPUs"),
        (
            "podman",
            {"annotation": {"cdi.k8s.io/x": "nvidia.com/gpu=all"}},
            "x=nvidia.com/gpu=all requests",
        ),
        (
            "podman",
            {"cmd_args": ["--annotation", "cdi.k8s.io/x=amd.com/gpu=0"]},
            "annotation cdi.k8s.io/x=amd",
        ),
        ("podman", {"cmd_args": ["--annotation=cdi.k8s.io/x=y"]}, "annotation cdi.k8s.io/x=y requests devices"),
    ],
)
def test_options_that_bypass_the_isolation_cause_a_warning(engine, own, words):
    state = {"docker": docker(), "podman": podman()}[engine]
    (warning,) = bypasses(own, state, ["/dev/nvidia2"])
    assert words in warning


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"privileged": False},
        {"env": {"NVIDIA_VISIBLE_DEVICES": UUIDS[1]}},
        {"env": {"NVIDIA_VISIBLE_DEVICES": "void"}},
        {"volumes": ["/data:/dev/shm/x", "/device:/d", "anonymous", "/dev/shm:/dev/shm"]},
        {"devices": ["/dev/fuse", "/dev/nvidia2", "/dev/nvidiactl"]},
        {"runtime": "runc", "annotation": {"io.example/a": "b"}},
        {"cmd_args": ["--runtime", "/usr/bin/crun", "--annotation", "run.oci.keep_original_groups=1"]},
        {"device_cgroup_rules": ["c 10:229 rwm", "b *:* rwm", "c 195:255 rw", "c 195:2 rw", "c 195:* m", "c 1950:1 r"]},
        {"devices": ["/dev//nvidia2", "/dev/char/195:2", "/dev/char/195:255", "nvidia.com/gds=all"]},
        {"mounts": [{"source": "/data", "target": "/dev", "type": "bind"}, {"target": "/t", "type": "tmpfs"}]},
        {"volumes": ["/dev/dri/by-path:/dev/dri/by-path:ro", "/devices:/d"]},
        {"cmd_args": ["--privileged=false", "--log-level", "debug", "--device=/dev/fuse", "--volume=/data:/dev/x"]},
        {"device_requests": [{"driver": "cdi", "device_ids": ["vendor.com/net=eth0"]}]},
    ],
)
def test_other_options_cause_no_warning(own):
    assert bypasses(own, docker(), ["/dev/nvidiactl", "/dev/nvidia2"]) == []


# For each vendor: the same notations. The table in the product is the same for all of them.
@pytest.mark.parametrize(
    ("node", "others"),
    [
        ("/dev/nvidia1", ["/dev/char/195:1", "/dev/nvidia-caps"]),
        ("/dev/kfd", ["/dev/dri/renderD129", "/dev/dri", "/dev/char/226:129"]),
        ("/dev/neuron1", ["/dev/neuron12"]),
        ("/dev/accel/accel1", ["/dev/accel", "/dev/accel/accel_controlD1", "/dev/char/261:1", "/dev/hl1"]),
        ("/dev/hl_controlD1", ["habana.ai/gaudi=1", "intel.com/gaudi=all"]),
    ],
)
def test_nodes_of_every_vendor_cause_a_warning_in_every_notation(node, others):
    for device in (node, f"{node}:/dev/x:rw", f"/dev/../{node}", *others):
        assert bypasses({"devices": [device]}, docker()) == [
            f"device {device} gives access to GPUs in addition to gpus."
        ]
    for own in (
        {"volumes": [f"{node}:{node}"]},
        {"mounts": [{"source": node, "target": node, "type": "bind"}]},
        {"cmd_args": ["--volume", f"{node}:/d"]},
        {"cmd_args": [f"--mount=type=bind,src={node},dst=/d"]},
    ):
        (warning,) = bypasses(own, docker())
        assert "exposes the host's device nodes" in warning
        assert bypasses(own, docker(), [node]) == []
    assert bypasses({"devices": [node], "cmd_args": ["--device", node]}, docker(), [node]) == []


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("c 261:* rwm", "gives access to the accelerator nodes of every GPU."),
        ("c 0261:03 rw", "gives access to the accelerator node 261:3."),
        # The numbers of Neuron, KFD and older drivers of Gaudi are not the same on all hosts.
        ("c 510:* rwm", "can give access to GPUs: the kernel assigns the number 510 when it loads a driver."),
        ("c 384:0 r", "can give access to GPUs: the kernel assigns the number 384 when it loads a driver."),
        ("c 234:1 rw", "can give access to GPUs: the kernel assigns the number 234 when it loads a driver."),
    ],
)
def test_device_cgroup_rules_for_nodes_of_every_vendor_cause_a_warning(rule, words):
    expected = [f"device cgroup rule {rule!r} {words}"]
    assert bypasses({"device_cgroup_rules": [rule]}, docker()) == expected
    assert bypasses({"cmd_args": ["--device-cgroup-rule", rule]}, podman()) == expected


def test_link_to_a_node_whose_number_the_kernel_assigned_causes_a_warning():
    (warning,) = bypasses({"devices": ["/dev/char/510:1:/dev/x"]}, docker())
    assert warning == (
        "device /dev/char/510:1:/dev/x can be that of a GPU: the kernel assigns the number 510 when it loads a driver."
    )


@pytest.mark.parametrize(
    ("runtime", "sources"),
    [
        ("nvidia", "its variables, annotations and mounts name"),
        ("/usr/bin/nvidia-container-runtime", "its variables, annotations and mounts name"),
        ("amd", "AMD_VISIBLE_DEVICES names"),
        ("neuron", "AWS_NEURON_VISIBLE_DEVICES names"),
        ("/opt/aws/neuron/bin/oci_neuron_hook_wrapper.sh", "AWS_NEURON_VISIBLE_DEVICES names"),
        ("habana", "HABANA_VISIBLE_DEVICES and HABANA_VISIBLE_MODULES name"),
        ("habana-container-runtime", "HABANA_VISIBLE_DEVICES and HABANA_VISIBLE_MODULES name"),
    ],
)
def test_runtime_of_every_vendor_causes_a_warning(runtime, sources):
    for own in ({"runtime": runtime}, {"cmd_args": [f"--runtime={runtime}"]}):
        (warning,) = bypasses(own, docker())
        assert f"runtime {runtime} gives the container the GPUs that {sources}. Remove it" in warning


VARIABLES = {
    "nvidia": "NVIDIA_VISIBLE_DEVICES",
    "amd": "AMD_VISIBLE_DEVICES",
    "neuron": "AWS_NEURON_VISIBLE_DEVICES",
    "gaudi": "HABANA_VISIBLE_DEVICES",
}


RUNTIMES = {"nvidia": "nvidia", "amd": "amd", "neuron": "neuron", "gaudi": "habana"}


IGNORED, COUNTS = "is ignored, because gpus names the devices.", "requests devices in addition to gpus."


@pytest.mark.parametrize("vendor", VARIABLES)
@pytest.mark.parametrize("owner", VARIABLES)
def test_variable_of_a_vendor_counts_if_its_runtime_reads_it(vendor, owner):
    """For example NVIDIA_VISIBLE_DEVICES with Neuron's chips, on a host whose default runtime is NVIDIA's."""
    name = VARIABLES[owner]
    own = {"env": {name: "all"}}
    counts = [f"env {name}=all {COUNTS} Remove it from env."]
    ignored = [f"env {name}=all {IGNORED} Remove it from env."]
    nothing = Access()
    default = docker(default_runtime=RUNTIMES[owner])
    by_path = docker(default_runtime="mine", runtimes={"mine": f"/usr/bin/{RUNTIMES[owner]}-container-runtime"})
    for state in (default, by_path):
        assert bypasses(own, state, access=nothing, vendor=vendor) == counts
        assert bypasses(own, state, access=nothing, vendor=vendor, by_option=False) == counts
    # The module chooses another runtime, or replaces the value.
    assert bypasses(own, default, access=Access(runtime="runc"), vendor=vendor) == (ignored if owner == vendor else [])
    assert bypasses(own, default, access=Access(env={name: "void"}), vendor=vendor) == ignored
    assert bypasses(own, default, access=Access(env={name: "all"}), vendor=vendor) == []
    # No runtime reads it.
    assert bypasses(own, docker(), access=nothing, vendor=vendor) == (ignored if owner == vendor else [])
    assert bypasses(own, docker(), access=nothing, vendor=vendor, by_option=False) == []


def test_variable_that_the_engine_sets_for_a_device_request_is_ignored():
    access = Access(isolation="device_requests", device_ids=(UUIDS[1],))
    state = docker(default_runtime="nvidia")
    (warning,) = bypasses({"env": {"NVIDIA_VISIBLE_DEVICES": "all"}}, state, access=access)
    assert IGNORED in warning
