# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of the adapters of module gpu_workload. The controller checks them before a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STOP = {"type": "bool", "default": False}
_ARGV = {"type": "list", "elements": "str", "required": True}
# The option of the module that has the name of the adapter, as an argument_spec.
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "docker": {"stop": _STOP, "docker_host": {"type": "str"}},
    "podman": {"stop": _STOP},
    "systemd": {"units": {"type": "list", "elements": "str", "required": True}},
    "command": {
        "view": _ARGV,
        "close": _ARGV,
        "reopen": _ARGV,
        "environment": {"type": "dict", "default": {}, "no_log": True},
        "timeout": {"type": "int", "default": 60},
    },
    "slurm": {"node": {"type": "str"}, "programs": {"type": "path"}},
    "kubernetes": {
        "node": {"type": "str"},
        "kubectl": {"type": "list", "elements": "str", "default": ["kubectl"]},
        "kubeconfig": {"type": "path"},
        "context": {"type": "str"},
        "gpus_only": {"type": "bool", "default": False},
        "delete_emptydir": {"type": "bool", "default": False},
        "delete_unmanaged": {"type": "bool", "default": False},
        "ignore_daemonsets": {"type": "bool", "default": False},
        "labels": {"type": "dict", "default": {}},
    },
}


def without_effect(params: Mapping[str, Any]) -> str | None:
    """Return which given option of module gpu_workload would have no effect, or None."""
    adapter, verb = params["adapter"], params["verb"]
    for name, spec in OPTIONS.items():
        values = params.get(name) or {}
        given = [option for option, value in values.items() if value not in (None, spec[option].get("default"))]
        if name != adapter and given:
            return f"{name}.{given[0]} is set, but adapter is {adapter}. Remove the option, or set adapter to {name}."
    if params.get("failed_step") and verb != "end":
        return f"failed_step is set, but verb is {verb}. Only verb end keeps a host drained. Set verb to end."
    return None
