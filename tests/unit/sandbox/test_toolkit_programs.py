# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-ins for NVIDIA's container toolkit read requests as the vendor's programs do, and meet them."""

from __future__ import annotations

import copy
import io
import json
import os
import stat
import subprocess
import sys

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_reader
from ansible_collections.gpufleet.hosts.tests.sandbox.vendor.container_toolkit import (
    cdi,
    cdi_hooks,
    cgroups,
    cli,
    ctk,
    gpus,
    main,
    prestart,
    runtime,
    settings,
    specification,
    version,
)
from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import REPOSITORY, NvmlLab

MIGS = (gpus.Mig(0, "MIG-a", 1, 0), gpus.Mig(1, "MIG-b", 2, 0))
GPUS = (
    gpus.Gpu(0, "GPU-aa", 0, "0000:0a:00.0"),
    gpus.Gpu(1, "GPU-bb", 1, "0000:0b:00.0"),
    gpus.Gpu(2, "GPU-cc", 5, "0000:0c:00.0"),
    gpus.Gpu(3, "GPU-dd", 3, "0000:0d:00.0", "", MIGS),
)
DRIVER = "580.95.05"
# Character devices that every machine has, with the minor numbers that the test host's GPUs do not have.
NODES = {
    "nvidiactl": "null", "nvidia-uvm": "zero", "nvidia0": "null", "nvidia1": "zero", "nvidia5": "full",
    "nvidia3": "random", "nvidia-caps/nvidia-cap12": "urandom", "nvidia-caps/nvidia-cap13": "null",
    "nvidia-caps/nvidia-cap21": "zero", "nvidia-caps/nvidia-cap22": "full",
}  # fmt: skip
MINORS = "gpu3/gi1/access 12\ngpu3/gi1/ci0/access 13\ngpu3/gi2/access 21\ngpu3/gi2/ci0/access 22\n"
SPEC = {
    "process": {"env": ["PATH=/bin"], "capabilities": {"bounding": ["CAP_CHOWN"]}},
    "root": {"path": "rootfs"},
    "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
    "linux": {"resources": {"devices": [{"allow": False, "access": "rwm"}]}},
}


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Return the root directory of a host with four GPUs, of which the last one has two MIG devices."""
    root = tmp_path / "host"
    for name, target in NODES.items():
        path = root / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(f"/dev/{target}")
    libraries = root / "usr/lib/x86_64-linux-gnu"
    for directory, name in (
        (libraries, "libcuda"),
        (libraries, "libnvidia-ml"),
        (libraries / "vdpau", "libvdpau_nvidia"),
    ):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{name}.so.{DRIVER}").touch()
    (libraries / "libnvidia-ml.so.550.1.1").touch()
    (libraries / "libcuda.so.1").symlink_to(f"libcuda.so.{DRIVER}")
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/nvidia-smi").touch(0o755)
    (root / "proc/driver/nvidia-caps").mkdir(parents=True)
    (root / "proc/driver/nvidia-caps/mig-minors").write_text(MINORS)
    monkeypatch.setattr(gpus, "read", lambda: gpus.Host(DRIVER, "13.0", GPUS))
    return root


def spec_with(*, env=(), mounts=(), annotations=None, privileged=False):
    spec = copy.deepcopy(SPEC)
    spec["process"]["env"] += env
    spec["mounts"] += [{"source": "/dev/null", "destination": path} for path in mounts]
    if annotations:
        spec["annotations"] = annotations
    if privileged:
        spec["process"]["capabilities"]["bounding"].append("CAP_SYS_ADMIN")
    return spec


def found_with(host, **keys):
    tree = {"nvidia-container-cli": {"root": str(host)}, "nvidia-container-runtime": {"modes": {"cdi": {}}}}
    for key, value in keys.items():
        if key == "mode":
            tree["nvidia-container-runtime"]["mode"] = value
        elif key == "spec_dirs":
            tree["nvidia-container-runtime"]["modes"]["cdi"]["spec-dirs"] = value
        else:
            tree[key.replace("_", "-")] = value
    return settings.Settings(tree)


def nodes_of(spec):
    """Return the GPUs and capabilities that a container may use: those that it has nodes and rules for."""
    nodes = spec["linux"].get("devices", [])
    rules = [rule for rule in spec["linux"]["resources"]["devices"] if rule["allow"]]
    assert {(node["major"], node["minor"]) for node in nodes} == {(rule["major"], rule["minor"]) for rule in rules}
    paths = [node["path"] for node in nodes]
    control = {"/dev/nvidiactl", "/dev/nvidia-uvm"}
    assert not paths or control <= {*paths}
    return sorted(path.removeprefix("/dev/") for path in paths if path not in control)


MOUNTS = "/var/run/nvidia-container-devices"
ANY = {"accept_nvidia_visible_devices_as_volume_mounts": True}
STRICT = {**ANY, "accept_nvidia_visible_devices_envvar_when_unprivileged": False}
FIRST_MIG = ["nvidia3", "nvidia-caps/nvidia-cap12", "nvidia-caps/nvidia-cap13"]
SECOND_MIG = ["nvidia3", "nvidia-caps/nvidia-cap21", "nvidia-caps/nvidia-cap22"]
WHOLE = ["nvidia0", "nvidia1", "nvidia5", *FIRST_MIG, *SECOND_MIG[1:]]
REQUESTS = {
    "nothing": ({}, {}, []),
    "an index": ({"env": ["NVIDIA_VISIBLE_DEVICES=2"]}, {}, ["nvidia5"]),
    "indexes": ({"env": ["NVIDIA_VISIBLE_DEVICES=2, 0"]}, {}, ["nvidia5", "nvidia0"]),
    "a UUID": ({"env": ["NVIDIA_VISIBLE_DEVICES=GPU-bb"]}, {}, ["nvidia1"]),
    "all": ({"env": ["NVIDIA_VISIBLE_DEVICES=all"]}, {}, WHOLE),
    "a MIG device by its indexes": ({"env": ["NVIDIA_VISIBLE_DEVICES=3:0"]}, {}, FIRST_MIG),
    "a MIG device by its UUID": ({"env": ["NVIDIA_VISIBLE_DEVICES=MIG-b"]}, {}, SECOND_MIG),
    "the driver without GPUs": ({"env": ["NVIDIA_VISIBLE_DEVICES=none"]}, {}, []),
    "void": ({"env": ["NVIDIA_VISIBLE_DEVICES=void"]}, {}, []),
    "void among others": ({"env": ["NVIDIA_VISIBLE_DEVICES=0,void"]}, {}, []),
    "an empty variable": ({"env": ["NVIDIA_VISIBLE_DEVICES="]}, {}, []),
    "an old CUDA image": ({"env": ["CUDA_VERSION=9.0"]}, {}, WHOLE),
    "a new CUDA image": ({"env": ["CUDA_VERSION=12.9", "NVIDIA_REQUIRE_CUDA=cuda>=12.9"]}, {}, []),
    "an old CUDA image with void": ({"env": ["CUDA_VERSION=9.0", "NVIDIA_VISIBLE_DEVICES=void"]}, {}, []),
    "a variable of Swarm": (
        {"env": ["DOCKER_RESOURCE_GPU=1", "NVIDIA_VISIBLE_DEVICES=0"]},
        {"swarm_resource": "DOCKER_RESOURCE_GPU"},
        ["nvidia1"],
    ),
    "a mount that does not count": ({"mounts": [f"{MOUNTS}/1"]}, {}, []),
    "a mount": ({"mounts": [f"{MOUNTS}/1"]}, ANY, ["nvidia1"]),
    "a mount before a variable": (
        {"mounts": [f"{MOUNTS}/GPU-bb"], "env": ["NVIDIA_VISIBLE_DEVICES=all"]},
        ANY,
        ["nvidia1"],
    ),
    "an IMEX channel": ({"mounts": [f"{MOUNTS}/imex/0"]}, ANY, []),
    "another mount": ({"mounts": ["/var/run/other/1"]}, ANY, []),
    "an unprivileged variable": ({"env": ["NVIDIA_VISIBLE_DEVICES=0"]}, STRICT, []),
    "a privileged variable": ({"env": ["NVIDIA_VISIBLE_DEVICES=0"], "privileged": True}, STRICT, ["nvidia0"]),
}


@pytest.mark.parametrize(("request_", "keys", "expected"), REQUESTS.values(), ids=REQUESTS)
def test_the_runtime_gives_exactly_the_requested_gpus(host, request_, keys, expected):
    spec = spec_with(**request_)
    runtime.modify(spec, found_with(host, **keys))
    assert nodes_of(spec) == sorted(expected)


def test_a_container_without_a_request_stays_as_it_is(host):
    spec = spec_with()
    runtime.modify(spec, found_with(host))
    assert spec == spec_with()


def test_a_container_with_a_gpu_gets_the_driver_and_the_hooks(host):
    spec = spec_with(env=["NVIDIA_VISIBLE_DEVICES=0"])
    spec["hooks"] = {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}, {"path": "/bin/other"}]}
    runtime.modify(spec, found_with(host))
    targets = {mount["destination"]: mount["source"] for mount in spec["mounts"]}
    library = f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{DRIVER}"
    assert targets[library] == f"{host}{library}"
    assert "/usr/bin/nvidia-smi" in targets
    assert "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.1.1" not in targets
    assert "NVIDIA_VISIBLE_DEVICES=void" in spec["process"]["env"]
    commands = [hook["args"] for hook in spec["hooks"]["createContainer"]]
    assert commands[2][:5] == ["nvidia-ctk", "hook", "update-ldcache", "--folder", "/usr/lib/x86_64-linux-gnu"]
    # Docker adds this hook for --gpus. The container has the GPU already.
    assert spec["hooks"]["prestart"] == [{"path": "/bin/other"}]


def test_a_container_has_the_numbers_of_the_hosts_nodes(host):
    spec = spec_with(env=["NVIDIA_VISIBLE_DEVICES=2"])
    runtime.modify(spec, found_with(host))
    numbers = os.stat("/dev/full").st_rdev
    (node,) = [node for node in spec["linux"]["devices"] if node["path"] == "/dev/nvidia5"]
    assert (node["type"], node["major"], node["minor"]) == ("c", os.major(numbers), os.minor(numbers))
    rule = {"allow": True, "type": "c", "major": node["major"], "minor": node["minor"], "access": "rwm"}
    assert rule in spec["linux"]["resources"]["devices"]


MODES = [
    ("1.20.0", "auto", ["NVIDIA_VISIBLE_DEVICES=0"], "jit-cdi"),
    ("1.17.8", "auto", ["NVIDIA_VISIBLE_DEVICES=0"], "legacy"),
    ("1.17.8", "auto", ["NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0"], "cdi"),
    ("1.20.0", "auto", ["NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0,1"], "jit-cdi"),
    ("1.20.0", "legacy", ["NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0"], "legacy"),
    ("1.20.0", "cdi", [], "cdi"),
]


@pytest.mark.parametrize(("number", "mode", "env", "expected"), MODES)
def test_the_mode_depends_on_the_version_and_the_request(host, monkeypatch, *, number, mode, env, expected):
    monkeypatch.setattr(version, "VERSION", number)
    assert runtime.mode_of(spec_with(env=env), found_with(host, mode=mode)) == expected


@pytest.mark.parametrize(("number", "mode"), [("1.17.8", "jit-cdi"), ("1.20.0", "fast")])
def test_an_unknown_mode_fails(host, monkeypatch, number, mode):
    monkeypatch.setattr(version, "VERSION", number)
    with pytest.raises(main.Failure, match="invalid mode"):
        runtime.mode_of(spec_with(), found_with(host, mode=mode))


def test_legacy_mode_adds_the_hook_once(host):
    spec = spec_with(env=["NVIDIA_VISIBLE_DEVICES=0"])
    for _turn in range(2):
        runtime.modify(spec, found_with(host, mode="legacy"))
    hook = {"path": "/usr/bin/nvidia-container-runtime-hook", "args": ["nvidia-container-runtime-hook", "prestart"]}
    assert spec["hooks"] == {"prestart": [hook]}
    assert nodes_of(spec) == []


# --- CDI --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def specs(host, tmp_path):
    """Return a directory with the specification that nvidia-ctk writes for the host."""
    directory = tmp_path / "cdi"
    directory.mkdir()
    generated = specification.generate(GPUS, ["all"], root=str(host))
    (directory / "nvidia.yaml").write_text(cdi.to_yaml(generated))
    return directory


CDI_REQUESTS = {
    "a name": ({"env": ["NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=1"]}, "auto", ["nvidia1"]),
    "an index in mode cdi": ({"env": ["NVIDIA_VISIBLE_DEVICES=2"]}, "cdi", ["nvidia5"]),
    "all in mode cdi": ({"env": ["NVIDIA_VISIBLE_DEVICES=all"]}, "cdi", WHOLE),
    "an annotation": (
        {
            "annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=0,nvidia.com/gpu=GPU-bb"},
            "env": ["NVIDIA_VISIBLE_DEVICES=all"],
        },
        "auto",
        ["nvidia0", "nvidia1"],
    ),
    "an annotation of another tool": (
        {"annotations": {"cdi.example/x": "nvidia.com/gpu=0"}, "env": ["NVIDIA_VISIBLE_DEVICES=3:1"]},
        "cdi",
        SECOND_MIG,
    ),
    "mounts": (
        {"mounts": [f"{MOUNTS}/cdi/nvidia.com/gpu/1", f"{MOUNTS}/cdi/nvidia.com/gpu=0"]},
        "auto",
        ["nvidia1", "nvidia0"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "mode", "expected"), CDI_REQUESTS.values(), ids=CDI_REQUESTS)
def test_the_runtime_gives_the_devices_of_the_specification(host, specs, request_, mode, expected):
    spec = spec_with(**request_)
    runtime.modify(spec, found_with(host, mode=mode, spec_dirs=[str(specs)], **ANY))
    assert nodes_of(spec) == sorted(expected)


FAILURES = [
    (["NVIDIA_VISIBLE_DEVICES=7"], "auto", "7: Not Found"),
    (["NVIDIA_VISIBLE_DEVICES=first"], "auto", "not a valid UUID or index"),
    (["NVIDIA_VISIBLE_DEVICES=7"], "cdi", "unresolvable CDI devices nvidia.com/gpu=7"),
    (["NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0,runtime.nvidia.com/gpu=1"], "auto", "when requesting other CDI devices"),
]  # fmt: skip


@pytest.mark.parametrize(("env", "mode", "says"), FAILURES)
def test_a_request_that_cannot_be_met_fails(host, specs, env, mode, says):
    with pytest.raises(main.Failure, match=says):
        runtime.modify(spec_with(env=env), found_with(host, mode=mode, spec_dirs=[str(specs)]))


def test_the_collection_and_yaml_read_the_specification(specs):
    text = (specs / "nvidia.yaml").read_text()
    assert yaml.safe_load(text) == cdi.from_text(text) == specification_reader.load(text)
    assert [device["name"] for device in yaml.safe_load(text)["devices"]] == [
        "0", "GPU-aa", "1", "GPU-bb", "2", "GPU-cc", "3:0", "MIG-a", "3:1", "MIG-b", "all"
    ]  # fmt: skip


def test_a_later_directory_wins_and_a_conflict_removes_the_device(specs, tmp_path):
    text = (specs / "nvidia.yaml").read_text()
    later = tmp_path / "later"
    later.mkdir()
    edits = {"env": ["ORIGIN=later"]}
    (later / "a.json").write_text(
        json.dumps(
            {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": edits}]}
        )
    )
    found = cdi.registry([str(specs), str(later)])
    assert found["nvidia.com/gpu=0"][1]["containerEdits"] == edits
    assert "nvidia.com/gpu=1" in found
    (specs / "copy.yaml").write_text(text)
    assert "nvidia.com/gpu=1" not in cdi.registry([str(specs), str(later)])


def test_old_versions_write_only_the_paths_of_nodes(host, monkeypatch):
    new = specification.node("/dev/nvidia5", str(host))
    assert (new["minor"], new["permissions"]) == (os.minor(os.stat("/dev/full").st_rdev), "rwm")
    monkeypatch.setattr(version, "VERSION", "1.17.8")
    assert specification.node("/dev/nvidia5", str(host)) == {"path": "/dev/nvidia5", "hostPath": f"{host}/dev/nvidia5"}


def test_nodes_that_only_a_group_may_open_need_a_new_version(host, monkeypatch):
    describe = specification.node

    def restricted(path, root):
        found = describe(path, root)
        return found and {**found, "fileMode": 0o660, "gid": 44}

    monkeypatch.setattr(specification, "node", restricted)
    spec = specification.generate(GPUS, ["0"], root=str(host))
    assert spec["cdiVersion"] == "0.7.0"
    container = spec_with()
    cdi.inject(container, ["nvidia.com/gpu=0"], {"nvidia.com/gpu=0": (spec, spec["devices"][0])})
    assert container["process"]["user"]["additionalGids"] == [44]


# --- the hook of Docker's --gpus ------------------------------------------------------------------------------------


HOOKS = [
    ({"env": ["NVIDIA_VISIBLE_DEVICES=0,2"]}, {}, ["--device=0,2", "--compute", "--utility"]),
    ({"env": ["NVIDIA_VISIBLE_DEVICES=none"]}, {}, ["--compute", "--utility"]),
    (
        {"env": ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=video,utility"]},
        {"nvidia_container_cli": {"no-cgroups": True, "load-kmods": False}},
        ["--no-cgroups", "--device=all", "--utility", "--video"],
    ),
]


@pytest.mark.parametrize(("request_", "keys", "expected"), HOOKS)
def test_the_hook_calls_the_cli_with_the_request(request_, keys, expected):
    tree = {key.replace("_", "-"): {**value, "path": "/opt/cli"} for key, value in keys.items()}
    found = settings.Settings(tree or {"nvidia-container-cli": {"path": "/opt/cli"}})
    command = prestart.command_for(spec_with(**request_), found, 42)
    start = command.index("--ldconfig=@/sbin/ldconfig")
    assert command[start - 1] == "configure"
    assert command[start + 1 :] == [*expected, "--pid=42", os.path.abspath("rootfs")]
    assert ("--load-kmods" in command) == (not keys)


@pytest.mark.parametrize("env", [[], ["NVIDIA_VISIBLE_DEVICES=void"]])
def test_the_hook_ignores_containers_without_a_request(env):
    assert prestart.command_for(spec_with(env=env), settings.Settings(), 42) == []


@pytest.mark.parametrize(
    ("mode", "env", "says"),
    [
        ("cdi", "NVIDIA_VISIBLE_DEVICES=0", "--runtime=nvidia"),
        ("jit-cdi", "NVIDIA_VISIBLE_DEVICES=0", "--runtime=nvidia"),
        ("auto", "NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0", "--runtime=nvidia"),
    ],
)
def test_the_hook_refuses_other_modes(host, mode, env, says):
    with pytest.raises(main.Failure, match=says):
        prestart.command_for(spec_with(env=[env]), found_with(host, mode=mode), 42)


def test_the_hook_refuses_unknown_capabilities(host):
    env = ["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=utility,magic"]
    with pytest.raises(main.Failure, match=r"unsupported capabilities found in 'utility,magic' \(allowed 'utility'\)"):
        prestart.command_for(spec_with(env=env), found_with(host), 42)


def test_the_cli_gives_the_nodes_and_the_files_of_the_capabilities(host):
    hardware = gpus.Host(DRIVER, "13.0", GPUS)
    names = [path.removeprefix("/dev/") for path in cli.nodes(hardware, ["2", "MIG-a"], str(host))]
    assert names == ["nvidiactl", "nvidia-uvm", "nvidia5", *FIRST_MIG]
    libraries, programs = cli.files(["utility"], str(host))
    assert libraries == [f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{DRIVER}"]
    assert programs == ["/usr/bin/nvidia-smi"]
    with pytest.raises(main.Failure, match="device error: 9: unknown device"):
        cli.nodes(hardware, ["9"], str(host))


def test_a_container_may_open_nodes_with_the_first_version_of_cgroups(tmp_path):
    group = tmp_path / "cgroup/docker/abc"
    group.mkdir(parents=True)
    for name, text in {
        "42/cgroup": "3:cpu:/docker/abc\n2:devices:/outer/docker/abc\n0::/docker/abc\n",
        "self/mountinfo": f"40 30 0:1 /outer {tmp_path}/cgroup rw - cgroup cgroup rw,devices\n",
    }.items():
        (tmp_path / "proc" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc" / name).write_text(text)
    cgroups.allow(42, [(195, 3)], proc=str(tmp_path / "proc"))
    assert (group / "devices.allow").read_text() == "c 195:3 rw"


# --- the hooks of specifications ------------------------------------------------------------------------------------


@pytest.fixture
def container(tmp_path, monkeypatch):
    """Return the root directory of a container that is being created."""
    rootfs = tmp_path / "bundle/rootfs"
    rootfs.mkdir(parents=True)
    (tmp_path / "bundle/config.json").write_text(json.dumps(SPEC))
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"bundle": str(tmp_path / "bundle"), "pid": 42})))
    return rootfs


def test_links_stay_in_the_container(container, tmp_path):
    (container / "escape").symlink_to("/outside")
    (container / "lib").mkdir()
    (container / "lib/libcuda.so").write_text("old")
    links = ["libcuda.so.1::/lib/libcuda.so", "target::/escape/link", "x::/../../up"]
    assert cdi_hooks.main(["create-symlinks", *(word for link in links for word in ("--link", link))]) == 0
    assert os.readlink(container / "lib/libcuda.so") == "libcuda.so.1"
    assert os.readlink(container / "outside/link") == "target"
    assert os.readlink(container / "up") == "x"
    assert not (tmp_path / "up").is_symlink()


def test_the_loader_of_a_container_finds_the_directories_of_the_driver(container, tmp_path):
    ldconfig = tmp_path / "ldconfig"
    ldconfig.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/called\n')
    ldconfig.chmod(0o755)
    argv = ["update-ldcache", "--ldconfig-path", f"@{ldconfig}", "--folder", "/usr/lib64", "--folder=/opt/lib"]
    assert cdi_hooks.main(argv) == 0
    (drop_in,) = (container / "etc/ld.so.conf.d").iterdir()
    assert drop_in.read_text() == "/usr/lib64\n/opt/lib\n"
    assert stat.S_IMODE(drop_in.stat().st_mode) == 0o644
    assert (container / "etc/ld.so.conf").read_text() == "include /etc/ld.so.conf.d/*.conf\n"
    assert (tmp_path / "called").read_text().split()[:2] == ["-r", str(container)]


@pytest.mark.parametrize("argv", [["enable-cuda-compat", "--host-driver-version=1"], ["of-the-future", "--flag"], []])
def test_other_hooks_change_nothing_and_succeed(container, argv):
    assert cdi_hooks.main(argv) == 0
    assert list(container.iterdir()) == []


# --- config.toml and device nodes -------------------------------------------------------------------------------------


def test_settings_keep_what_is_set_and_show_defaults_as_comments(tmp_path):
    path = tmp_path / "etc/config.toml"
    call = ["--quiet", "config", f"--config-file={path}", "--in-place"]
    assert ctk.main(call) == 0
    first = path.read_text()
    assert 'mode = "auto"\nruntimes = ["runc", "crun"]\n' in first
    assert "\n#no-cgroups = false\n" in first
    assert ctk.main(call) == 0
    assert path.read_text() == first
    changes = ["nvidia-container-cli.no-cgroups", "nvidia-container-runtime.runtimes=crun:runc", "features.new=true"]
    assert ctk.main([*call, *(f"--set={change}" for change in changes)]) == 0
    tree = settings.read(str(path))
    assert tree["nvidia-container-cli"]["no-cgroups"] is True
    assert tree["nvidia-container-runtime"]["runtimes"] == ["crun", "runc"]
    assert tree["features"] == {"new": True}
    assert "#no-cgroups" not in path.read_text()


@pytest.mark.parametrize(
    ("release", "line"),
    [('ID_LIKE="suse"\n', '\nuser = "root:video"\n'), ("ID_LIKE=debian\n", '\n#user = "root:video"\n')],
)
def test_settings_of_suse_have_a_user(tmp_path, release, line):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(release)
    assert line in settings.dump(settings.defaults(str(tmp_path)))


def test_old_versions_first_search_the_runtime_of_docker(monkeypatch):
    monkeypatch.setattr(version, "VERSION", "1.17.8")
    assert settings.Settings().get("nvidia-container-runtime.runtimes")[0] == "docker-runc"


DEVICES = (
    "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n509 nvidia-uvm\n\nBlock devices:\n  8 sd\n195 other\n"
)


def test_control_nodes_have_the_numbers_of_the_kernel():
    nodes = ctk.control_nodes(ctk.majors(DEVICES))
    assert nodes["nvidiactl"] == (195, 255)
    assert nodes["nvidia-uvm-tools"] == (509, 1)
    with pytest.raises(main.Failure, match="no NVIDIA devices"):
        ctk.control_nodes(ctk.majors("Character devices:\n  1 mem\n"))


# --- whole programs ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Return a function that returns the path of a program as a package has it."""
    directory = tmp_path_factory.mktemp("bin")
    vendor = str(REPOSITORY / "tests/sandbox/vendor")
    code = "import make_toolkit_repository as m, sys; sys.stdout.buffer.write(m.program('1.19.1'))"
    content = subprocess.run([sys.executable, "-c", code], cwd=vendor, check=True, capture_output=True).stdout
    for name in ("nvidia-container-runtime", "nvidia-ctk", "nvidia-container-cli", "nvidia-cdi-hook"):
        (directory / name).write_bytes(content)
    return lambda name: str(directory / name)


