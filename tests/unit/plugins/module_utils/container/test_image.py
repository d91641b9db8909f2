# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU requests and requirements of images."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.image import (
    RequirementError,
    Support,
    check_requirements,
    requested_gpus,
)

A100 = {"uuid": "GPU-a", "arch": "8.0", "brand": "nvidia"}
T4 = {"uuid": "GPU-t", "arch": "7.5", "brand": "tesla"}


def support(cuda="12.2", driver="535.261.03", gpus=(A100,)):
    return Support(cuda=cuda, driver=driver, gpus=gpus)


def label(version):
    return {"com.nvidia.cuda.version": version}


@pytest.mark.parametrize(
    ("labels", "env", "expected"),
    [
        ({}, {}, None),
        ({"com.nvidia.volumes.needed": ""}, {}, None),
        ({"com.nvidia.cuda.version": "12.0"}, {}, None),
        ({}, {"NVIDIA_VISIBLE_DEVICES": "void"}, None),
        ({}, {"NVIDIA_VISIBLE_DEVICES": "0, void"}, None),
        ({}, {"NVIDIA_VISIBLE_DEVICES": "none"}, None),
        ({}, {"NVIDIA_VISIBLE_DEVICES": ""}, None),
        ({}, {"CUDA_VERSION": "12.0", "NVIDIA_REQUIRE_CUDA": "cuda>=12.0"}, None),
        ({"com.nvidia.volumes.needed": "nvidia_driver"}, {}, "all"),
        ({}, {"NVIDIA_VISIBLE_DEVICES": "all"}, "all"),
        ({}, {"NVIDIA_VISIBLE_DEVICES": "0,1"}, "0,1"),
        ({}, {"CUDA_VERSION": "8.0.61"}, "all"),
    ],
)
def test_gpu_requests_of_images_are_read(labels, env, expected):
    requested = requested_gpus(labels, env)
    assert (requested and requested[0]) == expected


@pytest.mark.parametrize(
    ("labels", "env", "supported"),
    [
        ({}, {}, support()),
        (label("12.2"), {}, support()),
        (label("12.0"), {}, support()),
        (label("7.5"), {}, support(cuda="8.0")),
        (label("11.8.0"), {}, support()),
        (label("99.0"), {}, support(cuda=None)),
        (label("99.0"), {"NVIDIA_DISABLE_REQUIRE": "true"}, support()),
        (label("99.0"), {"NVIDIA_DISABLE_REQUIRE": "1"}, support()),
        ({}, {"NVIDIA_REQUIRE_CUDA": "cuda>=12.2"}, support()),
        ({}, {"NVIDIA_REQUIRE_CUDA": "cuda>=11.0 "}, support()),
        ({}, {"NVIDIA_REQUIRE_CUDA": ""}, support()),
        ({}, {"NVIDIA_REQUIRE_CUDA": "cuda>=99 brand=nvidia,driver>=535,driver<536"}, support()),
        ({}, {"NVIDIA_REQUIRE_DRIVER": "driver>=535.54.03"}, support()),
        ({}, {"NVIDIA_REQUIRE_DRIVER": "driver=535.261.3"}, support()),
        ({}, {"NVIDIA_REQUIRE_DRIVER": "driver!=1"}, support()),
        ({}, {"NVIDIA_REQUIRE_ARCH": "arch>=7.5"}, support(gpus=(A100, T4))),
        ({}, {"NVIDIA_REQUIRE_BRAND": "brand=tesla brand=nvidia"}, support(gpus=(A100, T4))),
        ({}, {"NVIDIA_REQUIRE_BRAND": "brand=unknown"}, support(gpus=({"uuid": "GPU-x"},))),
        ({}, {"NVIDIA_REQUIRE_JETPACK": "csv-mounts=all"}, support()),
        ({}, {"CUDA_VERSION": "8.0.61"}, support()),
        ({}, {"NVIDIA_REQUIRE_ARCH": "arch>=10"}, support(gpus=({"uuid": "GPU-x"},))),
    ],
)
def test_met_requirements_cause_no_warning(labels, env, supported):
    assert check_requirements(labels, env, supported) == []


