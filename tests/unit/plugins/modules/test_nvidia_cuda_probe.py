# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia_cuda_probe: what it refuses, and what it says of GPUs that do not pass."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import libcuda
from ansible_collections.gpufleet.hosts.plugins.modules import nvidia_cuda_probe

GOOD = {"gpus": None, "memory_mib": 8, "timeout": 60.0, "driver_root": "/", "library": None}


@pytest.mark.parametrize(
    "gpus",
    [None, ["0", "12"], ["GPU-5a6f3c1e"], ["GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61"], ["MIG-5a6f3c1e-2d7b"]],
)
def test_what_can_be_asked_for(gpus):
    assert nvidia_cuda_probe.objection({**GOOD, "gpus": gpus}) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gpus": []}, "gpus is an empty list: name a GPU, or leave the option out to probe all of them"),
        ({"gpus": ["first"]}, "gpus: 'first' is neither an index (0), nor a GPU's UUID"),
        ({"gpus": ["-1"]}, "gpus: '-1' is neither"),
        ({"gpus": ["GPU-"]}, "gpus: 'GPU-' is neither"),
        ({"memory_mib": 0}, "memory_mib=0 is not between 1 and 16384"),
        ({"memory_mib": 20000}, "memory_mib=20000 is not between 1 and 16384"),
        ({"timeout": 0.0}, "timeout=0 is not a number of seconds above 0"),
        ({"timeout": float("nan")}, "timeout=nan is not a number of seconds above 0"),
        ({"timeout": float("inf")}, "timeout=inf is not a number of seconds above 0 and up to 3600"),
        ({"timeout": 1e300}, "timeout=1e+300 is not a number"),
        ({"timeout": 3600.5}, "timeout=3600.5 is not a number"),
        ({"driver_root": "/nonexistent"}, "driver_root=/nonexistent is not a directory"),
        ({"driver_root": "driver"}, "driver_root=driver is not an absolute path"),
    ],
)
def test_what_cannot_be_asked_for_is_told_with_its_value(options, words):
    assert words in nvidia_cuda_probe.objection({**GOOD, **options})


def test_gpus_that_do_not_pass_are_named():
    gpus = [
        {**libcuda.blank(0), "passed": True, "result": "PASS"},
        {**libcuda.blank(1), "result": "cuMemAlloc: out of memory"},
        {**libcuda.blank(), "uuid": "GPU-dead", "result": "CUDA shows no GPU 'GPU-dead'"},
    ]
    assert nvidia_cuda_probe.complaint({"error": None, "gpus": gpus}) == (
        "2 of 3 GPUs did not pass. GPU 1: cuMemAlloc: out of memory | GPU GPU-dead: CUDA shows no GPU 'GPU-dead'"
    )


def test_what_stops_the_probe_is_said_first():
    result = {"error": "cuInit: CUDA_ERROR_NO_DEVICE (100)", "gpus": []}
    assert nvidia_cuda_probe.complaint(result) == "CUDA cannot be used: cuInit: CUDA_ERROR_NO_DEVICE (100)"
