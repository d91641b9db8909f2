# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugin of gpu_slurm_config: it sends the controller's pynvml to hosts without one."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.plugin_utils.nvml_binding import NvmlAction


class ActionModule(NvmlAction):
    """Run the module. The base class in plugin_utils/nvml_binding.py sends pynvml."""
