# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of the containers, with the simulated NVML, and the image that contains its Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import (
    method_results,
    program_in_container,
    program_text,
    proof_image,
)
from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import NvmlLab

FLAGS = ("-I", "-S", "-B")
ADDRESSES = """
import pynvml
pynvml.nvmlInit()
for index in range(2):
    print(pynvml.nvmlDeviceGetPciInfo(pynvml.nvmlDeviceGetHandleByIndex(index)).busIdLegacy)
"""


def run(*options: str, python: str = sys.executable, env=None) -> tuple[int, str]:
    argv = [python, *FLAGS, "-c", program_text.program(), *options]
    done = subprocess.run(argv, env=env, text=True, capture_output=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_program_shows_the_gpus_and_mig_devices_of_nvml(tmp_path):
    gpus = [{"model": "A100-SXM4-40GB", "count": 2, "mig": [["3g.20gb", "1g.5gb"], None]}]
    lab = NvmlLab(tmp_path, {"gpus": gpus})
    seen = method_results.read(*run("--no-cuda", env=lab.env))
    assert (seen.error, len(seen.gpus), len(seen.uuids())) == (None, 2, 3)
    assert sorted(uuid[:4] for uuid in seen.uuids()) == ["GPU-", "MIG-", "MIG-"]
    units = seen.inventory().units
    assert {unit.index for unit in units} == {"0:0", "0:1", "1"}
    assert all(None not in unit.partition for unit in units if unit.is_partition)
    assert [gpu["minor"] for gpu in seen.gpus] == [0, 1]
    # Without the addresses, CDI devices with DRM nodes cannot be compared with the host.
    addresses = lab.python(ADDRESSES).lower().split()
    assert [unit.gpu.pci_bus_id for unit in units] == [addresses[0], addresses[0], addresses[1]]


def test_lost_gpu_is_left_out_on_both_sides(tmp_path):
    lab = NvmlLab(tmp_path, {"gpus": [{"model": "T4"}, {"model": "T4", "health": "lost"}]})
    seen = method_results.read(*run("--no-cuda", env=lab.env))
    assert (seen.error, [gpu["index"] for gpu in seen.gpus], len(seen.uuids())) == (None, [0], 1)


def test_failures_of_nvml_are_the_result(tmp_path):
    lab = NvmlLab(tmp_path, {"gpus": [{"model": "T4"}], "driver": {"version": "550.1", "loaded": False}})
    assert method_results.read(*run(env=lab.env)).error.startswith("nvmlInit_v2: Driver Not Loaded (9)")
    without = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(tmp_path)}
    assert "libnvidia-ml.so.1: cannot open shared object file" in method_results.read(*run(env=without)).error


def test_machine_without_libcuda_has_not_failed(tmp_path):
    lab = NvmlLab(tmp_path, {"gpus": [{"model": "T4"}]})
    cuda = method_results.read(*run(env=lab.env)).cuda
    assert (cuda["passed"], cuda["missing"]) == (False, True)
    assert "libcuda.so.1" in cuda["error"]


@pytest.mark.parametrize(
    ("result", "missing", "codes"),
    [
        ({"library": "libcuda.so.1", "error": "cuInit: CUDA_ERROR_NO_DEVICE (100)", "error_code": 100}, False, [100]),
        ({"library": "libcuda.so.1", "error": "libcuda.so.1 has no function cuInit. …"}, True, [None]),
        ({"library": "libcuda.so.1", "error": "cuInit: CUDA_ERROR_STUB_LIBRARY (34)", "error_code": 34}, True, [34]),
        (
            {
                "library": "libcuda.so.1",
                "gpus": [{"passed": False, "uuid": "GPU-1", "index": 0, "result": "no memory", "error_code": 2}],
            },
            False,
            [2],
        ),
    ],
)
def test_failed_cuda_is_told_from_a_missing_libcuda(result, missing, codes):
    whole = {"gpus": [], "passed": False, "error": None, "error_code": None, **result}
    found = program_in_container.cuda(["GPU-1"], run=lambda gpus: {**whole, "asked": gpus})
    assert (found["missing"], found["codes"], bool(found["error"])) == (missing, codes, True)


# --- the image ---


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, dict, str]:
    """Unpack the image of this Python."""
    directory = tmp_path_factory.mktemp("image")
    status, output = run("--files")
    assert status == 0, output
    needed = json.loads(output.split(program_in_container.MARK)[1])
    archive, name = proof_image.write(
        proof_image.with_loader_names(needed["paths"]), str(directory), os.uname().machine
    )
    with tarfile.open(archive) as outer:
        outer.extractall(directory / "outer")
    with tarfile.open(directory / "outer/layer.tar") as layer:
        layer.extractall(directory / "root")
    return directory, needed, name


def test_engines_can_load_the_image(built):
    directory, _needed, name = built
    (manifest,) = json.loads((directory / "outer/manifest.json").read_text())
    config = json.loads((directory / "outer" / manifest["Config"]).read_text())
    (digest,) = config["rootfs"]["diff_ids"]
    assert manifest["RepoTags"] == [name]
    assert name == f"{proof_image.REPOSITORY}:{digest[len('sha256:') :][:12]}"
    # Without mount points, a runtime cannot start a container.
    assert {"dev", "proc", "sys", "tmp", "etc"} <= {path.name for path in (directory / "root").iterdir()}


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot requires root")
def test_program_runs_in_the_image(built):
    directory, needed, _name = built
    argv = ["/usr/sbin/chroot", str(directory / "root"), needed["executable"], *FLAGS, "-c", program_text.program()]
    done = subprocess.run(argv, env={}, text=True, capture_output=True, check=False, timeout=60)
    assert method_results.read(done.returncode, done.stdout + done.stderr).error.startswith(
        "libnvidia-ml.so.1: cannot open"
    )


def test_links_stay_links(tmp_path):
    (tmp_path / "usr/lib/arch").mkdir(parents=True)
    (tmp_path / "usr/lib/arch/libz.so.1.2").write_text("z")
    (tmp_path / "usr/lib/arch/libz.so.1").symlink_to("libz.so.1.2")
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "usr/lib/loader").symlink_to("/lib/arch/../arch/libz.so.1")
    found = proof_image.entries(["/lib/loader"], str(tmp_path))
    assert {name: entry.target for name, entry in found.items()} == {
        "lib": "usr/lib",
        "usr/lib/loader": "/lib/arch/../arch/libz.so.1",
        "usr/lib/arch/libz.so.1": "libz.so.1.2",
        "usr/lib/arch/libz.so.1.2": None,
    }
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(proof_image.ImageError, match="/loop has too many symbolic links"):
        proof_image.entries(["/loop"], str(tmp_path))


def test_missing_file_is_named(tmp_path):
    with pytest.raises(proof_image.ImageError, match="/gone: No such file or directory"):
        proof_image.write(["/gone"], str(tmp_path), "x86_64", str(tmp_path))
