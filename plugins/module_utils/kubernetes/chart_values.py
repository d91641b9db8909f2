# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values of a chart that follow from the variables of role gpu_kubernetes_cluster. Pure functions."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.unusable_chart_variables import NVIDIA, OPERATOR


def merged(base: t.Mapping[str, t.Any], over: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return a tree with the keys of another one over it."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def of_variables(name: str, request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the values of a chart that follow from the variables."""
    if name == OPERATOR:
        # This collection prepares the nodes.
        values = {"driver": {"enabled": False}, "toolkit": {"enabled": False}}
        values["mig"] = {"strategy": request["nvidia_mig_strategy"]}
        text = _plugin_config(request)
        if text:
            config = {"create": True, "name": "gpufleet-device-plugin", "default": "default", "data": {"default": text}}
            values["devicePlugin"] = {"config": config}
        return values
    if name != NVIDIA:
        return {}
    values = {
        "gfd": {"enabled": request["nvidia_feature_discovery"]},
        "deviceListStrategy": request["nvidia_device_list_strategy"],
        "migStrategy": request["nvidia_mig_strategy"],
        **({"runtimeClassName": request["runtime_class"]} if request["runtime_class"] else {}),
    }
    text = _plugin_config(request)
    return {**values, **({"config": {"map": {"default": text}}} if text else {})}


def _plugin_config(request: t.Mapping[str, t.Any]) -> str | None:
    """Return the configuration file of NVIDIA's device plugin, None if its flags are enough. JSON is YAML, too."""
    if request["nvidia_sharing"] == "none":
        return None
    kind = {"time_slicing": "timeSlicing", "mps": "mps"}[request["nvidia_sharing"]]
    resources = [{"name": "nvidia.com/gpu", "replicas": request["nvidia_replicas"]}]
    config = {
        "version": "v1",
        "flags": {"migStrategy": request["nvidia_mig_strategy"]},
        "sharing": {kind: {"resources": resources}},
    }
    return json.dumps(config, indent=2) + "\n"
