# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decisions of the program nvidia-docker: its arguments, the selected GPUs, their access, and the labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import nvidia_docker_program as wrapper
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.nvidia_docker_program import (
    Engine,
    Gpu,
    Host,
    Inventory,
    WrapperError,
)

A = Gpu("GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61", "0", "00000000:3B:00.0", 3, False, None)
B = Gpu("GPU-5b000000-0000-0000-0000-000000000001", "1", "00000000:86:00.0", 0, False, None)
C = Gpu("GPU-c0000000-0000-0000-0000-000000000002", "2", "00000001:86:00.0", 1, True, None)
C0 = Gpu("MIG-11111111-0000-0000-0000-000000000003", "2:0", None, None, False, C.uuid)
C1 = Gpu("MIG-12222222-0000-0000-0000-000000000004", "2:1", None, None, False, C.uuid)
WHOLE = Inventory("580.95.05", (13, 0), [A, B])
MIXED = Inventory("580.95.05", (13, 0), [A, B, C, C0, C1])
VOLUME = "/var/lib/gpufleet/volumes/nvidia_driver/580.95.05"


def host(**changes: Any) -> Host:
    """Return a host with Docker 28, but without anything that gives GPUs to containers."""
    engine = Engine((28, 3), frozenset(), True, False)
    values = {"engine": engine, "inventory": WHOLE, "has_hook": False, "volume": None, "nodes": ("/dev/nvidiactl",)}
    return Host(**{**values, **changes})


def engine(*cdi: str, version: tuple[int, ...] = (28, 3), is_local: bool = True) -> Engine:
    return Engine(version, frozenset(cdi), is_local, False)


# --- the arguments ---


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run image", 1),
        ("create image", 1),
        ("container run image", 2),
        ("container create image", 2),
        ("-D run image", 2),
        ("-H tcp://localhost:2375 run image", 3),
        ("-Htcp://localhost:2375 run image", 2),
        ("-DH unix:///s run image", 3),
        ("--host=unix:///s --log-level debug run image", 4),
        # Names of commands as values of options.
        ("--context run ps", None),
        ("--context container run image", 3),
        ("-l create run image", 3),
        ("-- run image", 2),
        ("--brand-new-flag run image", 2),
        # Everything else.
        ("volume create data", None),
        ("network create net", None),
        ("--brand-new-flag volume create data", None),
        ("container ls", None),
        ("container", None),
        ("ps", None),
        ("exec run create", None),
        ("compose run service", None),
        ("", None),
        ("--version", None),
    ],
)
def test_gpus_are_for_run_and_create_only(line: str, expected: int | None) -> None:
    assert wrapper.verb(line.split())[2] == expected


@pytest.mark.parametrize(
    ("line", "image"),
    [
        ("IMAGE", "IMAGE"),
        ("--rm -it IMAGE run --name x", "IMAGE"),
        ("-itd --name x IMAGE", "IMAGE"),
        ("-itv /a:/b IMAGE", "IMAGE"),
        ("-p80:80 -e A=b -eC=d IMAGE", "IMAGE"),
        ("--volume=/a:/b --env A IMAGE -- x", "IMAGE"),
        ("--sig-proxy=false --rm=true -d=false IMAGE", "IMAGE"),
        ("--health-start-interval 5s --annotation a=b --cgroupns host IMAGE", "IMAGE"),
        ("-h name -u 1:1 -w /x -m 1g -c 5 -l a=b -a stdout IMAGE", "IMAGE"),
        ("--rm -- IMAGE --rm", "IMAGE"),
        # Long options with a value in the same word do not hide the image, even if they are unknown.
        ("--brand-new=value IMAGE", "IMAGE"),
        ("--brand-new value IMAGE", None),
        ("--brand-new IMAGE", None),
        ("-Z IMAGE", None),
        ("-itZ IMAGE", None),
        ("--rm", None),
        ("--name", None),
        ("", None),
    ],
)
def test_image_is_found_only_if_its_place_is_certain(line: str, image: str | None) -> None:
    words = ["run", *line.split()]
    position = wrapper.parse(words, 1).image
    assert (None if position is None else words[position]) == image


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--gpus 1 IMAGE", True),
        ("--rm --gpus=1 IMAGE", True),
        ("--device nvidia.com/gpu=0 IMAGE", True),
        ("--device=nvidia.com/gpu=all IMAGE", True),
        ("IMAGE train.py --gpus 4", False),
        ("--device /dev/fuse IMAGE", False),
        # The user's choice counts even if the place of the image is not certain.
        ("--brand-new --gpus 1 IMAGE", True),
        ("--brand-new value --gpus 1 IMAGE", True),
        ("--brand-new value -Z value --gpus 1 IMAGE", True),
        ("--brand-new value IMAGE train.py --gpus 4", False),
        ("--brand-new IMAGE train.py --gpus 4", False),
    ],
)
def test_gpus_that_the_user_gives_are_recognized(line: str, expected: bool) -> None:
    assert wrapper.names_gpus(wrapper.parse(["run", *line.split()], 1).options) is expected


