# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Translation of the container options to the options of each engine's module."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.engine_module_options import (
    DEFAULT_PATH,
    NAMES,
    OptionError,
    docker_host,
    has_more_variables,
    isolation_bypass_warnings,
    module_arguments,
    removal_options,
    user_options,
    validate_name,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
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
EXTENDED_PATH = f"{DEFAULT_PATH}:/usr/local/nvidia/bin"


def compose(engine, own=None, access=VOLUME, labels=None, image_env=None):
    return module_arguments(
        engine,
        own or {},
        access,
        name="c",
        image="image",
        state="started",
        labels=labels or {},
        image_env=image_env or {},
    )


@pytest.mark.parametrize(
    ("name", "value", "docker_option", "podman_option"),
    [
        ("command", "sh -c 'a b'", {"command": ["sh", "-c", "a b"]}, {"command": ["sh", "-c", "a b"]}),
        ("command", ["sleep", 5], {"command": ["sleep", "5"]}, {"command": ["sleep", "5"]}),
        ("entrypoint", ["/bin/a", "b"], {"entrypoint": ["/bin/a", "b"]}, {"entrypoint": '["/bin/a", "b"]'}),
        ("env", {"A": 1, "B": "x"}, {"env": {"A": "1", "B": "x"}}, {"env": {"A": "1", "B": "x"}}),
        ("volumes", ["/a:/b"], {"volumes": ["/a:/b"]}, {"volume": ["/a:/b"]}),
        ("published_ports", ["80:80"], {"published_ports": ["80:80"]}, {"publish": ["80:80"]}),
        ("network_mode", "host", {"network_mode": "host"}, {"network": ["host"]}),
        ("restart_policy", "always", {"restart_policy": "always"}, {"restart_policy": "always"}),
        ("labels", {"a": 1}, {"labels": {"a": "1"}}, {"label": {"a": "1"}}),
        ("working_dir", "/w", {"working_dir": "/w"}, {"workdir": "/w"}),
        ("shm_size", "16g", {"shm_size": "16g"}, {"shm_size": "16g"}),
        ("ipc_mode", "host", {"ipc_mode": "host"}, {"ipc": "host"}),
        ("ulimits", ["memlock:-1:-1"], {"ulimits": ["memlock:-1:-1"]}, {"ulimit": ["memlock=-1:-1"]}),
        ("ulimits", ["memlock=-1"], {"ulimits": ["memlock:-1"]}, {"ulimit": ["memlock=-1"]}),
        ("cpus", 1.5, {"cpus": 1.5}, {"cpus": "1.5"}),
        ("tmpfs", ["/a", "/b:size=1g"], {"tmpfs": ["/a", "/b:size=1g"]}, {"tmpfs": {"/a": "rw", "/b": "size=1g"}}),
        ("devices", ["/dev/fuse"], {"devices": ["/dev/fuse"]}, {"device": ["/dev/fuse"]}),
        ("cap_add", ["SYS_PTRACE"], {"capabilities": ["SYS_PTRACE"]}, {"cap_add": ["SYS_PTRACE"]}),
        ("security_opts", ["label=disable"], {"security_opts": ["label=disable"]}, {"security_opt": ["label=disable"]}),
        ("restart", True, {"restart": True}, {"force_restart": True}),
        ("recreate", True, {"recreate": True}, {"recreate": True}),
    ],
)
def test_options_are_translated_for_each_engine(name, value, docker_option, podman_option):
    assert user_options("docker", {name: value}, {}) == docker_option
    assert user_options("podman", {name: value}, {}) == podman_option


def test_unset_options_are_omitted():
    nothing = dict.fromkeys(NAMES["docker"])
    assert user_options("docker", nothing, {}) == {}
    assert user_options("podman", nothing, {}) == {}


