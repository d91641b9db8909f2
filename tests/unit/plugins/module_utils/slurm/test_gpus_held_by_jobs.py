# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs that jobs hold, from the output of scontrol."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import gpus_held_by_jobs


def test_jobs_of_an_old_release_are_read():
    text = job([("n1", "gpu(IDX:1)")]).replace(" GRES=", " GRES_IDX=", 1)
    assert [one.indexes for one in gpus_held_by_jobs.allocations(text, "n1")] == [{1}]


def test_name_of_a_job_cannot_hide_its_state():
    text = job([("n1", "gpu:1(IDX:0)")]).replace("JobName=wrap", "JobName=a\n   JobState=PENDING")
    assert [one.indexes for one in gpus_held_by_jobs.allocations(text, "n1")] == [{0}]


JOB = """JobId={job} JobName=wrap
   UserId=alice(1000) GroupId=alice(1000) MCS_label=N/A
   JobState={state} Reason=None Dependency=(null)
   NodeList=n[1-2]
{nodes}
   Command=/home/alice/Nodes=n1 GRES=gpu:8
"""


def job(nodes, number=7, state="RUNNING"):
    lines = "".join(f"     Nodes={names} CPU_IDs=0 Mem=0 GRES={gres}\n" for names, gres in nodes)
    return JOB.format(job=number, state=state, nodes=lines)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([("n1", "gpu:a100:1(IDX:0)")], [{0}]),
        ([("n1", "gpu:a100:3(IDX:0-1,5)")], [{0, 1, 5}]),
        ([("n1", "gpu(IDX:2)")], [{2}]),
        ([("n[1-2]", "gpu:2(IDX:0-1)")], [{0, 1}]),
        ([("n2", "gpu:2(IDX:0-1)")], []),
        ([("n2", "gpu:1(IDX:0)"), ("n1", "gpu:1(IDX:3)")], [{3}]),
        ([("n1", "gpu:a100:1(IDX:0),gpu:t4:1(IDX:2)")], [{0, 2}]),
        ([("n1", "gpu:a100:0(IDX:)")], []),
        ([("n1", "gpu:a100:\u00b2(IDX:0)")], [{0}]),
        ([("n1", "gpu:1g.10gb(IDX:3)")], [{3}]),
        ([("n1", "gpu:a100:2")], [None]),
        ([("n1", "gpu:a100:2(IDX:N/A)")], [None]),
        ([("n1", "gpu:1080:1(IDX:2)")], [{2}]),
        ([("n1", "gpu:a:1(IDX:0),mps:50")], [None]),
        ([("n1", "gpu:a:1(IDX:0),gpu:b:2")], [None]),
        ([("n1", "shard:1(0/4,1/4)")], [None]),
        ([("n1", "nic:1(IDX:0)")], []),
        ([("n1", "")], []),
    ],
)
def test_the_gpus_of_a_job_on_this_node(nodes, expected):
    found = gpus_held_by_jobs.allocations(job(nodes), "n1")
    assert [one.indexes for one in found] == expected
    assert {(one.job, one.user) for one in found} <= {("7", "alice")}


@pytest.mark.parametrize(
    ("state", "holds"),
    [("RUNNING", True), ("SUSPENDED", True), ("COMPLETING", True), ("PENDING", False), ("COMPLETED", False)],
)
def test_only_jobs_that_occupy_nodes_hold_gpus(state, holds):
    text = job([("n1", "gpu:1(IDX:0)")], 8, state) + "\n" + job([("n1", "gpu:1(IDX:1)")], 9, "PENDING")
    assert [one.job for one in gpus_held_by_jobs.allocations(text, "n1")] == (["8"] if holds else [])
