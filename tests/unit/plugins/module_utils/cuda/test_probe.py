# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CUDA probe, with a fake libcuda that fails on request (files/libcuda.c)."""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import probe as cuda_probe
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import probe_gpu_checks

SOURCE = Path(__file__).parent / "files" / "libcuda.c"
FIRST, SECOND = "GPU-aabbee00-0000-0000-0000-000000000000", "GPU-aabbee00-0000-0000-0000-000000000001"


def compiled(directory: Path, *flags: str) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "no C compiler found: run apt install gcc"
    library = directory / "libcuda.so.1"
    command = [compiler, "-shared", "-fPIC", "-ffp-contract=off", "-Wall", "-Werror", *flags, "-o", library, SOURCE]
    subprocess.run(command, check=True)
    return str(library)


@pytest.fixture(autouse=True, scope="module")
def _without_faulthandler():
    """Print no traceback when a child process crashes on purpose."""
    was_enabled = faulthandler.is_enabled()
    faulthandler.disable()
    yield
    if was_enabled:
        faulthandler.enable()


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def probe(library, monkeypatch):
    """Return a function that probes the fake library with the given failures."""

    def call(trouble="", gpus=None, timeout=20.0, memory_mib=1, matrix=(None, 1), **settings):
        monkeypatch.setenv("FAKE_CUDA_TROUBLE", trouble)
        for name, value in settings.items():
            monkeypatch.setenv(f"FAKE_CUDA_{name.upper()}", str(value))
        size, repetitions = matrix
        return cuda_probe.probe(
            gpus,
            library=library,
            timeout=timeout,
            memory_mib=memory_mib,
            matrix_size=size,
            matrix_repetitions=repetitions,
        )

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
    assert attributes["gpu_direct_rdma"] is None, "the fake driver does not support this attribute"


def test_a_pci_domain_above_ffff_has_the_kernels_format(probe):
    assert probe(name="GB200", gpus=["0"])["gpus"][0]["pci_bus_id"] == "10000:3b:00.0"


# Failures of the fake library, and the expected message.
FATAL = [
    ("cuInit=803", "cuInit: CUDA_ERROR_803 (803), words of 803. libcuda and the loaded kernel module have different"),
    ("cuInit=100", "cuInit: CUDA_ERROR_100 (100), words of 100. Check that the nvidia module is loaded"),
    ("cuInit=999", "Check that the nvidia_uvm module is loaded and that /dev/nvidia-uvm exists"),
    ("cuInit=802", "Check that nvidia-fabricmanager runs"),
    ("cuInit=34", "the toolkit's stub"),
    ("cuInit=4711", "cuInit: CUDA_ERROR_4711 (4711), words of 4711"),
    ("cuDriverGetVersion=1", "cuDriverGetVersion: CUDA_ERROR_1 (1)"),
    ("cuDeviceGetCount=3", "cuDeviceGetCount: CUDA_ERROR_3 (3)"),
    ("cuDeviceGet=101", "cuDeviceGet: CUDA_ERROR_101 (101), words of 101. The device number is invalid."),
]


@pytest.mark.parametrize(("trouble", "message"), FATAL)
def test_an_error_before_the_first_gpu_is_the_error_of_the_probe(probe, trouble, message):
    probed = probe(trouble)
    assert message in probed["error"]
    assert probed["error_code"] == int(trouble.partition("=")[2])
    assert probed["passed"] is False
    assert probed["gpus"] == []


ONE_GPU = [
    ("cuDeviceGetName@1=201", "cuDeviceGetName: CUDA_ERROR_201 (201)"),
    ("cuDeviceTotalMem@1=201", "cuDeviceTotalMem: CUDA_ERROR_201 (201)"),
    ("cuDeviceGetUuid@1=201", "cuDeviceGetUuid: CUDA_ERROR_201 (201)"),
    ("cuDevicePrimaryCtxRetain@1=46", "The compute mode is prohibited, or another process uses the GPU exclusively."),
    ("cuDevicePrimaryCtxRetain@1=2", "Other processes use the GPU's memory."),
    ("cuCtxSetCurrent@1=201", "cuCtxSetCurrent: CUDA_ERROR_201 (201)"),
    ("cuMemAlloc@1=2", "cuMemAlloc: CUDA_ERROR_2 (2), words of 2. Other processes use the GPU's memory."),
    ("cuMemcpyHtoD@1=214", "an uncorrectable ECC error. Check the kernel log for Xid"),
    ("cuMemcpyDtoD@1=700", "The kernel accessed an invalid address."),
    ("cuMemcpyDtoH@1=719", "The GPU raised an exception."),
    ("cuModuleLoadDataEx@1=221", "libnvidia-ptxjitcompiler is not installed beside libcuda."),
    ("cuModuleLoadDataEx@1=222", "The driver does not support the kernel's PTX version."),
    ("cuModuleLoadDataEx@1=209", "The driver cannot generate code for this GPU's architecture."),
    ("cuModuleGetFunction@1=500", "cuModuleGetFunction: CUDA_ERROR_500 (500)"),
    ("cuLaunchKernel@1=701", "cuLaunchKernel: CUDA_ERROR_701 (701)"),
    ("cuCtxSynchronize@1=702", "cuCtxSynchronize: CUDA_ERROR_702 (702)"),
    ("cuModuleUnload@1=400", "cuModuleUnload: CUDA_ERROR_400 (400)"),
    ("cuMemFree@1=400", "cuMemFree: CUDA_ERROR_400 (400)"),
    ("cuMemcpyDtoD@1=corrupt", "memory round trip of 1048576 bytes: byte 524288 changed. The memory may be"),
    ("cuLaunchKernel@1=corrupt", "the kernel's result is wrong at element 32768: "),
    ("cuMemcpyHtoD@1=crash", "GPU 1: the driver's library crashed (SIGSEGV)"),
    ("cuLaunchKernel@1=hang", "GPU 1: the driver did not answer within 2 s"),
]