@pytest.mark.parametrize(
    ("engine", "engine_options", "expected"),
    [
        ("docker", {"log_driver": "journald"}, {"log_driver": "journald"}),
        ("docker", {"ports": ["1:1"]}, {"published_ports": ["1:1"]}),
        ("docker", {"env": {"A": 1}}, {"env": {"A": "1"}}),
        ("podman", {"volumes": ["/a:/b"]}, {"volume": ["/a:/b"]}),
        ("podman", {"label": {"a": "b"}}, {"label": {"a": "b"}}),
        ("docker", {"labels": {"a": 1}}, {"labels": {"a": "1"}}),
        # A string is split at commas.
        ("docker", {"devices": "/dev/fuse"}, {"devices": ["/dev/fuse"]}),
        ("docker", {"volumes": "/a:/b, /c:/d"}, {"volumes": ["/a:/b", "/c:/d"]}),
        ("docker", {"device_cgroup_rules": "c 10:229 rwm"}, {"device_cgroup_rules": ["c 10:229 rwm"]}),
        ("podman", {"cmd_args": "--replace"}, {"cmd_args": ["--replace"]}),
        ("podman", {"device": "/dev/fuse"}, {"device": ["/dev/fuse"]}),
        ("docker", {"docker_url": "unix:///x"}, {"docker_host": "unix:///x"}),
        ("docker", {"log_driver": None}, {}),
    ],
)
def test_engine_options_are_accepted(engine, engine_options, expected):
    assert user_options(engine, {}, engine_options) == expected


@pytest.mark.parametrize(
    ("engine", "named", "engine_options", "words"),
    [
        (
            "docker",
            {"env": {"A": "1"}},
            {"env": {"B": "2"}},
            "engine_options.env and env set the same option. Remove one",
        ),
        (
            "podman",
            {"volumes": ["a:/a"]},
            {"volume": ["b:/b"]},
            "engine_options.volume and volumes set the same option",
        ),
        (
            "podman",
            {"labels": {"a": "b"}},
            {"labels": {"a": "b"}},
            "engine_options.labels and labels set the same option",
        ),
        ("docker", {}, {"image": "x"}, "engine_options.image is not allowed. Use the option image of this module"),
        ("docker", {}, {"state": "present"}, "Use the option state of this module"),
        ("docker", {"env": {"A": True}}, {}, "env A=True is not a string. Quote the value"),
        ("podman", {"env": {"A": None}}, {}, "env A=None is not a string. Quote the value"),
        ("docker", {}, {"env": {"A": ["x"]}}, "env A=['x'] is not a string"),
        (
            "docker",
            {"command": 'echo "a'},
            {},
            "command='echo \"a' cannot be split like a shell command (no closing quotation). Close the quote, or",
        ),
        ("podman", {"command": "it's"}, {}, 'command="it\'s" cannot be split like'),
        ("docker", {"command": 5}, {}, "command=5 is neither a string nor a list. Write a list of strings"),
        ("docker", {"command": {"a": 1}}, {}, "command={'a': 1} is neither a string nor a list"),
        ("docker", {"command": ["x", True]}, {}, "command: the item True is not a string. Quote the value."),
        ("docker", {"command": ["x", None]}, {}, "command: the item None is not a string. Quote the value."),
        (
            "docker",
            {},
            {"labels": ["a=b"]},
            "engine_options.labels=['a=b'] is not a mapping. Write engine_options: {labels: {name: value}}.",
        ),
        ("podman", {}, {"labels": "a=b"}, "engine_options.labels='a=b' is not a mapping"),
        ("docker", {}, {"env": ["A=1"]}, "engine_options.env=['A=1'] is not a mapping"),
        (
            "docker",
            {},
            {"devices": 5},
            "engine_options.devices=5 is not a list of strings. Write engine_options: {devices:",
        ),
        ("docker", {}, {"volumes": [{"a": "b"}]}, "engine_options.volumes=[{'a': 'b'}] is not a list of strings"),
        ("docker", {}, {"device_cgroup_rules": 5}, "engine_options.device_cgroup_rules=5 is not a list of strings"),
        ("podman", {}, {"device_cgroup_rules": 5}, "engine_options.device_cgroup_rules=5 is not a list of strings"),
        (
            "podman",
            {},
            {"device_cgroup_rule": 5},
            "engine_options.device_cgroup_rule=5 is not a string. Write engine_options: {device_cgroup_rule: string}",
        ),
        ("docker", {}, {"runtime": 5}, "engine_options.runtime=5 is not a string"),
        ("podman", {}, {"runtime": ["crun"]}, "engine_options.runtime=['crun'] is not a string"),
        ("docker", {}, {"restart_policy": False}, "engine_options.restart_policy=False is not a string"),
        ("docker", {}, {"security_opts": 5}, "engine_options.security_opts=5 is not a list of strings"),
        ("podman", {}, {"security_opt": 5}, "engine_options.security_opt=5 is not a list of strings"),
        ("podman", {}, {"executable": 5}, "engine_options.executable=5 is not a string"),
        ("docker", {}, {"device_requests": "all"}, "engine_options.device_requests='all' is not a list of mappings"),
        (
            "docker",
            {"labels": {"gpufleet.exclusive": "true"}},
            {},
            "label gpufleet.exclusive is reserved: the prefix gpufleet. is for labels of this module. Remove or",
        ),
        ("podman", {}, {"label": {"gpufleet.gpus": "x"}}, "label gpufleet.gpus is reserved"),
    ],
)
def test_invalid_and_conflicting_options_are_refused(engine, named, engine_options, words):
    with pytest.raises(OptionError) as error:
        user_options(engine, named, engine_options)
    assert words in str(error.value)


