# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accelerators of EC2 instance types. tests/aws compares the whole table with the answers of EC2's API."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.aws import instance_families

# (instance type, vendor, model, count, memory in GiB, architecture)
CASES = [
    ("p3.8xlarge", "nvidia", "V100", 4, 16, "x86_64"),
    ("p3dn.24xlarge", "nvidia", "V100", 8, 32, "x86_64"),
    ("p4de.24xlarge", "nvidia", "A100", 8, 80, "x86_64"),
    ("p5.4xlarge", "nvidia", "H100", 1, 80, "x86_64"),
    ("p5.48xlarge", "nvidia", "H100", 8, 80, "x86_64"),
    ("p5en.48xlarge", "nvidia", "H200", 8, 141, "x86_64"),
    ("p6-b200.48xlarge", "nvidia", "B200", 8, 179.06, "x86_64"),
    ("p6e-gb200.36xlarge", "nvidia", "GB200", 4, 185, "arm64"),
    ("g4dn.metal", "nvidia", "T4", 8, 16, "x86_64"),
    ("g5g.16xlarge", "nvidia", "T4g", 2, 16, "arm64"),
    ("g6.12xlarge", "nvidia", "L4", 4, 22.35, "x86_64"),
    ("g7e.12xlarge", "nvidia", "RTX PRO Server 6000", 2, 96, "x86_64"),
    ("g4ad.16xlarge", "amd", "Radeon Pro V520", 4, 8, "x86_64"),
    ("inf2.48xlarge", "neuron", "Inferentia2", 12, 32, "x86_64"),
    ("trn2u.48xlarge", "neuron", "Trainium2", 16, 96, "x86_64"),
    ("dl1.24xlarge", "gaudi", "Gaudi HL-205", 8, 32, "x86_64"),
    ("dl2q.24xlarge", "qualcomm", "Qualcomm AI100", 8, 15.62, "x86_64"),
    ("vt1.6xlarge", "xilinx", "U30", 2, 24, "x86_64"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_known_instance_types(case):
    found = instance_families.describe(case[0])
    assert (
        found["instance_type"],
        found["vendor"],
        found["model"],
        found["count"],
        found["memory_gib"],
        found["architecture"],
    ) == case
    assert (found["family"], found["fraction"]) == (case[0].split(".")[0], 1)


def test_a_part_of_a_gpu_has_its_own_memory():
    found = [instance_families.describe(f"g6f.{size}") for size in ("large", "2xlarge", "4xlarge")]
    assert [(item["count"], item["fraction"], item["memory_gib"]) for item in found] == [
        (1, 0.125, 2.79),
        (1, 0.25, 5.59),
        (1, 0.5, 11.18),
    ]


@pytest.mark.parametrize("instance_type", ["p5.96xlarge", "g6f.96xlarge", "p6e-gb300.36xlarge", "trn3.48xlarge"])
def test_an_unknown_size_of_a_known_family_has_no_count(instance_type):
    found = instance_families.describe(instance_type)
    assert found["vendor"] in ("nvidia", "neuron")
    assert found["model"]
    assert found["count"] is None


@pytest.mark.parametrize("instance_type", ["p9.48xlarge", "g8e.xlarge", "gr7.4xlarge", "inf3.xlarge", "trn4.2xlarge"])
def test_an_unknown_family_with_the_letter_of_an_accelerated_one_is_unknown(instance_type):
    assert instance_families.describe(instance_type) == {
        "instance_type": instance_type,
        "family": instance_type.split(".")[0],
        "vendor": "unknown",
        "model": None,
        "count": None,
        "memory_gib": None,
        "fraction": None,
        "architecture": None,
    }


@pytest.mark.parametrize("instance_type", ["m7i.large", "t3.micro", "c7gn.metal", "u-6tb1.metal", "hpc7a.96xlarge"])
def test_a_type_without_accelerators(instance_type):
    assert instance_families.describe(instance_type) is None


@pytest.mark.parametrize("text", ["", "p5", ".48xlarge", "p5.48xlarge.x", "P5.48XLARGE", "Google Compute Engine"])
def test_a_text_that_is_no_instance_type(text):
    assert instance_families.describe(text) is None