def test_many_unknown_options_take_no_time() -> None:
    words = ["run", *["--brand-new"] * 500, "--gpus", "1", "image"]
    assert wrapper.names_gpus(wrapper.parse(words, 1).options)


def test_every_option_of_docker_is_in_one_table() -> None:
    assert not wrapper.VALUES & wrapper.FLAGS
    assert set(wrapper.LETTERS.values()) <= wrapper.VALUES | wrapper.FLAGS
    assert set(wrapper.GLOBAL_LETTERS.values()) <= wrapper.GLOBAL_VALUES | wrapper.GLOBAL_FLAGS


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("", False),
        ("unix:///var/run/docker.sock", False),
        ("unix:///run/user/1000/docker.sock", False),
        ("fd://", False),
        ("tcp://localhost:2375", False),
        ("tcp://127.0.0.1:2375", False),
        ("tcp://[::1]:2375", False),
        ("tcp://:2375", False),
        ("tcp://gpu1:2376", True),
        ("gpu1:2376", True),
        ("ssh://user@gpu1", True),
        ("ssh://localhost@gpu1:22", True),
        ("tcp://localhost.example:2375", True),
        ("tcp://[2001:db8::1]:2375", True),
    ],
)
def test_engine_on_another_host_is_recognized_by_its_address(address: str, expected: bool) -> None:
    assert wrapper.is_remote(address) is expected


# --- the selection ---


@pytest.mark.parametrize(
    ("options", "environment", "image", "expected"),
    [
        ([], {}, {}, ["all"]),
        ([], {"NV_GPU": ""}, {}, ["all"]),
        ([], {"NV_GPU": " , "}, {}, ["all"]),
        ([], {"NV_GPU": "all"}, {}, ["all"]),
        ([], {"NV_GPU": "0,1"}, {}, ["0", "1"]),
        ([], {"NV_GPU": "0 1"}, {}, ["0", "1"]),
        ([], {"NV_GPU": " 1, 0  1"}, {}, ["1", "0"]),
        # nvidia-docker 2 started its runtime, which reads this variable. The option comes after that of the wrapper.
        ([("env", "NVIDIA_VISIBLE_DEVICES=1")], {}, {}, ["1"]),
        ([("env", "NVIDIA_VISIBLE_DEVICES=1")], {"NV_GPU": "0"}, {}, ["1"]),
        ([("env", "NVIDIA_VISIBLE_DEVICES=none")], {}, {}, []),
        ([("env", "NVIDIA_VISIBLE_DEVICES=")], {}, {}, []),
        ([("env", "NVIDIA_VISIBLE_DEVICES")], {"NVIDIA_VISIBLE_DEVICES": "1"}, {}, ["1"]),
        ([("env", "NVIDIA_VISIBLE_DEVICES")], {}, {}, ["all"]),
        ([("env-file", "f")], {}, {}, ["2"]),
        ([("env", "NVIDIA_VISIBLE_DEVICES=1"), ("env-file", "f")], {}, {}, ["1"]),
        ([], {"NVIDIA_VISIBLE_DEVICES": "1"}, {}, ["all"]),
        ([], {}, {"NVIDIA_VISIBLE_DEVICES": "all"}, ["all"]),
        ([], {}, {"NVIDIA_VISIBLE_DEVICES": "void"}, []),
        ([], {"NV_GPU": "0"}, {"NVIDIA_VISIBLE_DEVICES": "void"}, ["0"]),
    ],
)
def test_user_selects_gpus_as_before(options: list, environment: dict, image: dict, expected: list) -> None:
    def read(_path: str) -> str:
        return "# comment\nA=b\nNVIDIA_VISIBLE_DEVICES=2\n"

    assert wrapper.selected(options, environment, image, read) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("all", [A, B, C0, C1]),
        ("0", [A]),
        ("1 0", [B, A]),
        (A.uuid, [A]),
        (A.uuid.lower(), [A]),
        ("GPU-5a", [A]),
        ("gpu-5A6F", [A]),
        ("0000:3b:00.0", [A]),
        ("00000000:3B:00.0", [A]),
        ("3b:00.0", [A]),
        ("0001:86:00.0", [C0, C1]),
        ("86:00.0", [B]),
        ("0 GPU-5a 3b:00.0", [A]),
        # A whole GPU in MIG mode stands for its devices.
        ("2", [C0, C1]),
        ("2:1", [C1]),
        ("MIG-11", [C0]),
        (C1.uuid, [C1]),
    ],
)
def test_gpus_are_found_by_every_kind_of_name(names: str, expected: list[Gpu]) -> None:
    assert wrapper.resolve(names.split(), MIXED) == expected


