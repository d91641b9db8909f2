# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the program nvidia-docker as a user does, with a docker that records how it was called, and simulated GPUs."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import nvidia_docker_file
from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import NvmlLab

# Answers as docker does, and records its arguments.
DOCKER = """\
#!{python} -IS
import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
words = sys.argv[1:]
state = json.load(open(here + "/state.json"))
with open(here + "/calls.jsonl", "a") as file:
    file.write(json.dumps([os.path.basename(sys.argv[0]), *words]) + "\\n")
if "info" in words:
    print(json.dumps(state["info"])) if state["info"] else sys.exit(1)
elif words[-4:-2] == ["image", "inspect"]:
    print(json.dumps([dict(Config=state["images"][words[-1]])])) if words[-1] in state["images"] else sys.exit(1)
elif "pull" in words and "run" not in words:
    print("pulling " + words[-1])
    if words[-1] not in state["registry"]:
        sys.exit(1)
    state["images"][words[-1]] = state["registry"][words[-1]]
    json.dump(state, open(here + "/state.json", "w"))
else:
    sys.stdout.write(state.get("output", "") or sys.stdin.read())
    sys.exit(state.get("status", 0))
"""
UNIVERSAL = {"Labels": None, "Env": ["PATH=/usr/bin:/bin"]}
FOR_1_0 = {"Labels": {"com.nvidia.volumes.needed": "nvidia_driver", "com.nvidia.cuda.version": "7.5"}, "Env": []}
TOO_NEW = {"Labels": {**FOR_1_0["Labels"], "com.nvidia.cuda.version": "99.0"}, "Env": []}  # type: ignore[dict-item]


class Desk:
    """A user's environment: docker, the installed program, and its GPUs."""

    def __init__(self, directory: Path, *gpus: dict[str, Any]) -> None:
        self.directory = directory / "bin"
        self.directory.mkdir()
        self.lab = NvmlLab(directory, {"gpus": list(gpus) or [{"model": "T4"}] * 3})
        self.program = directory / "nvidia-docker"
        self.program.write_text(nvidia_docker_file.text(sys.executable), encoding="utf-8")
        self.add("docker")
        self.state: dict[str, Any] = {
            "info": {"Name": os.uname().nodename, "ServerVersion": "20.10.24"},
            "images": {"img": UNIVERSAL, "old": FOR_1_0, "new": TOO_NEW},
            "registry": {},
        }

    @functools.cached_property
    def uuids(self) -> list[str]:
        return self.lab.python(
            "import pynvml as n; n.nvmlInit(); print(*[n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(i)) "
            "for i in range(n.nvmlDeviceGetCount())])"
        ).split()

    def add(self, name: str) -> None:
        path = self.directory / name
        path.write_text(DOCKER.replace("{python}", sys.executable), encoding="utf-8")
        path.chmod(0o755)
        self.program.chmod(0o755)

    def start(self, *words: str, stdin: Any = subprocess.DEVNULL, **variables: str) -> subprocess.Popen[str]:
        (self.directory / "state.json").write_text(json.dumps(self.state), encoding="utf-8")
        path = f"{self.directory}{os.pathsep}{os.environ['PATH']}"
        known = {name: value for name, value in self.lab.env.items() if not name.startswith(("NV_", "DOCKER_"))}
        return subprocess.Popen(
            # A shell starts background jobs with this signal ignored, which children inherit.
            ["/usr/bin/env", "--default-signal=INT", str(self.program), *words],
            env={**known, "PATH": path, **variables},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="surrogateescape",
        )

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*words, **variables)
        output, errors = process.communicate(timeout=60)
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    @property
    def calls(self) -> list[list[str]]:
        path = self.directory / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def last(self, *words: str, **variables: str) -> list[str]:
        """Return the arguments with which docker was called at last."""
        done = self.run(*words, **variables)
        assert done.returncode == 0, done.stderr
        return self.calls[-1][1:]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield Desk(tmp_path)


