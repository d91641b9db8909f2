# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part amd_driver in the plan of playbook site."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.tests.unit.plugins import amd_hosts
from ansible_collections.gpufleet.hosts.tests.unit.plugins.amd_trees import MI300X, AmdTree


def planned(root, **values):
    host = amd_hosts.observed(root)
    context = Context(host=host, values={"amd_driver": values}, platforms={})
    return site_plan.plan(context, ["amd_driver"])["amd_driver"]


def test_the_plan_of_a_run_contains_the_changes_and_the_report(tmp_path):
    tree = AmdTree(tmp_path / "root")
    tree.gpu("0000:05:00.0", 128, MI300X, unique_id="00000000000000a1", mode="SPX")
    part = planned(tree.root, users="alice, bob")
    assert part.acts
    assert part.changes[:2] == ["add alice, bob to group render", "add alice to group video"]
    assert part.report["devices"] == ["00000000000000a1"]
    assert part.plan["cdi"]["options"]["vendor"] == "amd"
    assert planned(tree.root, source="none").acts is False


def test_a_host_without_gpus_of_amd_gets_a_reason_and_no_report(tmp_path):
    part = planned(AmdTree(tmp_path / "root").root)
    assert (part.acts, part.report, part.reasons) == (False, None, ["this host has no AMD GPUs"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source": "amd"}, "amd_driver_source is amd, but must be one of kernel, none."),
        ({"users": ["a b"]}, "amd_driver_users contains a b, which is not valid. Use the form alice."),
        ({"cdi_kind": "gpu"}, "amd_driver_cdi_kind is gpu, which is not valid. Use the form gpufleet-amd/gpu."),
    ],
)
def test_invalid_variables_are_named(tmp_path, values, message):
    with pytest.raises(VariableError, match=message):
        planned(AmdTree(tmp_path / "root").root, **values)
