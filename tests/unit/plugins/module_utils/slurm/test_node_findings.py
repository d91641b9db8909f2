# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a node of Slurm."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import node_files_plan, node_findings
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.node_drain_and_resume import SlurmNode
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.slurm.test_node_files_plan import (
    PRESENT,
    gpus,
    host,
)

NODE = SlurmNode("n1", frozenset({"IDLE"}), gres="gpu:h100:2(S:0-1)")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"node": NODE}, []),
        ({"node": dataclasses.replace(NODE, gres="gpu:2")}, []),
        (
            {"node": dataclasses.replace(NODE, gres="gpu:h100:4")},
            ["Gres=gpu:h100:4 for node n1, but the node has gpu:h100:2"],
        ),
        ({"node": dataclasses.replace(NODE, gres="")}, ["Gres=(none)"]),
        (
            {"node": SlurmNode("n1", frozenset({"IDLE", "DRAIN", "INVALID_REG"}), "gres/gpu count", gres="gpu:2")},
            ["rejected the registration of node n1 (gres/gpu count), usually because"],
        ),
        ({"node": NODE, "slurm": "GresTypes=gpu\n"}, ["no TaskPlugin=task/cgroup"]),
        ({"node": NODE, "slurm": "TaskPlugin=task/cgroup\n"}, ["no GresTypes=gpu"]),
        ({"node": NODE, "slurm": "taskplugin=affinity,cgroup\ngrestypes=mps,GPU\n"}, []),
        ({"node": NODE, "slurm": "TaskPlugin=task/affinity # task/cgroup\nGresTypes=gpu\n"}, ["no TaskPlugin"]),
        ({"node": NODE, "slurm": "Include /etc/slurm/common.conf\n"}, []),
        ({"unanswered": "The controller does not answer."}, ["does not answer"]),
    ],
)
def test_what_is_wrong_in_the_view_of_the_controller(values, expected):
    found = node_files_plan.plan(host(**values), PRESENT).findings
    assert len(found) == len(expected)
    assert all(text in one for text, one in zip(expected, found, strict=True))


def test_cluster_that_does_not_constrain_devices_needs_no_plugin_for_it():
    request = dataclasses.replace(PRESENT, constrain_devices=False)
    assert node_files_plan.plan(host(node=NODE, slurm="GresTypes=gpu\n"), request).findings == []


@pytest.mark.parametrize(
    ("values", "problems", "notes"),
    [
        ({"node": NODE}, [], []),
        # An administrator wrote the files, with other types.
        ({"node": dataclasses.replace(NODE, gres="gpu:big:2"), "gres": "Name=gpu File=/dev/nvidia[0-1]"}, [], []),
        ({"node": dataclasses.replace(NODE, gres="gpu:big:3")}, ["Gres=gpu:big:3"], []),
        (
            {"node": dataclasses.replace(NODE, states=frozenset({"IDLE", "DRAIN"}), reason="bad disk")},
            [],
            ["no job (drain+idle): bad disk"],
        ),
        (
            {"node": dataclasses.replace(NODE, states=frozenset({"DOWN"}), reason="Not responding")},
            ["no job (down): Not responding"],
            [],
        ),
        ({"unanswered": "The controller does not answer."}, ["does not answer"], []),
    ],
)
def test_the_health_of_a_node_that_anybody_configured(values, problems, notes):
    found = node_findings.health(host(**values))
    for texts, expected in zip(found, (problems, notes), strict=True):
        assert len(texts) == len(expected)
        assert all(part in text for part, text in zip(expected, texts, strict=True))


def test_devices_that_cannot_be_read_now_do_not_disappear_from_slurm():
    ready = schema.vendor_state("ready", "", gpus())
    lost = schema.vendor_state("driver_not_loaded", "Run modprobe nvidia.", gpus())
    none = schema.vendor_state("no_hardware", "", [])
    assert node_findings.not_ready({"nvidia": ready, "amd": none}) == []
    assert "Run modprobe nvidia." in node_findings.not_ready({"nvidia": lost, "amd": none})[0]