def test_volume_isolation_adds_nodes_and_volume_for_docker():
    own = {"devices": ["/dev/fuse"], "volumes": ["/a:/b"], "labels": {"mine": "x"}, "env": {"A": "1"}}
    assert compose("docker", own, labels={"gpufleet.gpus": "GPU-1"}) == {
        "name": "c",
        "image": "image",
        "state": "started",
        "pull": "never",
        "devices": ["/dev/fuse", "/dev/nvidiactl", "/dev/nvidia2"],
        "volumes": ["/a:/b", "nvidia_driver_1.2:/usr/local/nvidia:ro"],
        "labels": {"mine": "x", "gpufleet.gpus": "GPU-1"},
        "env": {"A": "1", "NVIDIA_VISIBLE_DEVICES": "void", "LD_LIBRARY_PATH": LIBRARIES, "PATH": EXTENDED_PATH},
    }


def test_volume_isolation_adds_nodes_and_volume_for_podman():
    options = compose("podman", labels={"gpufleet.gpus": "GPU-1"})
    assert options["device"] == ["/dev/nvidiactl", "/dev/nvidia2"]
    assert options["volume"] == ["nvidia_driver_1.2:/usr/local/nvidia:ro"]
    assert options["label"] == {"gpufleet.gpus": "GPU-1"}
    assert not {"devices", "pull"} & set(options)


@pytest.mark.parametrize(
    ("own", "image", "libraries", "path"),
    [
        ({}, {}, LIBRARIES, EXTENDED_PATH),
        ({}, {"PATH": "/bin"}, LIBRARIES, "/usr/local/nvidia/bin:/bin"),
        ({}, {"LD_LIBRARY_PATH": "/opt/lib"}, f"/opt/lib:{LIBRARIES}", EXTENDED_PATH),
        ({"LD_LIBRARY_PATH": "/mine"}, {"LD_LIBRARY_PATH": "/opt/lib"}, f"/mine:{LIBRARIES}", EXTENDED_PATH),
        ({"PATH": "/mine"}, {"PATH": "/bin"}, LIBRARIES, "/usr/local/nvidia/bin:/mine"),
    ],
)
def test_search_paths_of_image_and_user_are_extended(own, image, libraries, path):
    env = compose("docker", {"env": own}, image_env=image)["env"]
    assert env["LD_LIBRARY_PATH"] == libraries
    assert sorted(env.get("PATH", "").split(":")) == sorted(path.split(":"))


