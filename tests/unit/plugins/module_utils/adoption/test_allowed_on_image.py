# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What playbook dlami may change on which image."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.adoption import allowed_on_image
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import docker_data_directory
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.holds import (
    hold_support,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.registry import PARTS
from ansible_collections.gpufleet.hosts.tests.unit.plugins.site_samples import bare

NEURON = {"vendor": "neuron", "kind": "accelerator", "generation": "Inferentia2"}


def prepared(kind, *, gpus=True, neuron=0, packages=None, **found):
    """Describe a host with a prepared image."""
    host = bare() if gpus else bare(gpus=())
    host["image"] |= {"kind": kind, **found}
    if neuron:
        host["accelerators"]["neuron"] = {"devices": [NEURON] * neuron, "driver": {"loaded": None}, "module": None}
    host["installed_packages"] |= packages or {}
    return host


@pytest.mark.parametrize(
    ("host", "requested", "parts", "reason"),
    [
        (prepared("dlami"), "", list(PARTS), ""),
        (prepared(None), "dlami", list(PARTS), ""),
        (prepared("dlami", gpus=False), "", list(PARTS), ""),
        (prepared("dlami", gpus=False, neuron=6), "", ["container_engine", "neuron_driver"], "6 x Inferentia2"),
        (prepared("eks"), "", [], "nodeadm"),
        (prepared("ecs"), "", [], "ECS agent"),
        (prepared("azure_hpc"), "", [], "Azure HPC"),
        (prepared("dlami"), "eks", [], "nodeadm"),
    ],
)
def test_only_the_parts_that_nobody_else_owns_may_act(host, requested, parts, reason):
    found = allowed_on_image.adopt(host, PARTS, requested)
    assert found.parts == parts
    assert reason in found.reason and bool(found.reason) is bool(reason)


@pytest.mark.parametrize(
    ("kind", "requested", "texts"),
    [
        (None, "", ["no", "/opt/dlami", "gpufleet.hosts.site", "dlami_image"]),
        ("dgx", "", ["NVIDIA DGX OS", "gpufleet.hosts.site"]),
        ("dlami", "dlmai", ["'dlmai'", "dlami, ecs", "dlami_image"]),
    ],
)
def test_another_image_is_refused_with_the_playbook_for_it(kind, requested, texts):
    with pytest.raises(allowed_on_image.NotAdoptable) as caught:
        allowed_on_image.adopt(prepared(kind), PARTS, requested)
    assert all(text in str(caught.value) for text in texts), caught.value


def test_a_host_that_still_boots_is_refused_after_the_time_limit():
    running = prepared("dlami", cloud_init={"state": "running", "errors": []})
    assert "900 seconds" in str(allowed_on_image.boot_problem(running, 900))
    for state in ("absent", "done"):
        assert allowed_on_image.boot_problem(prepared("dlami", cloud_init={"state": state, "errors": []}), 900) is None


@pytest.mark.parametrize(
    ("nvme", "options", "is_refused"),
    [
        ("/opt/dlami/nvme", {"data-root": "/opt/dlami/nvme/docker"}, False),
        (None, {"data-root": "/opt/dlami/nvme/docker"}, True),
        (None, {"data-root": "/opt/dlami/nvme"}, True),
        (None, {"data-root": "/opt/dlami/nvme2"}, False),
        (None, {}, False),
    ],
)
def test_docker_does_not_fill_the_root_disk_in_place_of_a_missing_disk(nvme, options, is_refused):
    for on_nvme, way_out in ((False, "container_engine_docker_options"), (True, "dlami_docker_on_nvme")):
        problem = docker_data_directory.missing_disk(prepared("dlami", nvme=nvme), "docker", options, on_nvme=on_nvme)
        assert bool(problem) is is_refused
        assert not problem or (options["data-root"] in problem and way_out in problem)


@pytest.mark.parametrize(("name", "is_refused"), [("docker", False), ("podman", True), ("none", True)])
def test_only_docker_has_a_data_directory_on_the_local_disks(name, is_refused):
    host = prepared("dlami", nvme="/opt/dlami/nvme")
    problem = docker_data_directory.missing_disk(host, name, {}, on_nvme=True) or ""
    text = f"dlami_docker_on_nvme is true, but container_engine_name is {name}. Remove"
    assert problem.startswith(text) is is_refused
    assert docker_data_directory.missing_disk(host, name, {}, on_nvme=False) is None


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
    host = prepared("dlami", packages=dict.fromkeys([*EXTRAS, *OTHERS], "1 amd64"))
    assert allowed_on_image.not_held(host, toolkit=False) == EXTRAS
    host["held_packages"] = ["efa", "cuda-toolkit-13-2"]
    assert allowed_on_image.not_held(host, toolkit=False) == [
        name for name in EXTRAS if name not in host["held_packages"]
    ]


def test_the_kept_toolkit_is_held_too():
    host = prepared(
        "dlami", packages=dict.fromkeys(["libnvidia-container1", "nvidia-container-toolkit"], "1.19.1-1 amd64")
    )
    host["held_packages"] = ["nvidia-container-toolkit"]
    assert allowed_on_image.not_held(host, toolkit=True) == ["libnvidia-container1"]
    assert allowed_on_image.not_held(host, toolkit=False) == []


def test_dnf_holds_only_with_its_plugin():
    host = prepared("dlami")
    assert hold_support.can_hold(host)
    host["os"]["package_manager"] = "dnf"
    assert not hold_support.can_hold(host)
    # The locks of a removed plugin have no effect.
    host["installed_packages"]["efa"] = "1.47.0-1 x86_64"
    host["held_packages"] = ["efa"]
    assert allowed_on_image.not_held(host, toolkit=False) == ["efa"]
    host["installed_packages"]["python3-dnf-plugin-versionlock"] = "4.3.0-1 noarch"
    assert hold_support.can_hold(host)
    assert allowed_on_image.not_held(host, toolkit=False) == []
