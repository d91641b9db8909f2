# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse values of the user for charts that cannot be used. Pure functions that return problems as sentences."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.chart_releases import ChartRelease

NVIDIA, OPERATOR = "nvidia", "nvidia_operator"


def of_selection(request: t.Mapping[str, t.Any], selected: t.Collection[str]) -> list[str]:
    """Check that the plugins and the options of NVIDIA's fit together."""
    problems = []
    if {NVIDIA, OPERATOR} <= {*selected}:
        problems.append(
            "gpu_kubernetes_cluster_plugins names nvidia and nvidia_operator. The GPU Operator brings the device "
            "plugin. Remove one of them."
        )
    replicas, is_mps = request["nvidia_replicas"], request["nvidia_sharing"] == "mps"
    if request["nvidia_sharing"] != "none" and replicas < 2:
        problems.append(
            f"gpu_kubernetes_cluster_nvidia_replicas is {replicas}, but sharing needs at least 2. Set it to the number "
            "of pods that share a GPU, or set gpu_kubernetes_cluster_nvidia_sharing to none."
        )
    if is_mps and request["nvidia_mig_strategy"] == "mixed":
        problems.append(
            "gpu_kubernetes_cluster_nvidia_sharing is mps, which the device plugin refuses with MIG strategy mixed. "
            "Set gpu_kubernetes_cluster_nvidia_mig_strategy to none or single."
        )
    return problems


def of_chart(name: str, chart: t.Any, charts: t.Mapping[str, t.Any]) -> list[str]:
    """Check the user's changes of one chart. A misspelled key would install the chart of the role."""
    place = f"gpu_kubernetes_cluster_charts.{name}"
    if name not in charts:
        return [f"gpu_kubernetes_cluster_charts has the unknown key {name}. Known keys: {', '.join(charts)}."]
    if not isinstance(chart, dict):
        return [f"{place} is not a dictionary. Its keys are {', '.join(charts[name])}."]
    problems = [
        f"{place} has the unknown key {key}. Known keys: {', '.join(charts[name])}."
        for key in chart
        if key not in charts[name]
    ]
    given = {key: value for key, value in chart.items() if key in charts[name]}
    # Without a version, the repository's newest chart is installed.
    wrong = [
        key
        for key, value in given.items()
        if not isinstance(value, dict if key == "values" else str)
        and (value is not None or key not in ("repository", "version"))
    ]
    problems += [
        f"{place}.{key} is not a {'dictionary' if key == 'values' else 'text'}: {chart[key]}." for key in wrong
    ]
    empty = [key for key in ("chart", "namespace", "release") if chart.get(key) == ""]
    return problems + [f"{place}.{key} is empty. Set it, or remove the key." for key in empty]


def shared_releases(plugins: t.Sequence[str], releases: t.Sequence[ChartRelease]) -> list[str]:
    """Refuse one release for two plugins: each run would replace the chart of one with that of the other."""
    owners: dict[tuple[str, str], dict[str, None]] = {}
    for name, one in zip(plugins, releases):
        owners.setdefault((one.name, one.namespace), {})[name] = None
    return [
        f"Plugins {', '.join([*names][:-1])} and {[*names][-1]} have the same release {release} in namespace "
        f"{namespace}. Set release or namespace in gpu_kubernetes_cluster_charts.{[*names][-1]} to another one."
        for (release, namespace), names in owners.items()
        if len(names) > 1
    ]


def default_namespace(plugins: t.Sequence[str], releases: t.Sequence[ChartRelease]) -> list[str]:
    """Refuse the namespace in which the chart of NVIDIA's plugin cannot be installed."""
    return [
        f"{release.name}: chart nvidia-device-plugin refuses namespace default. Set namespace in "
        f"gpu_kubernetes_cluster_charts.{NVIDIA} to another one."
        for name, release in zip(plugins, releases)
        if name == NVIDIA and release.namespace == "default"
    ]
