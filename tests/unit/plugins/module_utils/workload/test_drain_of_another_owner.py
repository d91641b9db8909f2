# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The refusal of a drain while another one has not ended."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.workload import drain_of_another_owner
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_record import WorkloadRecord


@pytest.mark.parametrize(
    ("kept", "adapter", "is_refused"),
    [
        (None, "kubernetes", False),
        (("gpufleet", "kubernetes"), "kubernetes", False),
        (("gpufleet", "docker"), "kubernetes", True),
        (("campaign", "kubernetes"), "kubernetes", True),
        (("campaign", "docker"), "slurm", False),
    ],
)
def test_only_kubernetes_refuses_before_a_run_if_another_drain_has_not_ended(kept, adapter, is_refused):
    record = kept and WorkloadRecord(*kept, "x", 1.0, 60)
    problem = drain_of_another_owner.problem(record, adapter, "gpufleet", prefix="site_drain")
    assert (problem is not None) is is_refused
    assert not problem or f"{kept[0]} drained this host with adapter {kept[1]}" in problem
    assert not problem or "set site_drain_adapter and site_drain_owner to these values" in problem
