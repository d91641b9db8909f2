# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages of a prepared image get a hold."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.adoption import holds_of_image_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.holds import (
    hold_support,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.outcomes import ToolkitOutcome
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Part
from ansible_collections.gpufleet.hosts.tests.unit.plugins.site_samples import bare


def prepared(packages):
    """Describe a host with a Deep Learning AMI and these packages."""
    host = bare()
    host["image"] |= {"kind": "dlami"}
    host["installed_packages"] |= packages
    return host


EXTRAS = [
    *("cuda-nvcc-13-2", "cuda-toolkit-13-2", "datacenter-gpu-manager-4-core", "efa", "efa-profile", "libcublas-13-2"),
    *("libfabric1-aws", "libnccl-ofi", "libnvjitlink-13-2", "openmpi40-aws"),
]
# The driver's, the repository's, the distribution's.
OTHERS = [
    *("cuda-drivers", "cuda-drivers-595", "cuda-keyring", "cuda-compat-13", "libnvidia-compute-595"),
    *("libnvidia-container1", "openmpi-bin", "efa1"),
]


def test_packages_that_no_role_manages_are_held_once():
    host = prepared(dict.fromkeys([*EXTRAS, *OTHERS], "1 amd64"))
    assert holds_of_image_packages.not_held(host, toolkit=False) == EXTRAS
    host["held_packages"] = ["efa", "cuda-toolkit-13-2"]
    assert holds_of_image_packages.not_held(host, toolkit=False) == [
        name for name in EXTRAS if name not in host["held_packages"]
    ]


def test_the_kept_toolkit_is_held_too():
    host = prepared(dict.fromkeys(["libnvidia-container1", "nvidia-container-toolkit"], "1.19.1-1 amd64"))
    host["held_packages"] = ["nvidia-container-toolkit"]
    assert holds_of_image_packages.not_held(host, toolkit=True) == ["libnvidia-container1"]
    assert holds_of_image_packages.not_held(host, toolkit=False) == []


def test_dnf_holds_only_with_its_plugin():
    host = prepared({})
    assert hold_support.can_hold(host)
    host["os"]["package_manager"] = "dnf"
    assert not hold_support.can_hold(host)
    # The locks of a removed plugin have no effect.
    host["installed_packages"]["efa"] = "1.47.0-1 x86_64"
    host["held_packages"] = ["efa"]
    assert holds_of_image_packages.not_held(host, toolkit=False) == ["efa"]
    host["installed_packages"]["python3-dnf-plugin-versionlock"] = "4.3.0-1 noarch"
    assert hold_support.can_hold(host)
    assert holds_of_image_packages.not_held(host, toolkit=False) == []


@pytest.mark.parametrize(
    ("values", "keeps_packages", "is_held"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"source": "none"}, True, False),
        ({"state": "absent"}, True, False),
        ({"hold": False}, True, False),
    ],
)
def test_the_toolkit_is_held_if_it_is_wanted_and_its_role_has_no_package_work(values, keeps_packages, is_held):
    parts = {"nvidia_container_toolkit": Part(outcome=ToolkitOutcome(keeps_packages=keeps_packages))}
    assert holds_of_image_packages.holds_toolkit(parts, {"nvidia_container_toolkit": values}) is is_held
