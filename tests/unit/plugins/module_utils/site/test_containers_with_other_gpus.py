# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbook verify names running containers that have another GPU than the assigned one."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing import container_labels
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import container_names_from_docker
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import containers_with_other_gpus

A, B, MIG = "GPU-a", "GPU-b", "MIG-c"
FACTS = {
    "nvidia_gpu_state": "ready",
    "nvidia_gpus": [
        {"uuid": A, "minor": 1, "mig": {"enabled": False}},
        {"uuid": B, "minor": 0, "mig": {"enabled": True, "devices": [{"uuid": MIG}]}},
    ],
}


def host(assigned, *devices):
    holder = {"pid": 7, "command": "x", "devices": list(devices), "open": False, "container": "4f1c"}
    return {"holders": [{**holder, "container_name": "job", **({"assigned": assigned} if assigned else {})}]}


@pytest.mark.parametrize(
    ("assigned", "devices", "wrong"),
    [
        ([A], ["/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"], []),
        ([A], ["/dev/nvidia0", "/dev/nvidiactl"], ["/dev/nvidia0"]),
        ([A], ["/dev/nvidia0", "/dev/nvidia1"], ["/dev/nvidia0"]),
        ([A], ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia12"], ["/dev/nvidia0", "/dev/nvidia12"]),
        ([MIG], ["/dev/nvidia0"], []),
        ([MIG], ["/dev/nvidia1"], ["/dev/nvidia1"]),
        ([A, MIG], ["/dev/nvidia0", "/dev/nvidia1"], []),
        # The user's own containers, and GPUs that the facts do not show.
        (None, ["/dev/nvidia0"], []),
        (["GPU-gone"], ["/dev/nvidia0"], []),
    ],
)
def test_containers_with_the_node_of_another_gpu_are_named(assigned, devices, wrong):
    found = containers_with_other_gpus.problems(host(assigned, *devices), FACTS)
    assert len(found) == bool(wrong)
    if wrong:
        assert f"The container job was assigned {assigned[0]}, but it has {' and '.join(wrong)}, which" in found[0]


def test_nothing_is_known_without_the_facts():
    assert containers_with_other_gpus.problems(host([A], "/dev/nvidia0"), {"nvidia_gpu_state": "missing_driver"}) == []


def test_the_label_is_that_of_gpu_container():
    assert container_names_from_docker._ASSIGNED == container_labels.LABEL_GPUS