@pytest.mark.parametrize(
    "name",
    ["3", "-1", "00", "GPU-ff", "5a6f3c1e", "0000:3b:00.1", "MIG-9", "2:2", "card0", "GPU-5", "GPU-", "MIG-1", '0"'],
)
def test_unknown_and_ambiguous_names_are_errors(name: str) -> None:
    with pytest.raises(WrapperError, match=r"^invalid device: ") as caught:
        wrapper.resolve([name], MIXED)
    # The names that the user can choose from.
    assert any(gpu.uuid in str(caught.value) for gpu in MIXED.gpus)


@pytest.mark.parametrize("inventory", [MIXED, None])
def test_names_of_an_image_do_not_control_the_terminal(inventory: Inventory | None) -> None:
    with pytest.raises(WrapperError, match="invalid device") as caught:
        wrapper.access(["\x1b[2J\x07"], host(inventory=inventory), None)
    assert str(caught.value).isprintable()


def test_gpu_in_mig_mode_without_devices_is_an_error_if_it_is_named() -> None:
    empty = Inventory("580.95.05", (13, 0), [A, C])
    assert wrapper.resolve(["all"], empty) == [A]
    with pytest.raises(WrapperError, match="no MIG devices"):
        wrapper.resolve(["2"], empty)


# --- the access ---

REQUEST = ["--gpus", f'"device={A.uuid}"']
VOID = "--env=NVIDIA_VISIBLE_DEVICES=void"


