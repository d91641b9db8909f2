# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's files: their lines, and our block in them."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import configuration_files


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


def test_text_after_a_block_stays_in_place():
    text = configuration_files.with_block("", "n1", ["one"]) + "Name=nic\n"
    assert configuration_files.with_block(text, "n1", ["two"]).endswith("Name=nic\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", None),
        ("Name=nic \\\nCount=1\n", None),
        ("Name=nic \\\n", "ends with a backslash"),
        ("# \ufffd\n", "is not UTF-8"),
    ],
)
def test_a_file_in_which_an_edit_changes_other_lines_is_refused(text, reason):
    refusal = configuration_files.refusal_of_edit(text, "n1")
    assert (refusal is None) if reason is None else refusal.startswith(reason)
