# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's files, and the GPUs that jobs hold."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import configuration_files, job_gpus


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("gpu1", ["gpu1"]),
        ("gpu[1-3]", ["gpu1", "gpu2", "gpu3"]),
        ("gpu[01-02,7],head", ["gpu01", "gpu02", "gpu7", "head"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("/dev/nvidia[0-1]", ["/dev/nvidia0", "/dev/nvidia1"]),
        ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
        ("gpu[08-11]", ["gpu08", "gpu09", "gpu10", "gpu11"]),
        ("a[1,3-4]b[05],c", ["a1b05", "a3b05", "a4b05", "c"]),
        ("n[0-999999999]", []),
        (f"n[0-{'9' * 5000}]", [f"n0-{'9' * 5000}"]),
        ("", []),
    ],
)
def test_host_lists(expression, expected):
    assert configuration_files.expand(expression) == expected


def test_lines_are_read_with_continuations_and_comments():
    text = "# Name=gpu\nNodeName=a Name=gpu \\\n  File=/dev/nvidia0 # x\n\nAutoDetect = nvml\n"
    assert [(line.number, line.options) for line in configuration_files.parse(text)] == [
        (2, {"nodename": "a", "name": "gpu", "file": "/dev/nvidia0"}),
        (5, {"autodetect": "nvml"}),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nName=gpu \\", [(1, "a"), (2, "Name=gpu")]),
        ("Name=gpu \\\n", [(1, "Name=gpu")]),
        ("Name=gpu \\ # x\n", [(1, "Name=gpu")]),
        ("Name=gpu \\\nCount=1 \\", [(1, "Name=gpu  Count=1")]),
        ("\\", []),
        ("a \\\n\nb", [(1, "a"), (3, "b")]),
    ],
)
def test_the_end_of_the_file_ends_a_continued_line(text, expected):
    assert [(line.number, line.text) for line in configuration_files.parse(text)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Name=gpu", True),
        ("NodeName=n[1-2] Name=gpu", True),
        ("NodeName=n3 Name=gpu", False),
        ("nodename=DEFAULT", True),
    ],
)
def test_the_nodes_of_a_line(text, expected):
    assert configuration_files.applies(configuration_files.parse(text)[0], "n1") is expected


@pytest.mark.parametrize("before", ["", "Name=gpu Count=1\n", "x", "a\nb\n"])
def test_a_block_is_added_changed_and_removed_without_touching_the_rest(before):
    first = configuration_files.with_block(before, "n1", ["one"])
    assert configuration_files.own_block(first, "n1") == "one\n"
    second = configuration_files.with_block(first, "n1", ["two", "three"])
    assert configuration_files.own_block(second, "n1") == "two\nthree\n"
    both = configuration_files.with_block(second, "n10", ["other node"])
    assert configuration_files.with_block(both, "n1", ["two", "three"]) == both
    assert configuration_files.own_block(configuration_files.without_block(both, "n1"), "n10") == "other node\n"
    end = "" if not before or before.endswith("\n") else "\n"
    assert configuration_files.without_block(second, "n1") == before + end
    assert configuration_files.with_block(second, "n1", []) == before + end


def test_block_without_its_end_does_not_reach_into_other_lines():
    begin = configuration_files.with_block("", "n1", ["one"]).partition("\n")[0]
    other = configuration_files.with_block("", "n2", ["two"])
    text = configuration_files.with_block(f"{begin}\nNodeName=n3\n{other}", "n1", ["new"])
    assert (
        configuration_files.without_block(configuration_files.with_block(text, "n1", ["newer"]), "n1")
        == f"{begin}\nNodeName=n3\n{other}"
    )


def test_jobs_of_an_old_release_are_read():
    text = job([("n1", "gpu(IDX:1)")]).replace(" GRES=", " GRES_IDX=", 1)
    assert [one.indexes for one in job_gpus.allocations(text, "n1")] == [{1}]


