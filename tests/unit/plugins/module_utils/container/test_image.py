# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What images ask of the driver and the GPUs."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.image import (
    RequirementError,
    Served,
    check,
    wanted_gpus,
)

A100 = {"uuid": "GPU-a", "arch": "8.0", "brand": "nvidia"}
T4 = {"uuid": "GPU-t", "arch": "7.5", "brand": "tesla"}


def served(cuda="12.2", driver="535.261.03", gpus=(A100,)):
    return Served(cuda=cuda, driver=driver, gpus=gpus)


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
def test_an_image_says_by_itself_whether_it_needs_gpus(labels, env, expected):
    wanted = wanted_gpus(labels, env)
    assert (wanted and wanted[0]) == expected


@pytest.mark.parametrize(
    ("labels", "env", "there"),
    [
        ({}, {}, served()),
        (label("12.2"), {}, served()),
        (label("12.0"), {}, served()),
        (label("7.5"), {}, served(cuda="8.0")),
        (label("11.8.0"), {}, served()),
        (label("99.0"), {}, served(cuda=None)),
        (label("99.0"), {"NVIDIA_DISABLE_REQUIRE": "true"}, served()),
        (label("99.0"), {"NVIDIA_DISABLE_REQUIRE": "1"}, served()),
        ({}, {"NVIDIA_REQUIRE_CUDA": "cuda>=12.2"}, served()),
        ({}, {"NVIDIA_REQUIRE_CUDA": "cuda>=11.0 "}, served()),
        ({}, {"NVIDIA_REQUIRE_CUDA": ""}, served()),
        ({}, {"NVIDIA_REQUIRE_CUDA": "cuda>=99 brand=nvidia,driver>=535,driver<536"}, served()),
        ({}, {"NVIDIA_REQUIRE_DRIVER": "driver>=535.54.03"}, served()),
        ({}, {"NVIDIA_REQUIRE_DRIVER": "driver=535.261.3"}, served()),
        ({}, {"NVIDIA_REQUIRE_DRIVER": "driver!=1"}, served()),
        ({}, {"NVIDIA_REQUIRE_ARCH": "arch>=7.5"}, served(gpus=(A100, T4))),
        ({}, {"NVIDIA_REQUIRE_BRAND": "brand=tesla brand=nvidia"}, served(gpus=(A100, T4))),
        ({}, {"NVIDIA_REQUIRE_BRAND": "brand=unknown"}, served(gpus=({"uuid": "GPU-x"},))),
        ({}, {"NVIDIA_REQUIRE_JETPACK": "csv-mounts=all"}, served()),
        ({}, {"CUDA_VERSION": "8.0.61"}, served()),
        ({}, {"NVIDIA_REQUIRE_ARCH": "arch>=10"}, served(gpus=({"uuid": "GPU-x"},))),
    ],
)
def test_what_is_served_passes_without_a_word(labels, env, there):
    assert check(labels, env, there) == []