@pytest.mark.parametrize(
    ("names", "given", "expected"),
    [
        (["all"], host(has_hook=True), ["--gpus", "all"]),
        (["0"], host(has_hook=True), REQUEST),
        (["0", "1"], host(has_hook=True), ["--gpus", f'"device={A.uuid},{B.uuid}"']),
        (["2"], host(has_hook=True, inventory=MIXED), ["--gpus", f'"device={C0.uuid},{C1.uuid}"']),
        # The hook comes first, because it also checks the requirements of images.
        (["0"], host(has_hook=True, engine=engine("0", "all"), volume=VOLUME), REQUEST),
        (["0"], host(engine=engine("0", "1", "all")), ["--device=nvidia.com/gpu=0", VOID]),
        (["0"], host(engine=engine("0", A.uuid, "all")), [f"--device=nvidia.com/gpu={A.uuid}", VOID]),
        (["all"], host(engine=engine("0", "1", "all")), ["--device=nvidia.com/gpu=all", VOID]),
        (["all"], host(engine=engine("0", "1")), ["--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=1", VOID]),
        # A specification that lacks a GPU is not enough.
        (["1"], host(engine=engine("0", "all")), ["--gpus", f'"device={B.uuid}"']),
        (["2"], host(engine=engine("2:0", "2:1"), inventory=MIXED),
         ["--device=nvidia.com/gpu=2:0", "--device=nvidia.com/gpu=2:1", VOID]),
        (["1"], host(volume=VOLUME),
         ["--device=/dev/nvidiactl", "--device=/dev/nvidia0", f"--volume={VOLUME}:/usr/local/nvidia:ro", VOID]),
        # The volume cannot give a part of a GPU, so the engine decides.
        (["2:0"], host(volume=VOLUME, inventory=MIXED), ["--gpus", f'"device={C0.uuid}"']),
        (["all"], host(), ["--gpus", "all"]),
        # Without NVML, and for another host, the engine knows the names.
        (["0", "GPU-5"], host(inventory=None), ["--gpus", '"device=0,GPU-5"']),
        (["0"], host(inventory=None, engine=engine("0")), ["--device=nvidia.com/gpu=0", VOID]),
        (["7"], host(engine=engine(is_local=False), inventory=None), ["--gpus", '"device=7"']),
    ],
)  # fmt: skip
def test_gpus_are_given_with_what_the_host_has(names: list[str], given: Host, expected: list[str]) -> None:
    assert wrapper.access(names, given, None) == expected


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({}, ["LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/usr/local/nvidia/lib",
              "PATH=/usr/local/nvidia/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]),
        ({"LD_LIBRARY_PATH": "/a", "PATH": "/b"},
         ["LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/usr/local/nvidia/lib:/a", "PATH=/usr/local/nvidia/bin:/b"]),
        # An image for nvidia-docker 1.0.
        ({"LD_LIBRARY_PATH": "/usr/local/nvidia/lib", "PATH": "/usr/local/nvidia/bin:/bin"}, []),
    ],
)  # fmt: skip
def test_programs_of_the_image_find_the_volume(image: dict[str, str], expected: list[str]) -> None:
    found = wrapper.access(["0"], host(volume=VOLUME), image)
    assert [word for word in found if word.startswith("--env=")] == [*(f"--env={text}" for text in expected), VOID]


@pytest.mark.parametrize("name", ['0",capabilities=x,"', "0;1", "-1", "a b"])
def test_names_that_nobody_checked_cannot_add_options_of_gpus(name: str) -> None:
    with pytest.raises(WrapperError, match="invalid device"):
        wrapper.access([name], host(inventory=None), None)


def test_refusal_of_gpus_by_the_host_is_an_error() -> None:
    with pytest.raises(WrapperError, match="no usable GPU"):
        wrapper.access(["all"], host(has_hook=True, inventory=Inventory("580.95.05", (13, 0), [])), None)


# --- labels ---


@pytest.mark.parametrize(
    ("needed", "cuda", "driver", "expected"),
    [
        ("nvidia_driver", "7.5", (7, 0), "unsupported CUDA version: driver 7.0 < image 7.5"),
        ("nvidia_driver", "13.1", (13, 0), "unsupported CUDA version: driver 13.0 < image 13.1"),
        ("nvidia_driver", "10.0", (9, 2), "unsupported CUDA version: driver 9.2 < image 10.0"),
        ("nvidia_driver", "9.0.176", (9, 0), None),
        ("nvidia_driver", "9.2", (10, 0), None),
        ("nvidia_driver", None, (7, 0), None),
        ("nvidia_driver", "latest", (7, 0), None),
        ("nvidia_driver", "13.1", None, None),
        (None, "13.1", (13, 0), None),
        ("", "13.1", (13, 0), None),
    ],
)
def test_cuda_version_of_an_image_for_1_0_is_checked(
    needed: str | None, cuda: str | None, driver: tuple[int, int] | None, expected: str | None
) -> None:
    labels = {"com.nvidia.volumes.needed": needed, "com.nvidia.cuda.version": cuda}
    assert wrapper.cuda_problem({key: value for key, value in labels.items() if value is not None}, driver) == expected


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("http://gpu1:3476", "gpu1"),
        ("gpu1", "gpu1"),
        ("ssh://me@gpu1:22:3476", "me@gpu1"),
        ("tcp://[2001:db8::1]:3476", "[2001:db8::1]"),
        ("ssh://me:secret@gpu1", "HOST"),
        ("$(reboot)", "HOST"),
    ],
)
def test_nv_host_is_answered_with_the_command_of_today(address: str, place: str) -> None:
    answer = wrapper.no_remote(address)
    assert f"ssh {place} nvidia-docker run" in answer
    assert "gpu_container" in answer
    assert "secret" not in answer


