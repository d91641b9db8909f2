#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_gpu_facts
short_description: Discover the NVIDIA GPUs of a host
"""
RETURN = r""""""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils import gpu_facts
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import BindingMissing


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "gather_subset": {"type": "list", "elements": "str", "default": list(gpu_facts.DEFAULT_SUBSETS)},
            "timeout": {"type": "float", "default": 10},
            "driver_root": {"type": "path"},
            "_nvml_binding_path": {"type": "path"},
        },
        supports_check_mode=True,
    )
    try:
        subsets = gpu_facts.choose_subsets(module.params["gather_subset"])
        gathered = gpu_facts.gather(
            subsets,
            run=module.run_command,
            timeout=module.params["timeout"],
            binding_path=module.params["_nvml_binding_path"],
            driver_root=module.params["driver_root"],
        )
    except gpu_facts.SubsetError as error:
        module.fail_json(msg=str(error))
    except BindingMissing as error:
        module.fail_json(
            msg=f"There is an NVIDIA driver on this host, but no pynvml to ask it with ({error}). "
            f"Install python3-pynvml or nvidia-ml-py here, or nvidia-ml-py on the controller.",
            nvml_binding_missing=True,
        )
    binding = gathered["binding"] or {}
    module.exit_json(
        changed=False,
        ansible_facts=gathered["facts"],
        nvml_binding=binding.get("origin"),
        nvml_binding_version=binding.get("version"),
    )


if __name__ == "__main__":
    main()
