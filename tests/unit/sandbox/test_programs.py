# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVML programs on simulated hosts: gpu-client and the simulated nvidia-smi."""

from __future__ import annotations

import os
import subprocess
import xml.etree.ElementTree as ET

import pytest

from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import SIMULATOR, NvmlLab


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Compile both programs."""
    directory = tmp_path_factory.mktemp("programs")
    for name, source in (("gpu-client", "client.c"), ("nvidia-smi", "smi.c")):
        subprocess.run(
            ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", directory / name, SIMULATOR / "src" / source],
            check=True,
        )
    return directory


def run(programs, lab: NvmlLab | None, *command: str) -> tuple[int, str]:
    """Run a program with the simulated library. Return its exit status and output."""
    env = lab.env if lab else {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [programs / command[0], *command[1:]], env=env, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.fixture
def two(tmp_path):
    """Describe two GPUs, the first with two MIG devices."""
    gpu = {
        "model": "A100-SXM4-40GB",
        "count": 2,
        "uuid": ["GPU-aaaa", "GPU-bbbb"],
        "mig": [["3g.20gb", "2g.10gb"], None],
    }
    return NvmlLab(tmp_path, {"gpus": [gpu]})


def test_gpu_client_lists_mig_devices_in_place_of_their_gpu(programs, two):
    status, printed = run(programs, two, "gpu-client")
    assert (status, [line[:4] for line in printed.splitlines()]) == (0, ["MIG-", "MIG-", "GPU-"])
    assert run(programs, two, "gpu-client", "--count") == (0, "3\n")


def test_gpu_client_prints_the_error_of_nvml(programs, tmp_path):
    lab = NvmlLab(tmp_path, {"gpus": [{"model": "T4"}], "driver": {"version": "550.1", "loaded": False}})
    assert run(programs, lab, "gpu-client") == (1, "gpu-client: nvmlInit_v2: Driver Not Loaded (9)\n")


def test_gpu_client_fails_without_a_library(programs):
    status, printed = run(programs, None, "gpu-client")
    assert status == 1
    assert printed.startswith("gpu-client: libnvidia-ml.so.1: cannot open shared object file")


def test_gpu_client_opens_libraries_and_files(programs, tmp_path):
    assert run(programs, None, "gpu-client", "--dlopen", "libc.so.6") == (0, "ok\n")
    assert run(programs, None, "gpu-client", "--dlopen", "libno.so.1")[0] == 1
    assert run(programs, None, "gpu-client", "--open", "/dev/null") == (0, "ok\n")
    assert run(programs, None, "gpu-client", "--open", str(tmp_path / "none")) == (1, "ENOENT\n")
    assert run(programs, None, "gpu-client", "--what")[0] == 2


def test_smi_lists_gpus_and_mig_devices(programs, two):
    status, printed = run(programs, two, "nvidia-smi", "-L")
    lines = printed.splitlines()
    assert status == 0
    assert lines[0] == "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa)"
    assert lines[1].startswith("  MIG 3g.20gb      Device  0: (UUID: MIG-")
    assert lines[3] == "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbb)"


@pytest.mark.parametrize(
    ("fields", "options", "printed"),
    [
        ("index,uuid", "csv,noheader", "0, GPU-aaaa\n1, GPU-bbbb\n"),
        ("memory.total,power.limit", "csv,noheader", "40960 MiB, 400.00 W\n" * 2),
        ("memory.total,power.limit", "csv,noheader,nounits", "40960, 400.00\n" * 2),
        ("index,memory.total", "csv", "index, memory.total [MiB]\n0, 40960 MiB\n1, 40960 MiB\n"),
        ("mig.mode.current,fan.speed", "csv,noheader", "Enabled, [N/A]\nDisabled, [N/A]\n"),
        ("driver_version,count,compute_cap", "csv,noheader", "550.163.01, 2, 8.0\n" * 2),
    ],
)
def test_smi_answers_queries(programs, two, fields, options, printed):
    assert run(programs, two, "nvidia-smi", f"--query-gpu={fields}", f"--format={options}") == (0, printed)


def test_smi_accepts_gpus_by_index_uuid_and_address(programs, two):
    for identity in ("1", "GPU-bbbb", "00000000:0F:00.0", "0000:0f:00.0"):
        asked = ("--query-gpu=index", "--format=csv,noheader", "-i", identity)
        assert run(programs, two, "nvidia-smi", *asked) == (0, "1\n"), identity


def test_smi_writes_xml(programs, two):
    status, printed = run(programs, two, "nvidia-smi", "-q", "-x")
    log = ET.fromstring(printed)
    assert status == 0
    assert log.findtext("attached_gpus") == "2"
    assert [gpu.findtext("uuid") for gpu in log.findall("gpu")] == ["GPU-aaaa", "GPU-bbbb"]
    assert log.findtext("gpu/fb_memory_usage/total") == "40960 MiB"
    assert log.findtext("gpu/mig_mode/current_mig") == "Enabled"


def test_smi_changes_settings(programs, two):
    assert run(programs, two, "nvidia-smi", "-i", "1", "-pm", "1")[0] == 0
    asked = ("--query-gpu=persistence_mode", "--format=csv,noheader")
    assert run(programs, two, "nvidia-smi", *asked) == (0, "Disabled\nEnabled\n")
    assert run(programs, two, "nvidia-smi", "-pl", "9000")[0] == 2


@pytest.mark.parametrize(
    ("description", "status", "words"),
    [
        (
            {"gpus": [{"model": "T4"}], "driver": {"version": "1.2", "loaded": False}},
            9,
            "couldn't communicate with the",
        ),
        (
            {"gpus": [{"model": "T4"}], "driver": {"version": "1.2", "library": "1.3"}},
            18,
            "Driver/library version mismatch",
        ),
        ({}, 6, "No devices were found"),
        (
            {"gpus": [{"model": "T4", "health": "lost"}]},
            0,
            "Unable to determine the device handle for gpu 0: GPU is lost",
        ),
    ],
)
def test_smi_exits_like_the_real_one(programs, tmp_path, description, status, words):
    code, printed = run(programs, NvmlLab(tmp_path, description), "nvidia-smi", "-L")
    assert (code, words in printed) == (status, True), printed


def test_smi_fails_without_a_library_and_with_unknown_options(programs, two):
    assert run(programs, None, "nvidia-smi")[0] == 12
    assert run(programs, two, "nvidia-smi", "--accounting")[0] == 2
    assert run(programs, two, "nvidia-smi", "--query-gpu=colour", "--format=csv") == (
        2,
        'Field "colour" is not a valid field to query.\n\n',
    )


def test_smi_table_has_lines_of_equal_length(programs, two):
    status, printed = run(programs, two, "nvidia-smi")
    assert status == 0
    assert {len(line) for line in printed.splitlines()[1:]} == {79}


@pytest.mark.parametrize("option", [("-l", "1"), ("--loop=1",), ("--loop", "1")])
def test_nvidia_smi_repeats_its_output_until_it_is_stopped(programs, two, option):
    command = [programs / "nvidia-smi", "-L", *option]
    with subprocess.Popen(command, env=two.env, text=True, stdout=subprocess.PIPE) as process:
        lines = [process.stdout.readline() for _line in range(5)]
        process.terminate()
    assert [line[:5] for line in lines] == ["GPU 0", "  MIG", "  MIG", "GPU 1", "GPU 0"]
    assert run(programs, two, "nvidia-smi", "-L", "--loop=x")[0] == 2