def test_name_of_a_job_cannot_hide_its_state():
    text = job([("n1", "gpu:1(IDX:0)")]).replace("JobName=wrap", "JobName=a\n   JobState=PENDING")
    assert [one.indexes for one in job_gpus.allocations(text, "n1")] == [{0}]


def test_text_after_a_block_stays_in_place():
    text = configuration_files.with_block("", "n1", ["one"]) + "Name=nic\n"
    assert configuration_files.with_block(text, "n1", ["two"]).endswith("Name=nic\n")


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
    found = job_gpus.allocations(job(nodes), "n1")
    assert [one.indexes for one in found] == expected
    assert {(one.job, one.user) for one in found} <= {("7", "alice")}


@pytest.mark.parametrize(
    ("state", "holds"),
    [("RUNNING", True), ("SUSPENDED", True), ("COMPLETING", True), ("PENDING", False), ("COMPLETED", False)],
)
def test_only_jobs_that_occupy_nodes_hold_gpus(state, holds):
    text = job([("n1", "gpu:1(IDX:0)")], 8, state) + "\n" + job([("n1", "gpu:1(IDX:1)")], 9, "PENDING")
    assert [one.job for one in job_gpus.allocations(text, "n1")] == (["8"] if holds else [])


TWO_TYPES = (
    "Name=gpu Type=t4 File=/dev/nvidia2\nName=gpu Type=a100 File=/dev/nvidia1\nName=gpu Type=a100 File=/dev/nvidia0"
)
MIG = (
    "Name=gpu Type=m MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap21,/dev/nvidia-caps/nvidia-cap22\n"
    "Name=gpu Type=a File=/dev/nvidia1"
)


@pytest.mark.parametrize(
    ("text", "node_gres", "expected"),
    [
        ("Name=gpu File=/dev/nvidia[0-1]", "gpu:2", [{"/dev/nvidia0"}, {"/dev/nvidia1"}]),
        ("Name=gpu File=/dev/nvidia1\nName=gpu File=/dev/nvidia0", "gpu:2", [{"/dev/nvidia1"}, {"/dev/nvidia0"}]),
        # Measured with Slurm 22.05.
        (TWO_TYPES, "gpu:a100:2,gpu:t4:1", [{"/dev/nvidia1"}, {"/dev/nvidia0"}, {"/dev/nvidia2"}]),
        (TWO_TYPES, "gpu:t4:1,gpu:a100:2(S:0)", [{"/dev/nvidia2"}, {"/dev/nvidia1"}, {"/dev/nvidia0"}]),
        (TWO_TYPES, "gpu:3", None),
        ("Name=gpu Type=a File=/dev/nvidia[0-1]", "gpu:2", [{"/dev/nvidia0"}, {"/dev/nvidia1"}]),
        (
            "NodeName=n2 Name=gpu File=/dev/nvidia7\nName=nic File=/dev/x\nName=gpu File=/dev/nvidia0",
            "gpu:1",
            [{"/dev/nvidia0"}],
        ),
        (
            MIG,
            "gpu:m:1,gpu:a:1",
            [{"/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"}, {"/dev/nvidia1"}],
        ),
        ("AutoDetect=nvml\nName=gpu File=/dev/nvidia0", "gpu:1", None),
        ("AutoDetect=nvml\nNodeName=n1 AutoDetect=off Name=gpu File=/dev/nvidia0", "gpu:1", [{"/dev/nvidia0"}]),
        ("NodeName=n2 AutoDetect=nvml\nName=gpu File=/dev/nvidia0", "gpu:1", [{"/dev/nvidia0"}]),
        ("Name=gpu Count=2", "gpu:2", None),
        ("Include other.conf", "gpu:1", None),
        ("", "", []),
    ],
)
def test_the_device_nodes_behind_the_numbers(text, node_gres, expected):
    found = job_gpus.numbered_files(text, "n1", node_gres)
    assert (found and list(found.values())) == expected or (found, expected) == ({}, [])
