# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the removal of what role gpu_kubernetes_node registered on a node, with empty directories. Pure functions."""

from __future__ import annotations

import posixpath
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import ENGINE_RESTART, Disruption
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import distribution_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.runtime_placement import placement
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import registration_and_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import (
    CriChange,
    CriFile,
    CriPlan,
    after,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import HABANA, NVIDIA
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node import (
    restart_policy as restart_policies,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node.restart_policy import POLICY

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.node_distribution import KubernetesNode


def of_engines(host: Host, engines: t.Mapping[str, str | None], restart_policy: str) -> t.Iterator[CriPlan]:
    """Return the removal of NVIDIA's runtime from the engines of the host, and of Gaudi's as their default one.

    Role gaudi_driver would register Gaudi's again.
    """
    policy = restart_policies.for_containerd_and_crio(restart_policy)
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
                restart_policies.restart(result, change, node, placement(node, "nvidia"), restart_policy)
    return result


def emptied(changes: t.Iterable[CriChange]) -> list[str]:
    """Return the directories that a removal can leave empty. That of k0s is not one: k0s creates and watches it."""
    removed = [file.path for change in changes for file in change.files if file.content is None]
    found = [posixpath.dirname(path) for path in removed if path in owned.CONTAINERD_DROP_INS]
    for path in removed:
        if path in distribution_paths.SETTINGS.values():
            # Agents without settings have none of these directories.
            parts = path.split("/")[:-1]
            found += ["/".join(parts[:length]) for length in range(len(parts), 2, -1)]
    return found