def test_run_and_create_get_gpus_directly_after_the_verb(desk: Desk) -> None:
    assert desk.last("run", "--rm", "img", "nvidia-smi") == ["run", "--gpus", "all", "--rm", "img", "nvidia-smi"]
    assert desk.last("create", "img") == ["create", "--gpus", "all", "img"]
    assert desk.last("container", "run", "img") == ["container", "run", "--gpus", "all", "img"]
    assert desk.last("-D", "container", "create", "img") == ["-D", "container", "create", "--gpus", "all", "img"]


def test_everything_else_is_docker(desk: Desk) -> None:
    for words in (["volume", "create", "data"], ["ps", "-a"], ["exec", "c", "run"], ["version"], [], ["run", "--help"]):
        assert desk.last(*words, NV_GPU="nonsense", NV_HOST="gpu1") == words
    assert len(desk.calls) == 6


@pytest.mark.parametrize("names", ["0,1", "0 1", "{0},1", "0 {1}", "{0:.12} {1:.12}"])
def test_nv_gpu_selects_gpus(desk: Desk, names: str) -> None:
    given = desk.last("run", "img", NV_GPU=names.format(*desk.uuids))
    assert given == ["run", "--gpus", f'"device={desk.uuids[0]},{desk.uuids[1]}"', "img"]


def test_nv_gpu_selects_gpus_by_their_pci_address(desk: Desk) -> None:
    address = desk.lab.python(
        "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetPciInfo(n.nvmlDeviceGetHandleByIndex(2)).busId)"
    ).strip()
    for name in (address, address.lower(), address[4:]):
        assert desk.last("run", "img", NV_GPU=name) == ["run", "--gpus", f'"device={desk.uuids[2]}"', "img"]


def test_gpu_in_mig_mode_stands_for_its_devices(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {"model": "H100-SXM5-80GB", "mig": ["1g.10gb", "2g.20gb"]}, {"model": "H100-SXM5-80GB"})
    parts = desk.lab.python(
        "import pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0); "
        "print(*[n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(h, i)) for i in range(2)])"
    ).split()
    for names, uuids in (("0", parts), ("0:1 1", [parts[1], desk.uuids[1]]), (parts[0], parts[:1])):
        given = desk.last("run", "img", NV_GPU=names)
        assert given == ["run", "--gpus", f'"device={",".join(uuids)}"', "img"]


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"])
def test_gpu_that_cannot_be_opened_cannot_be_selected(desk: Desk, call: str) -> None:
    last = desk.uuids[2]
    desk.lab.set({f"gpu.1.return.{call}": 15})
    done = desk.run("run", "img", NV_GPU="1")
    assert (done.returncode, "invalid device: 1." in done.stderr) == (1, True), done.stderr
    assert desk.last("run", "img", NV_GPU="2")[2] == f'"device={last}"'


def test_unknown_gpu_is_an_error_before_the_start(desk: Desk) -> None:
    done = desk.run("run", "img", NV_GPU="0,7")
    assert done.returncode == 1
    assert "Error: invalid device: 7. This host has 0 " in done.stderr
    assert desk.uuids[2] in done.stderr
    assert "run" not in [call[1] for call in desk.calls]


def test_nv_docker_is_split_into_words(desk: Desk) -> None:
    desk.add("sudo")
    words = desk.last("run", "img", NV_DOCKER=" sudo  -n docker -D ")
    assert words == ["-n", "docker", "-D", "run", "--gpus", "all", "img"]
    assert {call[0] for call in desk.calls} == {"sudo"}
    # The questions to docker take the same way.
    assert desk.calls[0][1:5] == ["-n", "docker", "-D", "info"]


def test_arguments_arrive_as_they_are(desk: Desk) -> None:
    words = ["", " ", "a b", "'", '"', "$(touch x)", "`x`", "*", "\\", "line\nline", "ä☃", "--gpus", "{{x}}", ";"]
    assert desk.last("run", "-e", "A=b c", "img", *words) == ["run", "--gpus", "all", "-e", "A=b c", "img", *words]


def test_bytes_that_are_no_text_arrive_as_they_are(desk: Desk) -> None:
    given = desk.last("run", "img", os.fsdecode(b"\xff\xfe"), LC_ALL="C")
    assert given[-1] == os.fsdecode(b"\xff\xfe")


