# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of the benchmark, started as in a container, with small stand-ins for frameworks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark import measuring_program

SOURCE = Path(measuring_program.__file__).read_text(encoding="utf-8")
GPUS = ["GPU-aaaa", "GPU-bbbb"]

# A PyTorch whose matrices have one element, which stands for all. GPU 1 fails in the way of FAKE_TORCH.
TORCH = """
import os, signal, time
__version__ = "2.99"
class version: cuda = "13.1"
class device:
    def __init__(self, kind, index=None):
        self.index = index
class backends:
    class cuda:
        class matmul: pass
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")))
float32 = float16 = "single"
float64 = "double"
def get_num_threads():
    return 3
class Matrix:
    def __init__(self, size, index):
        self.size, self.index = size, index
    def to(self, kind):
        return self
    def sum(self, axis=0, dtype=None):
        return self
    def cpu(self):
        return self
    def __matmul__(self, other):
        trouble = os.environ.get("FAKE_TORCH") if self.index == 1 else None
        if trouble == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if trouble == "hang":
            time.sleep(60)
        if trouble == "memory":
            raise RuntimeError("out of memory")
        return Number(self.size)
class Number(Matrix):
    def __init__(self, size):
        self.size = size
    def sum(self, axis=0, dtype=None):
        return Number(self.size * (0.5 if os.environ.get("FAKE_TORCH") == "sum" else 1))
    def __float__(self):
        return float(self.size)
def rand(rows, columns, device):
    return Matrix(rows, device.index)
print("noise of a framework on standard output")
"""


def run(tmp_path, request, modules=None, **environment):
    for name, text in (modules or {}).items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-S", "-B", "-", json.dumps(request)],
        input=SOURCE,
        env={**os.environ, "PYTHONPATH": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


def shown(document):
    return {
        (len(one["gpus"]), one["size"], one["dtype"]): one.get("error") or len(one["seconds"])
        for one in document["measurements"]
    }


def test_python_alone_measures_what_it_can_and_says_why_there_is_no_gpu(tmp_path):
    document = run(tmp_path, {"sizes": [16, 32], "dtypes": ["float32", "float64"], "gpus": GPUS, "repetitions": 3})
    assert shown(document) == {(0, 16, "float64"): 3, (0, 32, "float64"): 3}
    assert document["gpu_reason"] == "python cannot use GPUs. Use PyTorch, TensorFlow or CuPy."
    assert (document["framework"], document["threads"]) == ("python", 1)
    assert document["python"] == sys.version.split()[0]
    assert document["problems"] == [
        "there is no framework, so Python alone measured float64 up to size 256. "
        "Set benchmark_image to an image with PyTorch, TensorFlow or CuPy."
    ]
    assert all(second > 0 for second in document["measurements"][0]["seconds"])


def test_python_alone_does_not_try_large_matrices():
    settings = {**measuring_program.DEFAULTS, "framework": "python", "sizes": [64, 4096, 8192]}
    assert measuring_program.for_python_alone(settings)["sizes"] == [64, 256]
    assert measuring_program.for_python_alone({**settings, "framework": "torch"})["sizes"] == [64, 4096, 8192]


def test_a_framework_measures_each_gpu_then_all_of_them_then_the_cpu(tmp_path):
    document = run(tmp_path, {"sizes": [64], "gpus": GPUS, "tf32": True, "repetitions": 2}, {"torch": TORCH})
    assert (document["framework"], document["framework_version"], document["cuda"]) == ("torch", "2.99", "13.1")
    assert document["threads"] == 3
    assert [(one["device"], one["gpus"], one["tf32"]) for one in document["measurements"]] == [
        ("gpu", ["GPU-aaaa"], True),
        ("gpu", ["GPU-bbbb"], True),
        ("gpu", GPUS, True),
        ("cpu", [], None),
    ]
    assert {len(one["seconds"]) for one in document["measurements"]} == {2}
    assert document["time_limit_reached"] is False


@pytest.mark.parametrize(
    ("trouble", "error"), [("crash", "the process ended with SIGSEGV"), ("memory", "RuntimeError: out of memory")]
)
def test_a_gpu_that_fails_does_not_end_the_benchmark(tmp_path, trouble, error):
    request = {"sizes": [64], "dtypes": ["float32"], "gpus": GPUS}
    document = run(tmp_path, request, {"torch": TORCH}, FAKE_TORCH=trouble)
    both = (2, 64, "float32")
    assert [one.get("error") for one in document["measurements"]] == [None, error, error, None], shown(document)
    assert shown(document)[both] == error


def test_the_time_limit_ends_a_framework_that_hangs(tmp_path):
    started = time.monotonic()
    request = {"sizes": [64], "gpus": GPUS, "time_limit": 2}
    document = run(tmp_path, request, {"torch": TORCH}, FAKE_TORCH="hang")
    assert time.monotonic() - started < 50
    errors = [one.get("error") for one in document["measurements"]]
    assert errors == [None, *["not finished within 2 s"] * 3]
    assert document["time_limit_reached"] is True


def test_a_broken_framework_is_named_and_the_next_one_is_used(tmp_path):
    modules = {"torch": "raise OSError('libcudart.so.12: cannot open shared object file')"}
    document = run(tmp_path, {"sizes": [16], "dtypes": ["float64"]}, modules)
    assert document["framework"] == "python"
    assert document["problems"] == [
        "torch cannot be imported: OSError: libcudart.so.12: cannot open shared object file"
    ]


def test_only_the_requested_framework_is_used(tmp_path):
    document = run(tmp_path, {"framework": "torch"})
    assert (document["framework"], document["measurements"]) == (None, [])


def test_a_framework_that_ends_the_process_while_it_is_loaded_is_reported(tmp_path):
    document = run(tmp_path, {}, {"torch": "import os; os.kill(os.getpid(), 11)"})
    assert (document["framework"], document["measurements"]) == (None, [])
    assert document["problems"] == ["the framework ended the process with SIGSEGV"]


def test_a_wrong_sum_is_an_error(tmp_path):
    document = run(tmp_path, {"sizes": [64]}, {"torch": TORCH}, FAKE_TORCH="sum")
    assert shown(document) == {(0, 64, "float32"): "the sum of the product is 32 instead of 64"}
