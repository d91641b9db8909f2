# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugin of gpu_workload: it sends the controller's pynvml if the adapter lists the containers with GPUs."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.plugin_utils.nvml_binding import NvmlAction

_WITH_GPU_FACTS = ("docker", "podman")


class ActionModule(NvmlAction):
    """Run the module. The base class in plugin_utils/nvml_binding.py sends pynvml."""

    def run(self, tmp=None, task_vars=None):
        if self._task.args.get("adapter") in _WITH_GPU_FACTS:
            return super().run(tmp, task_vars)
        super(NvmlAction, self).run(tmp, task_vars)
        wrap_async = bool(self._task.async_val) and not self._connection.has_native_async
        return self._execute_module(task_vars=task_vars, wrap_async=wrap_async)