@pytest.mark.parametrize("status", [0, 1, 125, 126, 127, 255])
def test_exit_status_is_that_of_docker(desk: Desk, status: int) -> None:
    desk.state["status"] = status
    assert desk.run("run", "img").returncode == status
    assert desk.run("ps").returncode == status


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGKILL])
@pytest.mark.parametrize("words", [["run", "img"], ["ps"]])
def test_docker_replaces_the_program_and_gets_its_signals(desk: Desk, number: signal.Signals, words: list[str]) -> None:
    # Not in Python, which changes the signals itself.
    answer = '[ "$1" = info ] && exit 1; echo "$$"; exec sleep 60'
    (desk.directory / "docker").write_text(f"#!/bin/sh\n{answer}\n", encoding="utf-8")
    process = desk.start(*words)
    assert process.stdout
    assert int(process.stdout.readline()) == process.pid
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == -number


def test_image_for_1_0_that_needs_a_newer_driver_is_not_started(desk: Desk) -> None:
    done = desk.run("run", "--rm", "new")
    assert done.returncode == 1
    assert ": unsupported CUDA version: driver 12.4 < image 99.0. Upgrade the driver" in done.stderr
    assert done.stderr.startswith(f"{desk.program} | 20")
    assert "run" not in [call[1] for call in desk.calls]
    assert desk.last("run", "old") == ["run", "--gpus", "all", "old"]
    # The place of the image is not certain, so nothing is checked, but GPUs are given.
    assert desk.last("run", "--brand-new", "x", "new") == ["run", "--gpus", "all", "--brand-new", "x", "new"]


def test_missing_image_is_pulled_before_its_labels_are_checked(desk: Desk) -> None:
    desk.state["registry"] = {"far": TOO_NEW, "fine": UNIVERSAL}
    done = desk.run("run", "-q", "--platform", "linux/amd64", "far")
    assert (done.returncode, done.stdout) == (1, "")
    assert ["docker", "pull", "--platform=linux/amd64", "--quiet", "--", "far"] in desk.calls
    # The output of `run -d` is only the container.
    desk.state["output"] = "id\n"
    done = desk.run("run", "-d", "fine")
    assert (done.returncode, done.stdout) == (0, "id\n")
    assert "pulling fine" in done.stderr
    # docker reports a missing image itself.
    assert desk.last("run", "nowhere") == ["run", "--gpus", "all", "nowhere"]
    before = len(desk.calls)
    assert desk.last("run", "--pull", "never", "nowhere2")[-1] == "nowhere2"
    assert "pull" not in [call[1] for call in desk.calls[before:]]


def test_nv_host_is_an_error_with_the_command_of_today(desk: Desk) -> None:
    done = desk.run("run", "img", NV_HOST="ssh://me@gpu1:22:3476")
    assert done.returncode == 1
    assert "DOCKER_HOST=ssh://me@gpu1 nvidia-docker run" in done.stderr
    assert desk.calls == []


def test_engine_of_another_host_gets_the_names_as_written(desk: Desk) -> None:
    desk.state["info"]["Name"] = "gpu1"
    assert desk.last("run", "new", NV_GPU="7,8") == ["run", "--gpus", '"device=7,8"', "new"]
    assert [call[1] for call in desk.calls] == ["info", "run"]


def test_gpus_of_the_user_are_not_doubled(desk: Desk) -> None:
    for option in (["--gpus", "1"], ["--device", "nvidia.com/gpu=0"], ["--device=nvidia.com/gpu=0"]):
        assert desk.last("run", *option, "img") == ["run", *option, "img"]


def test_cdi_is_used_if_the_host_has_nothing_else(desk: Desk, tmp_path: Path) -> None:
    if any(os.access(f"{place}/nvidia-container-runtime-hook", os.X_OK) for place in ("/usr/bin", "/usr/local/bin")):
        raise RuntimeError("This machine has NVIDIA's hook. Run the unit tests elsewhere.")
    devices = [{"name": str(index)} for index in range(3)]
    document = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    (tmp_path / "nvidia.json").write_text(json.dumps(document))
    desk.state["info"] |= {"ServerVersion": "28.3.3", "CDISpecDirs": [str(tmp_path)]}
    given = desk.last("run", "img", NV_GPU=desk.uuids[1])
    assert given == ["run", "--device=nvidia.com/gpu=1", "--env=NVIDIA_VISIBLE_DEVICES=void", "img"]


