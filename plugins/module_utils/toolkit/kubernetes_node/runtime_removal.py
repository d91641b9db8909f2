# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the removal of what role gpu_kubernetes_node registered on a node. Pure functions."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import ENGINE_RESTART, Disruption
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import distribution_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.runtime_placement import placement
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import (
    containerd_and_crio_restart,
    registration_and_removal,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import (
    CriChange,
    CriFile,
    CriPlan,
    after,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import HABANA, NVIDIA
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node import k3s_and_rke2_restart
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node.k3s_and_rke2_restart import POLICY

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.node_distribution import KubernetesNode


def of_engines(host: Host, engines: t.Mapping[str, str | None], restart_policy: str) -> t.Iterator[CriPlan]:
    """Return the removal of NVIDIA's runtime from the engines of the host, and of Gaudi's as their default one.

    Role gaudi_driver would register Gaudi's again.
    """
    policy = containerd_and_crio_restart.policy_of_node_role(restart_policy)
    first = registration_and_removal.removal(host, policy, NVIDIA, restart_variable=POLICY)
    yield first
    host = after(host, first.engines)
    yield registration_and_removal.unset_default(host, engines, HABANA, restart_policy=policy, restart_variable=POLICY)


def of_distributions(host: Host, node: KubernetesNode | None, restart_policy: str) -> CriPlan:
    """Return the removal of the role's files of all distributions, also of one that has been uninstalled."""
    result = CriPlan()
    texts = host["cri_files"]["nodes"]
    for path in (distribution_paths.K0S_DROP_IN, *distribution_paths.SETTINGS.values()):
        if path in texts:
            unit = node.unit if node and placement(node, "nvidia").path == path else ""
            change = CriChange(unit, [CriFile(path, None, texts[path])])
            result.steps.append(steps.written(path, None))
            result.engines.append(change)
            if not node or not unit or not node.is_running:
                continue
            if path == distribution_paths.K0S_DROP_IN:
                reason = f"{node.title} restarts it when a drop-in changes; running containers stay"
                result.disruptions.append(Disruption(ENGINE_RESTART, reason, target="the containerd of k0s"))
            else:
                k3s_and_rke2_restart.restart(result, change, node, placement(node, "nvidia"), restart_policy)
    return result
