# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of `accelerator_facts`, and the result for given options."""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import gather_all_vendors, nvidia_devices
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import option_limits as base_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import module_call as facts_call
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import without_pynvml
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import VENDORS

OPTIONS: dict[str, dict[str, Any]] = {
    "vendors": {
        "type": "list",
        "elements": "str",
        "choices": list(VENDORS),
        "default": list(VENDORS),
    },
    "read_ras": {"type": "bool", "default": False},
    "timeout": {"type": "float", "default": 10},
    "driver_root": {"type": "path"},
    "_nvml_binding_path": {"type": "path"},
}


def result(options: dict[str, Any], run: Callable[..., Any], root: str = "/") -> dict[str, Any]:
    """Return the module's result. It has `failed` and `msg` if an option is invalid.

    If the host has a driver of NVIDIA but no pynvml, the result has `nvml_binding_missing`, and NVIDIA's state is an
    error. The other vendors are complete.
    """
    fault = base_options.timeout_fault(options["timeout"]) or base_options.driver_root_fault(options["driver_root"])
    if fault:
        return {"failed": True, "msg": fault}
    answer: dict[str, Any] = {}

    def nvidia_facts() -> dict[str, Any]:
        wanted = {name: options[name] for name in ("timeout", "driver_root", "_nvml_binding_path")}
        wanted["gather_subset"] = list(nvidia_devices.SUBSETS)
        found = facts_call.result(wanted, run)
        if found.get("nvml_binding_missing"):
            found = without_pynvml.result(wanted, run, found)
        answer.update(found)
        return found["ansible_facts"]

    facts = gather_all_vendors.gather(nvidia_facts, root=root, vendors=options["vendors"], read_ras=options["read_ras"])
    missing = {"nvml_binding_missing": True} if answer.get("nvml_binding_missing") else {}
    return {"changed": False, "ansible_facts": facts, **missing}
