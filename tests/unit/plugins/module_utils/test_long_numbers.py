# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers of hosts, packages and images. Python raises ValueError for thousands of digits, and for a superscript."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import versions
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia import image_requirements
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.inventory import inventory_from_facts
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import stop_timeout
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection import gpus_option, named_gpu
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import RequirementError
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import toolkit_compatibility
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import dockerd_flags, dockerd_validation
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import engine_queries
from ansible_collections.gpufleet.hosts.plugins.module_utils.host.grub import Grub
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import lock_holders, version_order
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_volume

LONG = "9" * 5000
SUPPORT = image_requirements.Support("12.4", "550.54", ({"arch": "9.0", "brand": "tesla", "uuid": "GPU-1"},))


@pytest.mark.parametrize(
    ("labels", "env"),
    [
        ({}, {"NVIDIA_REQUIRE_CUDA": f"cuda>={LONG}"}),
        ({}, {"NVIDIA_REQUIRE_X": f"driver<0{'0' * 5000} arch=={LONG}"}),
        ({}, {"NVIDIA_REQUIRE_CUDA": f"cuda={LONG},brand=tesla brand={LONG}"}),
        ({}, {"CUDA_VERSION": f"{LONG}.{LONG}"}),
        ({}, {"NVIDIA_REQUIRE_CUDA": "cuda>=1\u00b2.0"}),
        ({image_requirements.LABEL_CUDA: LONG}, {}),
        ({image_requirements.LABEL_CUDA: f"{LONG}x"}, {}),
        ({image_requirements.LABEL_CUDA: f"{LONG}.\u00b2"}, {}),
    ],
)
def test_a_requirement_of_an_image_is_refused_in_a_short_message(labels: dict[str, str], env: dict[str, str]) -> None:
    with pytest.raises(RequirementError) as error:
        image_requirements.check_requirements(labels, env, SUPPORT)
    assert len(str(error.value)) < 800
    assert LONG[:50] in str(error.value) or "\u00b2" in str(error.value) or "arch==" in str(error.value)


def test_a_requirement_of_an_image_can_be_met() -> None:
    env = {"NVIDIA_REQUIRE_CUDA": f"cuda<{LONG} driver<{LONG}", "NVIDIA_REQUIRE_X": f"cuda>={'0' * 5000}1.{'0' * 5000}"}
    assert image_requirements.check_requirements({}, env, SUPPORT) == image_requirements.ImageVerdict()
    (warning,) = image_requirements.check_requirements(
        {}, {"NVIDIA_REQUIRE_CUDA": f"cuda>=12.{LONG}"}, SUPPORT
    ).warnings
    assert len(warning) < 400


@pytest.mark.parametrize("selector", [LONG, f"{LONG}:0", "\u00b2"], ids=["index", "MIG device", "superscript"])
def test_a_gpu_with_such_an_index_does_not_exist(selector: str) -> None:
    # From an image, and from the user, for whom shorter digits are a count
    for wanted in (image_requirements.parse_visible_devices(selector), gpus_option.parse_request(selector)):
        with pytest.raises(gpus_option.SelectionError) as error:
            named_gpu.find_unit(wanted.selectors[0], inventory_from_facts([]))
        assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    "text", [LONG, "\u00b2", f"{LONG}.{LONG}", f"1.\u00b2.{LONG}", f"{LONG}:{LONG}-{LONG}~{LONG}"], ids=range(5)
)
@pytest.mark.parametrize(
    "read",
    [
        versions.natural_key,
        engine_queries.version_key,
        version_order.debian,
        version_order.rpm,
        lambda text: dockerd_validation.version_of(
            lambda _argv: (0, f"Docker version {text}.1, build x", ""), "dockerd"
        ),
        lambda text: dockerd_flags.of_command(f"/usr/bin/dockerd --max-concurrent-downloads={text}", "unit"),
        lambda text: stop_timeout({"stop_timeout": text}, None),
        lambda text: Grub("/dev/null").selected(text),
    ],
)
def test_a_number_of_a_host_or_package_is_no_traceback(read: t.Callable[[str], t.Any], text: str) -> None:
    read(text)


def test_versions_keep_their_order() -> None:
    names = ["6.9", "6.12", "6.012a", f"6.{LONG}", "580.95.05", "580.126"]
    assert sorted(sorted(names), key=versions.natural_key) == names
    assert versions.natural_key("6.012") == versions.natural_key("6.12")


def test_a_driver_or_volume_can_have_any_version() -> None:
    assert toolkit_compatibility.driver_support(LONG, "12.4", {"12.4": 550}) == "fully"
    assert driver_volume.version_key(f"580.{LONG}") > driver_volume.version_key("580.1")


def test_the_file_of_a_lock_can_contain_anything(tmp_path: Path) -> None:
    for manager, paths in lock_holders._OWNERS.items():
        for path in paths:
            file = tmp_path / path.lstrip("/")
            os.makedirs(file.parent, exist_ok=True)
            for text in (LONG, "\u00b2"):
                file.write_text(text, encoding="utf-8")
                assert lock_holders.holder(str(tmp_path), manager) is None