@pytest.mark.parametrize(
    ("labels", "env", "there", "words"),
    [
        (label("7.5"), {}, served(cuda="7.0"), "unsupported CUDA version: driver 7.0 < image 7.5"),
        (label("13.0"), {}, served(), "unsupported CUDA version: driver 12.2 < image 13.0. Upgrade the driver"),
        (label("10.2"), {}, served(cuda="10.1"), "unsupported CUDA version: driver 10.1 < image 10.2"),
        (label("12"), {}, served(cuda="11.8"), "unsupported CUDA version: driver 11.8 < image 12.0"),
        (label("99.0"), {"NVIDIA_DISABLE_REQUIRE": "no"}, served(), "driver 12.2 < image 99.0"),
        (label("new"), {}, served(), "com.nvidia.cuda.version=new is no version"),
        (
            {},
            {"NVIDIA_REQUIRE_CUDA": "cuda>=13.0"},
            served(),
            "unsupported CUDA version: driver 12.2 < image 13.0 (NVIDIA_REQUIRE_CUDA=cuda>=13.0)",
        ),
        (
            {},
            {"NVIDIA_REQUIRE_CUDA": "cuda>=13.0 brand=tesla,driver>=535"},
            served(),
            "unsupported CUDA version: driver 12.2 < image 13.0",
        ),
        ({}, {"CUDA_VERSION": "10.2.89"}, served(cuda="10.1"), "driver 10.1 < image 10.2 (CUDA_VERSION=cuda>=10.2)"),
        (
            {},
            {"NVIDIA_REQUIRE_DRIVER": "driver>=550"},
            served(),
            "unsatisfied requirement of the image for GPU GPU-a: NVIDIA_REQUIRE_DRIVER=driver>=550; there is cuda "
            "12.2, driver 535.261.03, arch 8.0, brand nvidia",
        ),
        ({}, {"NVIDIA_REQUIRE_ARCH": "arch>=8.0"}, served(gpus=(A100, T4)), "for GPU GPU-t: NVIDIA_REQUIRE_ARCH"),
        (
            {},
            {"NVIDIA_REQUIRE_A": "driver>=1", "NVIDIA_REQUIRE_B": "driver<500"},
            served(),
            "NVIDIA_REQUIRE_B=driver<500",
        ),
        # Not for a newer CUDA than the driver's: another driver is no way out.
        *(
            (
                {},
                {"NVIDIA_REQUIRE_CUDA": wanted},
                served(),
                f"unsatisfied requirement of the image for GPU GPU-a: NVIDIA_REQUIRE_CUDA={wanted}; there is cuda 12.2",
            )
            for wanted in ("cuda=11.8", "cuda=12.1", "cuda>12.2", "cuda>12.2.0", "cuda<12.0", "cuda!=12.2")
        ),
        (
            {},
            {"NVIDIA_REQUIRE_CUDA": "cuda=11.8 cuda>=13.0"},
            served(),
            "unsupported CUDA version: driver 12.2 < image 13.0 (NVIDIA_REQUIRE_CUDA=cuda=11.8 cuda>=13.0)",
        ),
        ({}, {"NVIDIA_REQUIRE_CUDA": "cuda>=x"}, served(), "NVIDIA_REQUIRE_CUDA=cuda>=x: 'cuda>=x' is no condition"),
        ({}, {"NVIDIA_REQUIRE_CUDA": "rocm>=6"}, served(), "'rocm>=6' is no condition on cuda, driver, arch or brand"),
        ({}, {"NVIDIA_REQUIRE_CUDA": "cuda"}, served(), "'cuda' is no condition"),
        ({}, {"NVIDIA_REQUIRE_BRAND": "brand>tesla"}, served(), "a brand can only be compared with = and !="),
        ({}, {"NVIDIA_REQUIRE_BRAND": "brand!=nvidia"}, served(), "NVIDIA_REQUIRE_BRAND=brand!=nvidia"),
    ],
)
def test_what_is_not_served_is_refused_by_name_and_value(labels, env, there, words):
    with pytest.raises(RequirementError) as error:
        check(labels, env, there)
    assert words in str(error.value)
    assert "brand" in str(error.value) or "NVIDIA_DISABLE_REQUIRE: 'true' in env" in str(error.value)


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
def test_within_a_major_version_the_image_runs_and_the_user_is_told(labels, env):
    (remark,) = check(labels, env, served(gpus=(A100, T4)))
    assert "made for CUDA 12.9" in remark
    assert "the driver serves 12.2: it runs by minor-version compatibility" in remark


def test_the_vendors_runtime_takes_requirements_to_the_letter():
    with pytest.raises(RequirementError, match=r"unsupported CUDA version: driver 12\.2 < image 12\.9"):
        check({}, {"NVIDIA_REQUIRE_CUDA": "cuda>=12.9"}, served(), enforced=True)
    # It does not read the label, so that stays a remark.
    assert len(check(label("12.9"), {}, served(), enforced=True)) == 1
