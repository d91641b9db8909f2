# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which releases of charts and which RuntimeClass a cluster gets, and which are removed. Pure functions."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import (
    chart_values,
    second_device_owner,
    unusable_chart_variables,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.unusable_chart_variables import NVIDIA, OPERATOR

# The vendor of each plugin.
VENDORS = {NVIDIA: "nvidia", OPERATOR: "nvidia", "amd": "amd", "neuron": "neuron", "gaudi_operator": "gaudi"}
# The label of what this collection creates.
_OWNER, OURS = "app.kubernetes.io/managed-by", "gpufleet"


@dataclasses.dataclass(frozen=True)
class ChartRelease:
    """A release, as options of kubernetes.core.helm."""

    name: str
    namespace: str
    chart_ref: str
    values: dict[str, t.Any]
    chart_repo_url: str | None = None
    chart_version: str | None = None


@dataclasses.dataclass
class ClusterPlan:
    """The releases to install and to remove, the RuntimeClasses, and problems, which are sentences."""

    releases: list[ChartRelease] = dataclasses.field(default_factory=list)
    remove: list[dict[str, str]] = dataclasses.field(default_factory=list)
    runtime_classes: list[str] = dataclasses.field(default_factory=list)
    remove_classes: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)


def plan(request: t.Mapping[str, t.Any], charts: t.Mapping[str, t.Any], observed: t.Mapping[str, t.Any]) -> ClusterPlan:
    """Return what the role does in a cluster.

    `request`: the variables of the role without its prefix. `charts`: its data, by plugin. `observed`: `releases` of
    helm list, `daemonsets` and `device_classes` as the API server returns them.
    """
    result = ClusterPlan()
    for name, chart in request["charts"].items():
        result.problems += unusable_chart_variables.of_chart(name, chart, charts)
    if result.problems:
        return result
    selected = list(request["plugins"]) if request["state"] == "present" else []
    wanted = {name: chart_values.merged(charts[name], request["charts"].get(name) or {}) for name in charts}
    result.problems += unusable_chart_variables.of_selection(request, selected)
    result.releases = [_release(name, wanted[name], request) for name in selected]
    result.problems += unusable_chart_variables.shared_releases(selected, result.releases)
    names = {(release.name, release.namespace) for release in result.releases}
    result.problems += unusable_chart_variables.default_namespace(selected, result.releases)
    ours = {(chart["release"], chart["namespace"]) for chart in wanted.values()}
    leaving = {(one["name"], one["namespace"]) for one in observed["releases"]} & (ours - names)
    result.remove = [{"name": name, "namespace": namespace} for name, namespace in sorted(leaving)]
    for vendor in dict.fromkeys(VENDORS[name] for name in selected):
        result.problems += second_device_owner.conflicts(vendor, observed, names | leaving)
    _runtime_classes(result, request["runtime_class"] if NVIDIA in selected else "", observed["runtime_classes"])
    return result


def _runtime_classes(result: ClusterPlan, wanted: str, existing: t.Iterable[t.Mapping[str, t.Any]]) -> None:
    """Plan the RuntimeClass. One that k3s, RKE2 or the GPU Operator created stays theirs."""
    owners = {one["metadata"]["name"]: (one["metadata"].get("labels") or {}).get(_OWNER) for one in existing}
    result.remove_classes = sorted(name for name, owner in owners.items() if owner == OURS and name != wanted)
    if wanted and owners.get(wanted, OURS) == OURS:
        result.runtime_classes = [wanted]
    handler = next((one.get("handler") for one in existing if one["metadata"]["name"] == wanted), wanted)
    if wanted and handler != wanted and owners[wanted] != OURS:
        result.problems.append(
            f"RuntimeClass {wanted} exists with handler {handler}, and this role did not create it. Set "
            "gpu_kubernetes_cluster_runtime_class to another name, or remove the RuntimeClass."
        )


def _release(name: str, chart: t.Mapping[str, t.Any], request: t.Mapping[str, t.Any]) -> ChartRelease:
    """Return a release. A chart with a slash is an OCI address or a path, and needs no repository."""
    values = chart_values.merged(chart_values.of_variables(name, request), chart["values"])
    is_address = "/" in chart["chart"]
    return ChartRelease(
        chart["release"],
        chart["namespace"],
        chart["chart"],
        values,
        None if is_address else chart["repository"],
        # A file or a directory has its own version.
        None if is_address and not chart["chart"].startswith("oci://") else (chart["version"] or None),
    )