@pytest.mark.parametrize(("trouble", "message"), ONE_GPU)
def test_one_failing_gpu_is_reported_and_the_other_passes(probe, trouble, message):
    probed = probe(trouble, timeout=2.0 if trouble.endswith("hang") else 20.0)
    assert message in results(probed)[1]
    assert results(probed)[0] == "PASS"
    assert probed["passed"] is False
    assert probed["error"] is None


def test_a_changed_byte_of_a_large_copy_is_located(probe):
    probed = probe("cuMemcpyDtoD@1=corrupt", memory_mib=3)
    assert "memory round trip of 3145728 bytes: byte 1572864 changed." in results(probed)[1]


def test_the_largest_memory_check_has_data_that_differs_between_addresses():
    # Random.randbytes() fails from 256 MiB.
    size = 256 * probe_gpu_checks.MIB
    data = probe_gpu_checks.pattern(size)
    assert len(data) == size
    first = data[:4096]
    assert all(
        data[distance : distance + 4096] != first
        for distance in (4096, probe_gpu_checks.MIB, 128 * probe_gpu_checks.MIB)
    )


def test_the_gpus_after_one_that_crashes_are_probed(probe):
    probed = probe("cuMemAlloc@0=crash,cuMemAlloc@2=exit", gpus=None, GPUS=4)
    assert results(probed) == {
        0: "GPU 0: the driver's library crashed (SIGSEGV)",
        1: "PASS",
        2: "GPU 2: the driver's library ended the process without an error message",
        3: "PASS",
    }


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ("cuInit=hang", "cuInit: the driver did not answer within 1 s"),
        ("cuInit=crash", "cuInit: the driver's library crashed (SIGSEGV)"),
        ("cuDeviceGetCount=hang", "counting the GPUs: the driver did not answer within 1 s"),
    ],
)
def test_a_driver_that_hangs_or_crashes_is_reported(probe, trouble, message):
    probed = probe(trouble, timeout=1.0)
    assert message in probed["error"]
    assert probed["passed"] is False


def test_a_library_that_ends_the_process_is_reported(probe):
    probed = probe("cuInit=exit")
    assert probed["passed"] is False
    assert probed["error"] == "cuInit: the driver's library ended the process without an error message"


def test_errors_without_a_text_from_the_library_have_a_name(probe):
    assert probe("cuInit=803", mute=1)["error"].startswith("cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803). libcuda")
    assert probe("cuInit=4711", mute=1)["error"] == "cuInit: unknown error (4711)"


def test_a_host_without_gpus_fails(probe):
    probed = probe(gpus=None, GPUS=0)
    assert (probed["error"], probed["passed"], probed["device_count"]) == ("CUDA lists no GPU", False, 0)


@pytest.mark.parametrize(
    ("selected", "found"),
    [(["1"], [1]), ([SECOND], [1]), ([FIRST.lower()], [0]), (["GPU-aabb"], [0, 1]), (["0", "1"], [0, 1])],
)
def test_gpus_are_selected_by_index_and_uuid(probe, selected, found):
    probed = probe(gpus=selected)
    assert [gpu["index"] for gpu in probed["gpus"]] == found
    assert probed["passed"] is True


@pytest.mark.parametrize(("selected", "index", "uuid"), [("7", 7, None), ("GPU-dead", None, "GPU-dead")])
def test_the_result_of_a_missing_gpu_names_the_listed_gpus(probe, selected, index, uuid):
    probed = probe(gpus=["0", selected])
    missing = next(gpu for gpu in probed["gpus"] if not gpu["passed"])
    assert (missing["index"], missing["uuid"]) == (index, uuid)
    assert missing["result"] == f"CUDA does not list GPU '{selected}'. Listed GPUs: 0 ({FIRST}), 1 ({SECOND})."
    assert probed["passed"] is False