def test_search_paths_that_contain_the_directory_are_unchanged():
    image = {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64", "PATH": "/usr/local/nvidia/bin:/bin"}
    assert compose("docker", image_env=image)["env"] == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_visible_devices_of_the_user_are_replaced():
    env = compose("docker", {"env": {"NVIDIA_VISIBLE_DEVICES": "all"}})["env"]
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_cdi_isolation_adds_cdi_devices():
    access = Access(isolation="cdi", cdi_devices=("nvidia.com/gpu=GPU-1",))
    assert compose("docker", access=access)["device_requests"] == [
        {"driver": "cdi", "count": 0, "device_ids": ["nvidia.com/gpu=GPU-1"]}
    ]
    assert compose("podman", {"device": ["/dev/fuse"]}, access)["device"] == ["/dev/fuse", "nvidia.com/gpu=GPU-1"]


def test_device_requests_isolation_adds_a_device_request():
    access = Access(isolation="device_requests", device_ids=("GPU-1",), request_capabilities=("gpu", "video"))
    assert compose("docker", access=access)["device_requests"] == [
        {"driver": "", "count": 0, "device_ids": ["GPU-1"], "capabilities": [["gpu", "video"]]}
    ]


def test_runtime_isolation_sets_runtime_and_visible_devices():
    access = Access(isolation="runtime", runtime="nvidia", env={"NVIDIA_VISIBLE_DEVICES": "GPU-1"})
    options = compose("docker", access=access)
    assert (options["runtime"], options["env"]) == ("nvidia", {"NVIDIA_VISIBLE_DEVICES": "GPU-1"})
    assert compose("podman", {"cmd_args": ["--replace"]}, access)["cmd_args"] == ["--replace", "--runtime=nvidia"]


def test_no_options_are_added_without_gpus():
    assert compose("docker", {"user": "1000"}, Access()) == {
        "user": "1000",
        "name": "c",
        "image": "image",
        "state": "started",
        "pull": "never",
    }


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


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        ({}, {}, None),
        ({}, {"DOCKER_HOST": ""}, None),
        ({}, {"DOCKER_HOST": "unix:///env"}, "unix:///env"),
        ({"docker_host": "unix:///option"}, {"DOCKER_HOST": "unix:///env"}, "unix:///option"),
        ({"docker_url": "unix:///option"}, {}, "unix:///option"),
    ],
)
def test_docker_host_is_found(options, environment, expected):
    assert docker_host(options, environment) == expected


def test_connection_options_reach_the_removal_of_a_container():
    options = {"docker_host": "unix:///x", "timeout": 5, "log_driver": "journald", "executable": "p"}
    assert removal_options("docker", options) == {"docker_host": "unix:///x", "timeout": 5}
    assert removal_options("podman", options) == {"executable": "p"}


@pytest.mark.parametrize(
    ("engine", "name", "words"),
    [
        ("docker", "trainer", None),
        ("docker", "a.b_c-1", None),
        ("podman", "e", None),
        ("docker", "e", "name=e is too short: docker requires at least two characters. Use a longer name."),
        ("docker", "my trainer", "name='my trainer' is not a valid container name. Use letters, digits"),
        ("podman", "-x", "name='-x' is not a valid container name."),
        ("podman", "", "name='' is not a valid container name."),
        ("docker", "größe", "name='größe' is not a valid container name."),
    ],
)
def test_invalid_names_are_refused(engine, name, words):
    if words is None:
        validate_name(engine, name)
        return
    with pytest.raises(OptionError) as error:
        validate_name(engine, name)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"cmd_args": ["--entrypoint", "-", "-it"]}, False),
        ({"env_file": "/a"}, True),
        ({"env_host": True}, True),
        ({"env_merge": {"NVIDIA_VISIBLE_DEVICES": "all"}}, True),
        ({"cmd_args": ["--env=A=b"]}, True),
        ({"cmd_args": ["-e", "A=b"]}, True),
        ({"cmd_args": ["-eA=b"]}, True),
        ({"cmd_args": ["-iteA=b"]}, True),
    ],
)
def test_variables_that_no_option_shows_are_noticed(options, expected):
    assert has_more_variables(options) is expected