@pytest.mark.parametrize(
    ("labels", "env", "supported", "words"),
    [
        (label("7.5"), {}, support(cuda="7.0"), "unsupported CUDA version: driver 7.0 < image 7.5"),
        (label("13.0"), {}, support(), "unsupported CUDA version: driver 12.2 < image 13.0. Upgrade the driver"),
        (label("10.2"), {}, support(cuda="10.1"), "unsupported CUDA version: driver 10.1 < image 10.2"),
        (label("12"), {}, support(cuda="11.8"), "unsupported CUDA version: driver 11.8 < image 12.0"),
        (label("99.0"), {"NVIDIA_DISABLE_REQUIRE": "no"}, support(), "driver 12.2 < image 99.0"),
        (label("new"), {}, support(), "com.nvidia.cuda.version=new is not a version"),
        (
            {},
            {"NVIDIA_REQUIRE_CUDA": "cuda>=13.0"},
            support(),
            "unsupported CUDA version: driver 12.2 < image 13.0 (NVIDIA_REQUIRE_CUDA=cuda>=13.0)",
        ),
        (
            {},
            {"NVIDIA_REQUIRE_CUDA": "cuda>=13.0 brand=tesla,driver>=535"},
            support(),
            "unsupported CUDA version: driver 12.2 < image 13.0",
        ),
        ({}, {"CUDA_VERSION": "10.2.89"}, support(cuda="10.1"), "driver 10.1 < image 10.2 (CUDA_VERSION=cuda>=10.2)"),
        (
            {},
            {"NVIDIA_REQUIRE_DRIVER": "driver>=550"},
            support(),
            "GPU GPU-a does not meet the image's requirement NVIDIA_REQUIRE_DRIVER=driver>=550: it has cuda "
            "12.2, driver 535.261.03, arch 8.0, brand nvidia",
        ),
        (
            {},
            {"NVIDIA_REQUIRE_ARCH": "arch>=8.0"},
            support(gpus=(A100, T4)),
            "GPU GPU-t does not meet the image's requirement NVIDIA_REQUIRE_ARCH",
        ),
        (
            {},
            {"NVIDIA_REQUIRE_A": "driver>=1", "NVIDIA_REQUIRE_B": "driver<500"},
            support(),
            "NVIDIA_REQUIRE_B=driver<500",
        ),
        # These require no newer CUDA version, so a driver upgrade would not help.
        *(
            (
                {},
                {"NVIDIA_REQUIRE_CUDA": wanted},
                support(),
                f"GPU GPU-a does not meet the image's requirement NVIDIA_REQUIRE_CUDA={wanted}: it has cuda 12.2",
            )
            for wanted in ("cuda=11.8", "cuda=12.1", "cuda>12.2", "cuda>12.2.0", "cuda<12.0", "cuda!=12.2")
        ),
        (
            {},
            {"NVIDIA_REQUIRE_CUDA": "cuda=11.8 cuda>=13.0"},
            support(),
            "unsupported CUDA version: driver 12.2 < image 13.0 (NVIDIA_REQUIRE_CUDA=cuda=11.8 cuda>=13.0)",
        ),
        (
            {},
            {"NVIDIA_REQUIRE_CUDA": "cuda>=x"},
            support(),
            "NVIDIA_REQUIRE_CUDA=cuda>=x: 'cuda>=x' is not a condition",
        ),
        (
            {},
            {"NVIDIA_REQUIRE_CUDA": "rocm>=6"},
            support(),
            "'rocm>=6' is not a condition on cuda, driver, arch or brand",
        ),
        ({}, {"NVIDIA_REQUIRE_CUDA": "cuda"}, support(), "'cuda' is not a condition"),
        ({}, {"NVIDIA_REQUIRE_BRAND": "brand>tesla"}, support(), "a brand supports only = and !="),
        ({}, {"NVIDIA_REQUIRE_BRAND": "brand!=nvidia"}, support(), "NVIDIA_REQUIRE_BRAND=brand!=nvidia"),
    ],
)
def test_unmet_requirements_are_refused_with_name_and_value(labels, env, supported, words):
    with pytest.raises(RequirementError) as error:
        check_requirements(labels, env, supported)
    assert words in str(error.value)
    assert "NVIDIA_DISABLE_REQUIRE: 'true' in env" in str(error.value)


@pytest.mark.parametrize(
    ("labels", "env"),
    [
        (label("12.9"), {}),
        ({}, {"NVIDIA_REQUIRE_CUDA": "cuda>=12.9"}),
        ({}, {"NVIDIA_REQUIRE_CUDA": "cuda=12.9"}),
        ({}, {"NVIDIA_REQUIRE_CUDA": "cuda>=11.0,cuda>=12.9,cuda<13.0"}),
        ({}, {"CUDA_VERSION": "12.9.1"}),
    ],
)
def test_newer_minor_version_of_cuda_causes_a_warning(labels, env):
    (warning,) = check_requirements(labels, env, support(gpus=(A100, T4)))
    assert "built for CUDA 12.9" in warning
    assert "the driver supports 12.2. With minor-version compatibility" in warning


def test_nvidias_runtime_enforces_requirements_exactly():
    with pytest.raises(RequirementError, match=r"unsupported CUDA version: driver 12\.2 < image 12\.9"):
        check_requirements({}, {"NVIDIA_REQUIRE_CUDA": "cuda>=12.9"}, support(), enforced=True)
    # The runtime does not read the label, so the label only causes a warning.
    assert len(check_requirements(label("12.9"), {}, support(), enforced=True)) == 1
