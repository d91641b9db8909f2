# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filters of role gpu_kubernetes_cluster. They can change in any release."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.common.validation import check_type_bool, check_type_int

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variables import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import charts, node_labels


def cluster_plan(request: Mapping[str, Any], data: Mapping[str, Any], observed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan of a cluster. `charts.plan` describes the arguments."""
    # `-e key=value` passes texts.
    given = {
        **plain(request),
        "nvidia_replicas": check_type_int(request["nvidia_replicas"]),
        "nvidia_feature_discovery": check_type_bool(request["nvidia_feature_discovery"]),
    }
    return dataclasses.asdict(charts.plan(given, plain(data), plain(observed)))


def node_patches(nodes: Sequence[Any], hosts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patches of nodes. `hosts`: the accelerators by the name of the node."""
    return node_labels.patches(plain(nodes), plain(hosts))


def node_shortages(
    nodes: Sequence[Any], hosts: Mapping[str, Any], plugins: Sequence[str], replicas: int = 1
) -> list[str]:
    """Return what nodes do not offer as their hosts have it."""
    vendors = list(dict.fromkeys(charts.VENDORS[name] for name in plugins))
    return node_labels.shortages(plain(nodes), plain(hosts), vendors, replicas)


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by their names."""
        return {
            "_kubernetes_cluster_plan": cluster_plan,
            "_kubernetes_node_patches": node_patches,
            "_kubernetes_node_shortages": node_shortages,
        }
