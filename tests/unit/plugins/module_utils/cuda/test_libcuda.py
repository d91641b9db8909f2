# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CUDA probe against a libcuda that fails on demand (files/libcuda.c)."""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import libcuda

SOURCE = Path(__file__).parent / "files" / "libcuda.c"
FIRST, SECOND = "GPU-aabbee00-0000-0000-0000-000000000000", "GPU-aabbee00-0000-0000-0000-000000000001"


def compiled(directory: Path, *flags: str) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed: apt install gcc"
    library = directory / "libcuda.so.1"
    command = [compiler, "-shared", "-fPIC", "-ffp-contract=off", "-Wall", "-Werror", *flags, "-o", library, SOURCE]
    subprocess.run(command, check=True)
    return str(library)


@pytest.fixture(autouse=True, scope="module")
def _quiet_crashes():
    """The children that crash on purpose need not tell where."""
    was = faulthandler.is_enabled()
    faulthandler.disable()
    yield
    if was:
        faulthandler.enable()


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def probe(library, monkeypatch):
    """Probe the fake library, with orders for it."""

    def call(trouble="", gpus=None, timeout=20.0, memory_mib=1, **settings):
        monkeypatch.setenv("FAKE_CUDA_TROUBLE", trouble)
        for name, value in settings.items():
            monkeypatch.setenv(f"FAKE_CUDA_{name.upper()}", str(value))
        return libcuda.probe(gpus, library=library, timeout=timeout, memory_mib=memory_mib)

    return call


def results(probed):
    return {gpu["index"]: gpu["result"] for gpu in probed["gpus"]}


def test_gpus_that_compute_pass(probe):
    probed = probe()
    assert results(probed) == {0: "PASS", 1: "PASS"}
    assert probed["passed"] is True
    assert (probed["error"], probed["error_code"], probed["device_count"], probed["cuda_version"]) == (
        None,
        None,
        2,
        "13.1",
    )
    first = probed["gpus"][0]
    assert (first["uuid"], first["name"], first["pci_bus_id"]) == (FIRST, "Fake GPU", "0000:3b:00.0")
    assert (first["compute_capability"], first["memory_total_mib"]) == ("9.0", 24576)
    assert (first["memory_round_trip"], first["kernel"]) == (True, True)
    attributes = first["attributes"]
    assert attributes["ecc_enabled"] is True
    assert attributes["compute_mode"] == "exclusive_process"
    assert attributes["warp_size"] == 100
    assert attributes["gpu_direct_rdma"] is None, "an attribute that the driver does not know"


def test_a_pci_domain_above_ffff_is_written_as_the_kernel_does(probe):
    assert probe(name="GB200", gpus=["0"])["gpus"][0]["pci_bus_id"] == "10000:3b:00.0"


# What is wrong, and the words for it.
FATAL = [
    ("cuInit=803", "cuInit: CUDA_ERROR_803 (803), words of 803; libcuda and the loaded kernel module are of different"),
    ("cuInit=100", "cuInit: CUDA_ERROR_100 (100), words of 100; is the nvidia module loaded"),
    ("cuInit=999", "often /dev/nvidia-uvm"),
    ("cuInit=802", "is nvidia-fabricmanager running"),
    ("cuInit=34", "the toolkit's stub"),
    ("cuInit=4711", "cuInit: CUDA_ERROR_4711 (4711), words of 4711"),
    ("cuDriverGetVersion=1", "cuDriverGetVersion: CUDA_ERROR_1 (1)"),
    ("cuDeviceGetCount=3", "cuDeviceGetCount: CUDA_ERROR_3 (3)"),
    ("cuDeviceGet=101", "cuDeviceGet: CUDA_ERROR_101 (101), words of 101; the device number is not valid"),
]


@pytest.mark.parametrize(("trouble", "words"), FATAL)
def test_what_stops_the_whole_probe_is_its_error(probe, trouble, words):
    probed = probe(trouble)
    assert words in probed["error"]
    assert probed["error_code"] == int(trouble.partition("=")[2])
    assert probed["passed"] is False
    assert probed["gpus"] == []


