# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory groups of EC2 instances, and what is said about unknown types."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.aws import instance_families, inventory_groups


def described(instance_type: str) -> dict:
    return inventory_groups.with_groups(instance_type, instance_families.describe(instance_type))


@pytest.mark.parametrize(
    ("instance_type", "expected"),
    [
        ("p5.48xlarge", ["gpu_hosts", "gpu_h100"]),
        ("p6e-gb300.36xlarge", ["gpu_hosts", "gpu_gb300"]),
        ("g7.2xlarge", ["gpu_hosts", "gpu_rtx_pro_4500"]),
        ("trn1n.32xlarge", ["neuron_hosts", "neuron_trainium"]),
        ("g4ad.xlarge", ["amd_hosts"]),
        ("dl1.24xlarge", ["gaudi_hosts"]),
        ("dl2q.24xlarge", ["qualcomm_hosts"]),
        ("f2.6xlarge", ["xilinx_hosts"]),
        ("p9.48xlarge", ["gpu_unknown"]),
        ("m7i.large", []),
    ],
)
def test_groups(instance_type, expected):
    assert described(instance_type)["groups"] == expected


def test_every_group_has_a_valid_name():
    names = {name for family in instance_families.FAMILIES for name in described(f"{family}.xlarge")["groups"]}
    assert all(name.isidentifier() and name == name.lower() for name in names)


def test_a_type_without_accelerators_has_the_same_keys():
    assert set(described("m7i.large")) == set(described("p5.48xlarge")) == set(described("p9.48xlarge"))
    assert (described("m7i.large")["vendor"], described("m7i.large")["count"]) == ("none", 0)


def test_messages_name_what_is_unknown():
    assert described("p5.48xlarge")["message"] == described("m7i.large")["message"] == ""
    unknown = described("p9.48xlarge")["message"]
    assert "instance type p9.48xlarge are unknown" in unknown
    assert "Update the collection" in unknown
    assert "number of accelerators of instance type p5.96xlarge is unknown" in described("p5.96xlarge")["message"]
