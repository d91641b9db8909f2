# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of `nvidia_gpu_facts`, and the result for given options.

This file imports nothing from Ansible, because that import takes longer than reading a GPU.
"""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import option_limits as base_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather, gather_subset_option
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import missing_pynvml

OPTIONS = {
    "gather_subset": {"type": "list", "elements": "str", "default": list(gather_subset_option.DEFAULT_SUBSETS)},
    "timeout": {"type": "float", "default": 10},
    "driver_root": {"type": "path"},
    "_nvml_binding_path": {"type": "path"},
}


def result(options: dict, run) -> dict:
    """Return the module's result. It has `failed` and `msg` if an option is invalid or pynvml is missing.

    `run` runs a program: it takes a list of arguments and returns status, output and errors.
    """
    timeout, driver_root = options["timeout"], options["driver_root"]
    fault = base_options.timeout_fault(timeout) or base_options.driver_root_fault(driver_root)
    if fault:
        return {"failed": True, "msg": fault}
    try:
        gathered = gather.gather(
            gather_subset_option.choose_subsets(options["gather_subset"]),
            run=run,
            timeout=timeout,
            binding_path=options["_nvml_binding_path"],
            driver_root=driver_root,
        )
    except gather_subset_option.SubsetError as error:
        return {"failed": True, "msg": str(error)}
    except missing_pynvml.BindingMissing as error:
        return {"failed": True, **error.result()}
    binding = gathered["binding"] or {}
    return {
        "changed": False,
        "ansible_facts": gathered["facts"],
        "nvml_binding": binding.get("origin"),
        "nvml_binding_version": binding.get("version"),
    }