# --- the engine ---

SPECIFICATION = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0"}, {"name": "all"}]}
YAML = """\
cdiVersion: 0.5.0
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- name: GPU-5a
  containerEdits: {}
kind: nvidia.com/gpu
"""


def test_specifications_name_the_devices_of_an_engine(tmp_path: Path) -> None:
    (tmp_path / "ours.json").write_text(json.dumps(SPECIFICATION))
    (tmp_path / "nvidia.yaml").write_text(YAML)
    (tmp_path / "other.json").write_text(
        json.dumps({**SPECIFICATION, "kind": "amd.com/gpu", "devices": [{"name": "9"}]})
    )
    (tmp_path / "mofed.yaml").write_text(YAML.replace("nvidia.com/gpu", "nvidia.com/mofed").replace('"0"', '"8"'))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "notes.txt").write_text(YAML.replace('"0"', '"7"'))
    info = {"Name": "here", "ServerVersion": "28.3.3", "CDISpecDirs": [str(tmp_path), "/does/not/exist"]}
    assert wrapper.read_engine(info, "here", "") == engine("0", "all", "GPU-5a")
    # Docker has CDI only if it says so.
    assert wrapper.read_engine({**info, "CDISpecDirs": None}, "here", "") == engine()
    found = [{"Source": "cdi", "ID": "nvidia.com/gpu=3"}, {"Source": "cdi", "ID": "amd.com/gpu=4"}]
    assert wrapper.read_engine({**info, "CDISpecDirs": [], "DiscoveredDevices": found}, "here", "") == engine("3")


@pytest.mark.parametrize(
    ("name", "address", "is_local"),
    [("here", "", True), ("there", "", False), ("here", "ssh://gpu1", False), (None, "", True)],
)
def test_engine_is_local_by_its_address_and_its_name(name: str | None, address: str, is_local: bool) -> None:
    assert wrapper.read_engine({"Name": name, "ServerVersion": "20.10.24+dfsg1"}, "here", address) == Engine(
        (20, 10), frozenset(), is_local, False
    )


@pytest.mark.parametrize(
    ("config", "rootless", "expected"),
    [
        ("", False, True),
        ("[nvidia-container-runtime]\nmode = \"auto\"\n", False, True),
        ("[nvidia-container-runtime]\nmode = \"cdi\"\n", False, False),
        ("[nvidia-container-runtime]\nmode = \"jit-cdi\"\n", False, False),
        ("#mode = \"cdi\"\n", False, True),
        ("[nvidia-container-runtime-hook]\nskip-mode-detection = true\n[x]\nmode = \"cdi\"\n", False, True),
        ("[nvidia-container-cli]\nno-cgroups = true\n", False, False),
        ("[nvidia-container-cli]\nno-cgroups = true\n", True, True),
        ("[nvidia-container-cli]\n#no-cgroups = true\n", True, False),
        ("accept-nvidia-visible-devices-envvar-when-unprivileged = false\n", False, False),
        ("accept-nvidia-visible-devices-envvar-when-unprivileged = true\n", False, True),
    ],
)  # fmt: skip
def test_hook_that_refuses_requests_is_not_used(config: str, rootless: bool, expected: bool) -> None:
    assert wrapper.hook_accepts(config, is_rootless=rootless) is expected


def test_rootless_engine_is_recognized() -> None:
    info = {"Name": "here", "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]}
    assert wrapper.read_engine(info, "here", "").is_rootless
    assert not wrapper.read_engine({**info, "SecurityOptions": None}, "here", "").is_rootless