def test_mig_devices_are_probed_one_at_a_time(probe):
    probed = probe(gpus=["MIG-c0ffee", "MIG-nothing"], name="Fake GPU MIG 1g.10gb")
    listed, missing = probed["gpus"]
    assert listed["result"] == "PASS"
    assert listed["uuid"].startswith("MIG-c0ffee00-")
    assert (missing["uuid"], missing["result"]) == (
        "MIG-nothing",
        "CUDA does not list MIG device 'MIG-nothing'. Check the UUID with nvidia-smi -L.",
    )


@pytest.mark.parametrize("trouble", ["cuMemAlloc@0=2", "cuMemAlloc@0=crash"])
def test_a_failing_mig_device_is_named_by_its_uuid(probe, trouble):
    (gpu,) = probe(trouble, gpus=["MIG-c0ffee"], name="Fake GPU MIG 1g.10gb")["gpus"]
    assert gpu["index"] is None
    assert gpu["uuid"].startswith("MIG-c0ffee")
    assert "GPU 0" not in gpu["result"]
    assert gpu["passed"] is False


def test_a_library_with_only_the_first_uuid_function_works(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_GPUS", "1")
    probed = cuda_probe.probe(library=compiled(tmp_path, "-DOLD"), memory_mib=1)
    assert probed["passed"] is True
    assert probed["gpus"][0]["uuid"] == FIRST


def test_a_missing_function_is_named(tmp_path):
    probed = cuda_probe.probe(library=compiled(tmp_path, "-DNO_SYNCHRONIZE"), memory_mib=1)
    assert results(probed)[0] == (
        "libcuda.so.1 has no function cuCtxSynchronize. The driver is too old, or the library is not NVIDIA's."
    )


def test_a_missing_library_is_named(tmp_path):
    missing = str(tmp_path / "libcuda.so.1")
    probed = cuda_probe.probe(library=missing)
    assert probed["error"] == f"library={missing} does not exist. Set it to the path of the driver's libcuda.so.1."


def test_a_driver_root_without_the_library_is_named(tmp_path):
    probed = cuda_probe.probe(driver_root=str(tmp_path))
    assert f"libcuda.so.1 was not found below {tmp_path}. Install the driver's compute libraries" in probed["error"]


def test_the_loaders_error_for_a_broken_library_is_reported(tmp_path):
    broken = tmp_path / "libcuda.so.1"
    broken.write_text("nonsense")
    assert f"libcuda.so.1 could not be loaded: {broken}: " in cuda_probe.probe(library=str(broken))["error"]


@pytest.mark.parametrize(
    "place", ["usr/lib64", "usr/lib/x86_64-linux-gnu/nvidia/current", "usr/local/nvidia/lib64", "lib"]
)
def test_the_library_is_found_below_a_driver_root(library, tmp_path, monkeypatch, place):
    monkeypatch.setenv("FAKE_CUDA_GPUS", "1")
    (tmp_path / place).mkdir(parents=True)
    shutil.copy(library, tmp_path / place)
    probed = cuda_probe.probe(driver_root=str(tmp_path), memory_mib=1)
    assert probed["library"] == str(tmp_path / place / "libcuda.so.1")
    assert probed["passed"] is True


@pytest.mark.parametrize(("trouble", "status"), [("", 0), ("cuInit=100", 1)])
def test_the_program_prints_json_and_needs_the_standard_library_only(library, monkeypatch, trouble, status):
    module = cuda_probe.__name__
    monkeypatch.setenv("FAKE_CUDA_TROUBLE", trouble)
    monkeypatch.setenv("PYTHONPATH", str(Path(cuda_probe.__file__).parents[module.count(".")]))
    # Without site-packages, as in a container without Ansible.
    command = [sys.executable, "-S", "-m", module, "--library", library, "--memory-mib", "1"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == status, done.stderr
    assert json.loads(done.stdout)["passed"] is (status == 0)


@pytest.mark.parametrize("trouble", ["", "cuInit=hang", "cuInit=crash", "cuMemAlloc@0=exit"])
def test_no_child_process_remains(probe, monkeypatch, trouble):
    """Check only the probe's own child processes, because other tests may have started some."""
    fork, forked = os.fork, []

    def recorded_fork():
        forked.append(fork())
        return forked[-1]

    monkeypatch.setattr(os, "fork", recorded_fork)
    probe(trouble, timeout=0.5 if trouble.endswith("hang") else 20.0)
    assert forked
    for pid in forked:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def test_the_matrix_product_is_measured_on_request(probe):
    assert probe()["gpus"][0]["matrix"] is None
    measured = probe(gpus=["1"], matrix=(64, 3))["gpus"][0]["matrix"]
    assert (measured["size"], measured["dtype"], len(measured["seconds"])) == (64, "float32", 3)
    assert measured["tflops"] > 0
    assert measured["note"] == "not comparable with libraries"


def test_a_gpu_with_a_wrong_matrix_product_fails(probe):
    result = probe(gpus=["0"], matrix=(64, 1), WRONG_MATRIX=1)["gpus"][0]
    assert (result["passed"], result["matrix"]) == (False, None)
    assert result["result"].startswith("the matrix product of size 64 is wrong: row 0, column 0 is ")
