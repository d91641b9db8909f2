# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node that is drained if the user names none."""

from __future__ import annotations

from types import SimpleNamespace

from ansible_collections.gpufleet.hosts.plugins.module_utils.workload import adapter_list, default_node_name


def test_the_node_has_the_name_that_slurmd_and_the_kubelet_give_it(monkeypatch):
    monkeypatch.setattr(default_node_name.os, "uname", lambda: SimpleNamespace(nodename="Gpu-1.example.com"))
    assert (default_node_name.of_slurm(), default_node_name.of_kubernetes()) == ("Gpu-1", "gpu-1.example.com")
    calls = []

    def run(argv, **_options):
        calls.append(" ".join(argv))
        return (0, "", "")

    adapter_list.build("slurm", {}, adapter_list.WorkloadTools(run)).close("x")
    assert "NodeName=Gpu-1 " in calls[-1]