RUNC = '#!/bin/sh\necho "$@" > "$CALLED"\n'


@pytest.mark.parametrize(
    ("arguments", "is_changed"),
    [
        (["--root", "/run/x", "create", "--bundle", "BUNDLE", "name"], True),
        (["create", "--bundle=BUNDLE", "name"], True),
        (["start", "name"], False),
        (["state", "--bundle", "create", "name"], False),
    ],
)
def test_the_runtime_calls_runc_with_the_same_arguments(tmp_path, program, arguments, is_changed):
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    original = json.dumps(spec_with(env=["NVIDIA_VISIBLE_DEVICES=0"]))
    (bundle / "config.json").write_text(original)
    (tmp_path / "runc").write_text(RUNC)
    (tmp_path / "runc").chmod(0o755)
    (tmp_path / "config.toml").write_text('[nvidia-container-runtime]\nmode = "legacy"\n')
    argv = [word.replace("BUNDLE", str(bundle)) for word in arguments]
    env = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "CALLED": str(tmp_path / "called"),
        "NVIDIA_CTK_CONFIG_FILE_PATH": str(tmp_path / "config.toml"),
    }
    subprocess.run([sys.executable, program("nvidia-container-runtime"), *argv], env=env, check=True)
    assert (tmp_path / "called").read_text().split() == argv
    assert ((bundle / "config.json").read_text() != original) == is_changed


