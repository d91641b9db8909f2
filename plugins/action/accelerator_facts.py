# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugin of accelerator_facts: it sends the controller's pynvml to hosts that need it and have none."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.hosts.plugins.plugin_utils.nvml_binding import NvmlAction, controller_binding


class ActionModule(NvmlAction):
    """Run the module as NvmlAction does. If pynvml is not needed or exists nowhere, run it once."""

    def run(self, tmp=None, task_vars=None):
        if controller_binding() is not None and _reads_nvidia(self._task.args.get("vendors")):
            return super().run(tmp, task_vars)
        ActionBase.run(self, tmp, task_vars)
        wrap_async = bool(self._task.async_val) and not self._connection.has_native_async
        return self._execute_module(task_vars=task_vars, wrap_async=wrap_async)


def _reads_nvidia(vendors) -> bool:
    """Return whether the option `vendors`, a list or a text with commas, names NVIDIA or is not set."""
    return vendors is None or "nvidia" in str(vendors)
