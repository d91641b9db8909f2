# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of the adapters of module gpu_workload. The controller checks them before a run."""

from __future__ import annotations

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
    "slurm": {"node": {"type": "str"}, "directory": {"type": "path"}},
    "kubernetes": {
        "node": {"type": "str"},
        "kubectl": {"type": "list", "elements": "str", "default": ["kubectl"]},
        "kubeconfig": {"type": "path"},
        "context": {"type": "str"},
        "gpus_only": {"type": "bool", "default": False},
        "delete_emptydir": {"type": "bool", "default": False},
        "delete_unmanaged": {"type": "bool", "default": False},
        "labels": {"type": "dict", "default": {}},
    },
}
