# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of a host with a driver but without pynvml, for a caller that cannot send pynvml.

Ansible's `gather_facts` runs the modules in FACTS_MODULES without their action plugins. A failed module would end the
play on the host before its first task, so this module returns a state instead.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import (
    combined_facts,
    gather,
    gather_subset_option,
    gpu_state,
    module_call,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import pynvml_kept_until_boot


class _NoQuery:
    """NVML is not called."""

    def __init__(self, *_arguments: Any) -> None:
        """Take the arguments of guard.Query."""

    def answer(self) -> dict:
        """Return the answer of a host without NVML."""
        return combined_facts.answer_without_module("unknown")


def result(options: dict, run, missing: dict) -> dict:
    """Return the result with the pynvml that an earlier task kept on the host, else facts without NVML.

    `missing` is the failed result of a call without pynvml. An action plugin sees `nvml_binding_missing`, and calls the
    module again with the controller's pynvml.
    """
    kept = None if options["_nvml_binding_path"] else pynvml_kept_until_boot.remembered()
    if kept is not None:
        found = module_call.result({**options, "_nvml_binding_path": kept}, run)
        if not found.get("nvml_binding_missing"):
            return found
    facts = gather.gather(
        gather_subset_option.choose_subsets(options["gather_subset"]),
        run=run,
        timeout=options["timeout"],
        driver_root=options["driver_root"],
        query=_NoQuery,
    )["facts"]
    reason = f"{missing['msg']} The controller sends pynvml with tasks of this module, but not with gather_facts."
    facts.update(nvidia_gpu_state=gpu_state.ERROR, nvidia_gpu_state_reason=reason)
    return {
        "changed": False,
        "ansible_facts": facts,
        "nvml_binding": None,
        "nvml_binding_version": None,
        "nvml_binding_missing": True,
    }
