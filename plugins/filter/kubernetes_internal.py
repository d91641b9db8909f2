# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filters of roles gpu_kubernetes_cluster and gpu_kubernetes_node."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.common.validation import check_type_bool, check_type_int

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError, plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import (
    chart_releases,
    missing_node_resources,
    node_labels,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import role_variables as node_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CriChange, CriFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node import generated_configuration
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node import (
    node_plan as toolkit_node_plan,
)


def cluster_plan(request: Mapping[str, Any], data: Mapping[str, Any], observed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan of a cluster. `chart_releases.plan` describes the arguments."""
    # `-e key=value` passes texts.
    given = {
        **plain(request),
        "nvidia_replicas": check_type_int(request["nvidia_replicas"]),
        "nvidia_feature_discovery": check_type_bool(request["nvidia_feature_discovery"]),
    }
    # Ansible's texts and numbers have tags, with which YAML cannot be written.
    untagged = json.loads(json.dumps(given))
    return dataclasses.asdict(chart_releases.plan(untagged, plain(data), plain(observed)))


def node_patches(nodes: Sequence[Any], hosts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patches of nodes. `hosts`: the accelerators by the name of the node."""
    return node_labels.patches(plain(nodes), plain(hosts))


def node_shortages(
    nodes: Sequence[Any], hosts: Mapping[str, Any], plugins: Sequence[str], replicas: int = 1
) -> list[str]:
    """Return what nodes do not offer as their hosts have it."""
    vendors = list(dict.fromkeys(chart_releases.VENDORS[name] for name in plugins))
    return missing_node_resources.shortages(plain(nodes), plain(hosts), vendors, replicas)


def node_plan(host: Any, request: Mapping[str, Any], toolkit: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the plan of a node, from the observation of the host.

    `toolkit`: the plan of role nvidia_container_toolkit, if the role has not been carried out.
    """
    try:
        wanted = node_request.read(plain(request))
    except VariableError as error:
        return plain(toolkit_node_plan.KubernetesNodePlan(problems=[str(error)]))
    groups = host["accelerators"]
    vendors = [vendor for vendor, group in groups.items() if group and group["devices"]]
    packages, engines = (toolkit or {}).get("packages"), ((toolkit or {}).get("cri") or {}).get("engines")
    # Only the plan of a removal says whether it revokes the options of Docker.
    if "revokes" in (toolkit or {}):
        changes = [CriChange(one["unit"], [CriFile(**file) for file in one["files"]]) for one in engines or []]
        there = toolkit_node_plan.without_toolkit(host, packages or [], changes)
        return plain(toolkit_node_plan.plan(there, wanted, vendors))
    upcoming = toolkit_node_plan.UpcomingToolkit(bool(packages), bool(engines))
    return plain(toolkit_node_plan.plan(host, wanted, vendors, upcoming))


def has_runtime(text: str, runtime: str) -> bool | None:
    """Return whether a runtime is registered, from `crictl info` or a configuration. None: the text does not say it."""
    try:
        info = json.loads(text)
        runtimes = info["config"]["containerd"]["runtimes"]
        return runtime in runtimes
    except (ValueError, KeyError, TypeError):
        pass
    try:
        tree = toml_editor.parse(text)
    except toml_editor.TomlError:
        return None
    return generated_configuration.registered_program(tree, runtime) is not None if tree.get("plugins") else None


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by their names."""
        return {
            "_kubernetes_cluster_plan": cluster_plan,
            "_kubernetes_has_runtime": has_runtime,
            "_kubernetes_node_plan": node_plan,
            "_kubernetes_node_patches": node_patches,
            "_kubernetes_node_shortages": node_shortages,
        }
