# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia_cuda_probe: option checks and failure messages."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.probe_gpu_checks import empty_result
from ansible_collections.gpufleet.hosts.plugins.modules import nvidia_cuda_probe

GOOD = {
    "gpus": None,
    "memory_mib": 8,
    "matrix_size": None,
    "matrix_repetitions": 10,
    "timeout": 60.0,
    "driver_root": "/",
    "library": None,
}


@pytest.mark.parametrize(
    "gpus",
    [None, ["0", "12"], ["GPU-5a6f3c1e"], ["GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61"], ["MIG-5a6f3c1e-2d7b"]],
)
def test_valid_gpus_are_accepted(gpus):
    assert nvidia_cuda_probe.option_error({**GOOD, "gpus": gpus}) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus": []}, "gpus is an empty list. Name a GPU, or omit the option to probe all GPUs."),
        ({"gpus": ["first"]}, "gpus contains 'first', which does not identify a GPU. Use an index (0)"),
        ({"gpus": ["-1"]}, "gpus contains '-1', which does not identify a GPU."),
        ({"gpus": ["GPU-"]}, "gpus contains 'GPU-', which does not identify a GPU."),
        ({"memory_mib": 0}, "memory_mib=0 is invalid. Use a value from 1 to 16384."),
        ({"memory_mib": 20000}, "memory_mib=20000 is invalid."),
        ({"matrix_size": 0}, "matrix_size=0 is invalid. Use a multiple of 64 from 64 to 16384."),
        ({"matrix_size": 100}, "matrix_size=100 is invalid. Use a multiple of 64 from 64 to 16384."),
        ({"matrix_size": 32768}, "matrix_size=32768 is invalid."),
        ({"matrix_size": 64, "matrix_repetitions": 0}, "matrix_repetitions=0 is invalid. Use a value from 1 to 1000."),
        ({"timeout": 0.0}, "timeout=0 is invalid. Set a number of seconds above 0"),
        ({"timeout": float("nan")}, "timeout=nan is invalid. Set a number of seconds above 0"),
        ({"timeout": float("inf")}, "timeout=inf is invalid. Set a number of seconds above 0 and at most 3600"),
        ({"timeout": 1e300}, "timeout=1e+300 is invalid"),
        ({"timeout": 3600.5}, "timeout=3600.5 is invalid"),
        ({"driver_root": "/nonexistent"}, "driver_root=/nonexistent is not a directory"),
        ({"driver_root": "driver"}, "driver_root=driver is not an absolute path"),
    ],
)
def test_the_message_for_an_invalid_option_has_its_value(options, message):
    assert message in nvidia_cuda_probe.option_error({**GOOD, **options})


def test_the_failure_message_names_the_failed_gpus():
    gpus = [
        {**empty_result(0), "passed": True, "result": "PASS"},
        {**empty_result(1), "result": "cuMemAlloc: out of memory"},
        {**empty_result(), "uuid": "GPU-dead", "result": "CUDA does not list GPU 'GPU-dead'."},
        {**empty_result(), "uuid": "MIG-c0ffee", "result": "cuMemAlloc: out of memory"},
    ]
    assert nvidia_cuda_probe.failure_message({"error": None, "gpus": gpus}) == (
        "3 of 4 GPUs did not pass. GPU 1: cuMemAlloc: out of memory | GPU GPU-dead: CUDA does not list GPU 'GPU-dead'."
        " | MIG-c0ffee: cuMemAlloc: out of memory"
    )


def test_the_failure_message_has_the_error_of_the_probe():
    result = {"error": "cuInit: CUDA_ERROR_NO_DEVICE (100)", "gpus": []}
    assert nvidia_cuda_probe.failure_message(result) == "CUDA is not usable: cuInit: CUDA_ERROR_NO_DEVICE (100)"