def test_programs_have_the_version_of_their_package(program):
    for name, says in (("nvidia-ctk", "CLI version 1.19.1"), ("nvidia-container-cli", "cli-version: 1.19.1")):
        done = subprocess.run([sys.executable, program(name), "--version"], check=True, capture_output=True, text=True)
        assert says in done.stdout


@pytest.fixture
def lab(tmp_path):
    return NvmlLab(
        tmp_path, {"gpus": [{"model": "T4", "count": 2}, {"model": "A100-SXM4-40GB", "mig": ["1g.5gb", "1g.5gb"]}]}
    )


def test_the_specification_has_what_nvml_shows(tmp_path, program, lab, host):
    minors = "".join(f"gpu2/gi{gi}/access {gi}\ngpu2/gi{gi}/ci0/access {gi + 100}\n" for gi in range(16))
    (host / "proc/driver/nvidia-caps/mig-minors").write_text(minors)
    output = tmp_path / "cdi/nvidia.json"
    command = [sys.executable, program("nvidia-ctk"), "cdi", "generate", f"--output={output}", f"--driver-root={host}"]
    subprocess.run(command, env=lab.env, check=True)
    names = [device["name"] for device in json.loads(output.read_text())["devices"]]
    shown = lab.python(
        "import pynvml as n; n.nvmlInit()\n"
        "g = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]\n"
        "m = [n.nvmlDeviceGetMigDeviceHandleByIndex(g[2], i) for i in range(2)]\n"
        "print(*map(n.nvmlDeviceGetUUID, g[:2] + m))"
    ).split()
    assert names == ["0", shown[0], "1", shown[1], "2:0", shown[2], "2:1", shown[3], "all"]


@pytest.mark.parametrize(
    ("state", "says"), [({"return.nvmlInit_v2": 9}, "Driver Not Loaded"), ({}, "failed to determine driver version")]
)
def test_the_specification_fails_without_a_driver(tmp_path, program, state, says):
    lab = NvmlLab(tmp_path, {"gpus": [{"model": "T4"}]})
    lab.set(state)
    command = [sys.executable, program("nvidia-ctk"), "cdi", "generate", f"--driver-root={tmp_path}"]
    done = subprocess.run(command, env=lab.env, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "failed to generate CDI spec" in done.stderr
    assert says in done.stderr


def test_the_cli_shows_the_driver_and_the_gpus(program, lab):
    command = [sys.executable, program("nvidia-container-cli"), "info"]
    done = subprocess.run(command, env=lab.env, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("NVRM version:   550.163.01\nCUDA version:   12.4\n\nDevice Index:   0\n")
    assert done.stdout.count("GPU UUID:       GPU-") == 3