def test_docker_that_does_not_answer_explains_it_itself(desk: Desk) -> None:
    desk.state["info"] = None
    assert desk.last("run", "img", NV_GPU="1") == ["run", "--gpus", f'"device={desk.uuids[1]}"', "img"]


def test_missing_docker_is_an_error_of_a_shell(desk: Desk) -> None:
    done = desk.run("ps", NV_DOCKER="no-such-docker")
    assert (done.returncode, "no-such-docker" in done.stderr, "Traceback" in done.stderr) == (127, True, False)
    (desk.directory / "docker").chmod(0o644)
    assert desk.run("ps", NV_DOCKER=str(desk.directory / "docker")).returncode == 126


def test_interrupted_question_ends_the_program_without_a_traceback(desk: Desk) -> None:
    asked = desk.directory / "asked"
    (desk.directory / "docker").write_text(f"#!/bin/sh\n: > {asked}\nexec sleep 60\n")
    process = desk.start("run", "img")
    while not asked.exists():
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (-signal.SIGINT, "")


def test_user_can_end_a_program_that_waits_for_the_driver(desk: Desk) -> None:
    desk.lab.set({"delay.nvmlInit": 50})
    process = desk.start("run", "img")
    while "info" not in [word for call in desk.calls for word in call]:
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _output, errors = process.communicate(timeout=40)
    assert (process.returncode, errors) == (-signal.SIGINT, "")


def test_python_reads_no_module_of_the_user(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('hijacked')")
    assert desk.last("run", "img", PYTHONPATH=str(tmp_path)) == ["run", "--gpus", "all", "img"]


def test_input_of_the_user_is_for_the_container(desk: Desk) -> None:
    process = desk.start("run", "-i", "img", stdin=subprocess.PIPE)
    assert process.communicate("a line\n", timeout=60)[0] == "a line\n"
    assert [call[1] for call in desk.calls] == ["info", "image", "run"]


@pytest.mark.parametrize(
    "variables",
    [
        {"A": "b c", "NV_GPU": "0", "E": "", "B": os.fsdecode(b"\xff")},
        # In the C locale, Python sets LC_CTYPE for its children.
        {"LC_ALL": "", "LANG": "C", "LC_CTYPE": ""},
        {"LC_ALL": "", "LANG": "C", "LC_CTYPE": "C.UTF-8"},
    ],
)
def test_variables_of_the_user_arrive_as_they_are(desk: Desk, variables: dict[str, str]) -> None:
    (desk.directory / "docker").write_text('#!/bin/sh\n[ "$1" = info ] && exit 1\nexec env -0\n', encoding="utf-8")
    process = desk.start("run", "img", **variables)
    output, _errors = process.communicate(timeout=60)
    given = dict(item.split("=", 1) for item in output.split("\0") if item)
    assert {name: given.get(name) for name in variables} == variables


def test_pipe_with_variables_is_left_for_docker(desk: Desk) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"NVIDIA_VISIBLE_DEVICES=1\n")
    os.close(writer)
    with os.fdopen(reader):
        path = f"/proc/{os.getpid()}/fd/{reader}"
        assert desk.last("run", "--env-file", path, "img")[1:3] == ["--gpus", "all"]
        assert os.read(reader, 100) == b"NVIDIA_VISIBLE_DEVICES=1\n"


def test_file_with_variables_selects_gpus(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "variables").write_text("NVIDIA_VISIBLE_DEVICES=1\n")
    given = desk.last("run", "--env-file", str(tmp_path / "variables"), "img")
    assert given[1:3] == ["--gpus", f'"device={desk.uuids[1]}"']


def test_link_from_docker_to_the_program_is_an_error_and_no_loop(desk: Desk) -> None:
    (desk.directory / "docker").unlink()
    (desk.directory / "docker").symlink_to(desk.program)
    done = desk.run("run", "img")
    assert (done.returncode, "docker is this program itself" in done.stderr) == (1, True)
