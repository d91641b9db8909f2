# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that reads the GPUs of a host: the modules that it needs besides ours, and its result."""

from __future__ import annotations

import os

from ansible_collections.gpufleet.hosts.plugins.plugin_utils.nvml_binding import archive_name

# All results of the module.
_RESULT = ("changed", "failed", "msg", "ansible_facts", "nvml_binding", "nvml_binding_version", "nvml_binding_missing")
_FACTS = (
    "nvidia_gpu_state",
    "nvidia_gpu_state_reason",
    "nvidia_driver",
    "nvidia_gpus",
    "nvidia_pci_devices",
    "nvidia_nvswitches",
    "nvidia_topology",
)


def with_binding(options: dict, binding: str | None) -> tuple[dict, dict] | None:
    """Return the options of the program, and the modules of the controller's binding by the name of their archive.

    Return None if the program cannot contain the binding.
    """
    if binding is None:
        return {**options, "_nvml_binding_path": None}, {}
    if os.path.basename(binding) == "__init__.py":
        return None  # An old pynvml is a package. The program supports only a single file.
    name = archive_name(binding)
    return {**options, "_nvml_binding_path": name}, {name: {"pynvml": binding}}


def known_result(answer: dict | None) -> dict | None:
    """Return the answer of a host with only the results and facts of the module, or None if it is not a result."""
    if answer is None:
        return None
    result = {name: value for name, value in answer.items() if name in _RESULT}
    facts = result.get("ansible_facts")
    if facts is not None:
        if not isinstance(facts, dict):
            return None
        result["ansible_facts"] = {name: value for name, value in facts.items() if name in _FACTS}
    return result
