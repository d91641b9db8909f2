# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters for EC2 instances."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.filter import aws_internal, ec2_accelerator


def test_the_filter_returns_the_accelerators():
    found = ec2_accelerator.FilterModule().filters()["ec2_accelerator"]("p4de.24xlarge")
    assert (found["model"], found["count"], found["memory_gib"]) == ("A100", 8, 80)
    assert found["groups"] == ["gpu_hosts", "gpu_a100"]


@pytest.mark.parametrize("value", [None, "", 5, ["p5.48xlarge"]])
def test_the_filter_refuses_what_is_no_instance_type(value):
    with pytest.raises(AnsibleFilterError, match="instead of an EC2 instance type"):
        ec2_accelerator.ec2_accelerator(value)


def test_an_unknown_family_is_a_warning(monkeypatch):
    warnings = []
    monkeypatch.setattr(ec2_accelerator._display, "warning", warnings.append)
    assert ec2_accelerator.ec2_accelerator("p9.48xlarge")["vendor"] == "unknown"
    assert ec2_accelerator.ec2_accelerator("p5.48xlarge")["vendor"] == "nvidia"
    assert len(warnings) == 1
    assert "p9.48xlarge" in warnings[0]


def test_only_the_variables_of_the_instance_count():
    variables = {"aws_instance_region": "us-east-1", "aws_instance_name": "a", "aws_container_image": "x"}
    assert aws_internal.aws_instance(variables, only_identity=True)["name"] == "a"
    with pytest.raises(AnsibleFilterError, match="aws_instance_key_name is not set"):
        aws_internal.aws_instance({**variables, "aws_instance_type": "g6.xlarge"})
