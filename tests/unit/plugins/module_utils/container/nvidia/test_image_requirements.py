# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU requests and requirements of images."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.image_requirements import (
    HOOK,
    NOBODY,
    Support,
    check_requirements,
    image_brand,
    requested_gpus,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import RequirementError

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
    assert check_requirements(labels, env, supported).warnings == ()


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
    (warning,) = check_requirements(labels, env, support(gpus=(A100, T4))).warnings
    assert "built for CUDA 12.9" in warning
    assert "the driver supports 12.2. With minor-version compatibility" in warning


# The requirement of NVIDIA's image of CUDA 13.1, shortened.
IMAGE_13 = "cuda>=13.1 " + " ".join(
    f"brand={brand},driver>={branch},driver<{branch + 1}"
    for branch in (535, 550, 570)
    for brand in (
        "unknown",
        "grid",
        "tesla",
        "nvidia",
        "quadrortx",
        "nvidiartx",
        "vapps",
        "vpc",
        "vcs",
        "vws",
        "cloudgaming",
    )
)
IMAGE_12 = "cuda>=12.8 brand=tesla,driver>=535,driver<536 brand=nvidiartx,driver>=535,driver<536"
RTX = {"uuid": "GPU-r", "arch": "8.9", "brand": "nvidiartx"}


@pytest.mark.parametrize(
    ("expression", "supported", "needs_compat"),
    [
        (IMAGE_13, support(), True),
        (IMAGE_13, support(gpus=(A100, T4)), True),
        (IMAGE_13, support(cuda="12.8", driver="570.195.03"), True),
        # The libraries of the driver are newer than those of the image.
        (IMAGE_13, support(cuda="13.2", driver="595.45"), False),
        # The same major version: the package is better than minor-version compatibility.
        (IMAGE_12, support(gpus=(T4,)), True),
        ("driver>=535", support(), False),
        ("cuda>=12.0 driver>=600", support(), False),
    ],
)
def test_compatibility_package_is_required_only_for_a_newer_cuda(expression, supported, needs_compat):
    verdict = check_requirements({}, {"NVIDIA_REQUIRE_CUDA": expression}, supported)
    assert (verdict.warnings, verdict.needs_compat) == ((), needs_compat)


def test_compatibility_package_satisfies_the_label():
    env = {"NVIDIA_REQUIRE_CUDA": IMAGE_13}
    assert check_requirements(label("13.1"), env, support()).needs_compat


@pytest.mark.parametrize(
    ("expression", "supported", "words"),
    [
        (IMAGE_13, support(gpus=(RTX,)), "supports only on data-center GPUs. GPU GPU-r has brand nvidiartx"),
        (IMAGE_13, support(gpus=(A100, RTX)), "GPU GPU-r has brand nvidiartx"),
        (IMAGE_13, support(gpus=({"uuid": "GPU-v", "brand": image_brand("nvidia_vws")},)), "has brand vws"),
        (IMAGE_13, support(gpus=({"uuid": "GPU-x"},)), "has brand unknown"),
        # The branch of the driver is not in the list.
        (IMAGE_13, support(cuda="12.4", driver="545.23.08"), "unsupported CUDA version: driver 12.4 < image 13.1"),
    ],
)
def test_compatibility_package_is_refused_where_it_is_not_supported(expression, supported, words):
    with pytest.raises(RequirementError) as error:
        check_requirements({}, {"NVIDIA_REQUIRE_CUDA": expression}, supported)
    assert words in str(error.value)
    assert "Upgrade the driver" in str(error.value)


def test_minor_version_compatibility_replaces_an_unsupported_compatibility_package():
    verdict = check_requirements({}, {"NVIDIA_REQUIRE_CUDA": IMAGE_12}, support(gpus=(RTX,)))
    assert not verdict.needs_compat
    assert "minor-version compatibility" in verdict.warnings[0]


@pytest.mark.parametrize(
    ("brand", "expected"),
    [
        ("nvidia_vapps", "vapps"),
        ("nvidia_vpc", "vpc"),
        ("nvidia_vcs", "vcs"),
        ("nvidia_vws", "vws"),
        ("nvidia_cloud_gaming", "cloudgaming"),
        ("quadro_rtx", "quadrortx"),
        ("nvidia_rtx", "nvidiartx"),
        ("geforce_rtx", "geforcertx"),
        ("nvidia", "nvidia"),
        ("", None),
        (None, None),
    ],
)
def test_brands_have_the_names_of_images(brand, expected):
    assert image_brand(brand) == expected


@pytest.mark.parametrize(
    ("expression", "skipped"),
    [
        ("rocm>=6", "rocm>=6"),
        ("cuda>=12.0,vram>=80", "vram>=80"),
        ("cuda>=99 nic=mlx5,driver>=535", "nic=mlx5"),
    ],
)
def test_unknown_properties_are_skipped_with_a_warning(expression, skipped):
    (warning,) = check_requirements({}, {"NVIDIA_REQUIRE_X": expression}, support()).warnings
    assert warning == f"NVIDIA_REQUIRE_X: the condition {skipped} is skipped because its property is unknown."


def test_requirement_with_an_unknown_property_must_still_hold():
    with pytest.raises(RequirementError, match="driver>=600"):
        check_requirements({}, {"NVIDIA_REQUIRE_X": "vram>=80,driver>=600"}, support())


@pytest.mark.parametrize("expression", ["cuda>=12.9", "cuda>=13.0"])
def test_nvidias_hook_enforces_the_environment_exactly(expression):
    with pytest.raises(RequirementError, match=r"unsupported CUDA version: driver 12\.2 < image"):
        check_requirements({}, {"NVIDIA_REQUIRE_CUDA": expression}, support(), HOOK)


def test_nvidias_hook_accepts_the_alternatives_of_any_brand_and_ignores_the_label():
    gpus = (RTX, A100)
    assert check_requirements({}, {"NVIDIA_REQUIRE_CUDA": IMAGE_13}, support(gpus=gpus), HOOK).warnings == ()
    (warning,) = check_requirements(label("99.0"), {}, support(), HOOK).warnings
    assert "driver 12.2 < image 99.0" in warning


@pytest.mark.parametrize(
    ("labels", "env"),
    [
        (label("13.0"), {}),
        ({}, {"NVIDIA_REQUIRE_CUDA": "cuda>=13.0"}),
        ({}, {"NVIDIA_REQUIRE_CUDA": "cuda"}),
    ],
)
def test_unchecked_requirements_cause_only_a_warning(labels, env):
    (warning,) = check_requirements(labels, env, support(), NOBODY).warnings
    assert warning.endswith("NVIDIA's runtime does not check this requirement and starts the container.")