ONE_GPU = [
    ("cuDeviceGetName@1=201", "cuDeviceGetName: CUDA_ERROR_201 (201)"),
    ("cuDeviceTotalMem@1=201", "cuDeviceTotalMem: CUDA_ERROR_201 (201)"),
    ("cuDeviceGetUuid@1=201", "cuDeviceGetUuid: CUDA_ERROR_201 (201)"),
    ("cuDevicePrimaryCtxRetain@1=46", "the compute mode forbids it, or another process uses the GPU exclusively"),
    ("cuDevicePrimaryCtxRetain@1=2", "other processes hold the GPU's memory"),
    ("cuCtxSetCurrent@1=201", "cuCtxSetCurrent: CUDA_ERROR_201 (201)"),
    ("cuMemAlloc@1=2", "cuMemAlloc: CUDA_ERROR_2 (2), words of 2; other processes hold the GPU's memory"),
    ("cuMemcpyHtoD@1=214", "an uncorrectable ECC error; look at the kernel's log for Xid"),
    ("cuMemcpyDtoD@1=700", "the kernel touched memory that it may not"),
    ("cuMemcpyDtoH@1=719", "the GPU threw an exception"),
    ("cuModuleLoadDataEx@1=221", "libnvidia-ptxjitcompiler is missing beside libcuda"),
    ("cuModuleLoadDataEx@1=222", "the driver is too old for the kernel's PTX version"),
    ("cuModuleLoadDataEx@1=209", "no code generator for this GPU's architecture"),
    ("cuModuleGetFunction@1=500", "cuModuleGetFunction: CUDA_ERROR_500 (500)"),
    ("cuLaunchKernel@1=701", "cuLaunchKernel: CUDA_ERROR_701 (701)"),
    ("cuCtxSynchronize@1=702", "cuCtxSynchronize: CUDA_ERROR_702 (702)"),
    ("cuModuleUnload@1=400", "cuModuleUnload: CUDA_ERROR_400 (400)"),
    ("cuMemFree@1=400", "cuMemFree: CUDA_ERROR_400 (400)"),
    ("cuMemcpyDtoD@1=corrupt", "memory round trip of 1048576 bytes: byte 524288 came back different; is the memory"),
    ("cuLaunchKernel@1=corrupt", "the kernel's result is wrong at element 32768: "),
    ("cuMemcpyHtoD@1=crash", "GPU 1: the driver's library crashed (SIGSEGV)"),
    ("cuLaunchKernel@1=hang", "GPU 1: no answer within 2 s"),
]


@pytest.mark.parametrize(("trouble", "words"), ONE_GPU)
def test_one_bad_gpu_is_told_and_the_other_passes(probe, trouble, words):
    probed = probe(trouble, timeout=2.0 if trouble.endswith("hang") else 20.0)
    assert words in results(probed)[1]
    assert results(probed)[0] == "PASS"
    assert probed["passed"] is False
    assert probed["error"] is None


def test_a_gpu_that_takes_the_process_along_does_not_hide_those_after_it(probe):
    probed = probe("cuMemAlloc@0=crash,cuMemAlloc@2=exit", gpus=None, GPUS=4)
    assert results(probed) == {
        0: "GPU 0: the driver's library crashed (SIGSEGV)",
        1: "PASS",
        2: "GPU 2: the driver's library ended the process without a word",
        3: "PASS",
    }


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("cuInit=hang", "cuInit: no answer within 1 s"),
        ("cuInit=crash", "cuInit: the driver's library crashed (SIGSEGV)"),
        ("cuDeviceGetCount=hang", "counting the GPUs: no answer within 1 s"),
    ],
)
def test_a_driver_that_hangs_or_crashes_is_an_answer(probe, trouble, words):
    probed = probe(trouble, timeout=1.0)
    assert words in probed["error"]
    assert probed["passed"] is False


def test_a_library_that_ends_the_process_is_an_answer(probe):
    probed = probe("cuInit=exit")
    assert probed["passed"] is False
    assert probed["error"] == "cuInit: the driver's library ended the process without a word"


def test_a_library_without_words_gets_ours(probe):
    assert probe("cuInit=803", mute=1)["error"].startswith("cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803); libcuda")
    assert probe("cuInit=4711", mute=1)["error"] == "cuInit: unknown error (4711)"


def test_no_gpu_is_said(probe):
    probed = probe(gpus=None, GPUS=0)
    assert (probed["error"], probed["passed"], probed["device_count"]) == ("CUDA shows no GPU", False, 0)


@pytest.mark.parametrize(
    ("asked", "found"),
    [(["1"], [1]), ([SECOND], [1]), ([FIRST.lower()], [0]), (["GPU-aabb"], [0, 1]), (["0", "1"], [0, 1])],
)
def test_gpus_are_chosen_by_index_and_uuid(probe, asked, found):
    probed = probe(gpus=asked)
    assert [gpu["index"] for gpu in probed["gpus"]] == found
    assert probed["passed"] is True


