# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugin of gpu_host_info: it tells the module what the parts of the collection own on a host."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry


class ActionModule(ActionBase):
    """Run the module with the declarations of all parts."""

    TRANSFERS_FILES = False
    _supports_async = True
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        wrap_async = bool(self._task.async_val) and not self._connection.has_native_async
        arguments = {**self._task.args, "_declared": registry.observed()}
        return self._execute_module(module_args=arguments, task_vars=task_vars, wrap_async=wrap_async)
