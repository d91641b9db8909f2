# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What playbook dlami may change on which image."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.adoption import allowed_on_image, docker_data_root_on_nvme
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.registry import PARTS
from ansible_collections.gpufleet.hosts.tests.unit.plugins.site_samples import bare

NEURON = {"vendor": "neuron", "kind": "accelerator", "generation": "Inferentia2"}


def prepared(kind, *, gpus=True, neuron=0, **found):
    """Describe a host with a prepared image."""
    host = bare() if gpus else bare(gpus=())
    host["image"] |= {"kind": kind, **found}
    if neuron:
        host["accelerators"]["neuron"] = {"devices": [NEURON] * neuron, "driver": {"loaded": None}, "module": None}
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
        problem = docker_data_root_on_nvme.missing_disk(
            prepared("dlami", nvme=nvme), "docker", options, on_nvme=on_nvme
        )
        assert bool(problem) is is_refused
        assert not problem or (options["data-root"] in problem and way_out in problem)


@pytest.mark.parametrize(("name", "is_refused"), [("docker", False), ("podman", True), ("none", True)])
def test_only_docker_has_a_data_directory_on_the_local_disks(name, is_refused):
    host = prepared("dlami", nvme="/opt/dlami/nvme")
    problem = docker_data_root_on_nvme.missing_disk(host, name, {}, on_nvme=True) or ""
    text = f"dlami_docker_on_nvme is true, but container_engine_name is {name}. Remove"
    assert problem.startswith(text) is is_refused
    assert docker_data_root_on_nvme.missing_disk(host, name, {}, on_nvme=False) is None