@pytest.mark.parametrize(("asked", "index", "uuid"), [("7", 7, None), ("GPU-dead", None, "GPU-dead")])
def test_a_gpu_that_is_not_there_is_told_with_those_that_are(probe, asked, index, uuid):
    probed = probe(gpus=["0", asked])
    missing = next(gpu for gpu in probed["gpus"] if not gpu["passed"])
    assert (missing["index"], missing["uuid"]) == (index, uuid)
    assert missing["result"] == f"CUDA shows no GPU '{asked}'; it shows 0 ({FIRST}), 1 ({SECOND})"
    assert probed["passed"] is False


def test_mig_devices_are_asked_for_one_by_one(probe):
    probed = probe(gpus=["MIG-c0ffee", "MIG-nothing"], name="Fake GPU MIG 1g.10gb")
    there, missing = probed["gpus"]
    assert there["result"] == "PASS"
    assert there["uuid"].startswith("MIG-c0ffee00-")
    assert (missing["uuid"], missing["result"]) == ("MIG-nothing", "CUDA shows no such device")


def test_an_old_library_with_the_first_uuid_call_serves(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_GPUS", "1")
    probed = libcuda.probe(library=compiled(tmp_path, "-DOLD"), memory_mib=1)
    assert probed["passed"] is True
    assert probed["gpus"][0]["uuid"] == FIRST


def test_a_missing_call_is_named(tmp_path):
    probed = libcuda.probe(library=compiled(tmp_path, "-DNO_SYNCHRONIZE"), memory_mib=1)
    assert results(probed)[0] == (
        "libcuda.so.1 has no cuCtxSynchronize: the driver is too old, or the library is not NVIDIA's"
    )


def test_a_library_that_is_not_there_is_named(tmp_path):
    missing = str(tmp_path / "libcuda.so.1")
    probed = libcuda.probe(library=missing)
    assert probed["error"] == f"{missing} does not exist; 'library' is the path of the driver's libcuda.so.1"


def test_a_driver_root_without_the_library_is_named(tmp_path):
    probed = libcuda.probe(driver_root=str(tmp_path))
    assert f"libcuda.so.1 was not found below {tmp_path}; install the driver's compute libraries" in probed["error"]


def test_a_file_that_is_no_library_is_told_in_the_loaders_words(tmp_path):
    broken = tmp_path / "libcuda.so.1"
    broken.write_text("nonsense")
    assert f"libcuda.so.1 cannot be loaded: {broken}: " in libcuda.probe(library=str(broken))["error"]


@pytest.mark.parametrize(
    "place", ["usr/lib64", "usr/lib/x86_64-linux-gnu/nvidia/current", "usr/local/nvidia/lib64", "lib"]
)
def test_the_library_is_found_below_a_driver_root(library, tmp_path, monkeypatch, place):
    monkeypatch.setenv("FAKE_CUDA_GPUS", "1")
    (tmp_path / place).mkdir(parents=True)
    shutil.copy(library, tmp_path / place)
    probed = libcuda.probe(driver_root=str(tmp_path), memory_mib=1)
    assert probed["library"] == str(tmp_path / place / "libcuda.so.1")
    assert probed["passed"] is True


def test_as_a_program_it_prints_json_and_its_exit_status_says_whether_it_passed(library, monkeypatch):
    script = libcuda.__file__
    for trouble, status in (("", 0), ("cuInit=100", 1)):
        monkeypatch.setenv("FAKE_CUDA_TROUBLE", trouble)
        done = subprocess.run(
            ["python3", script, "--library", library, "--memory-mib", "1"], capture_output=True, check=False
        )
        assert done.returncode == status
        assert json.loads(done.stdout)["passed"] is (status == 0)


@pytest.mark.parametrize("trouble", ["", "cuInit=hang", "cuInit=crash", "cuMemAlloc@0=exit"])
def test_no_process_is_left_behind(probe, monkeypatch, trouble):
    """Only the probe's own count: other tests of this process may have left some of theirs."""
    fork, forked = os.fork, []

    def noted_fork():
        forked.append(fork())
        return forked[-1]

    monkeypatch.setattr(os, "fork", noted_fork)
    probe(trouble, timeout=0.5 if trouble.endswith("hang") else 20.0)
    assert forked
    for pid in forked:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
