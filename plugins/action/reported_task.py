# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugin of reported_task: run another task, and report what it does meanwhile."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import other_action, progress

_SPEC = {
    "module": {"type": "str", "required": True, "choices": ["ansible.builtin.command", "ansible.builtin.reboot"]},
    "arguments": {"type": "dict", "required": True},
    "text": {"type": "str", "required": True},
}


class ActionModule(ActionBase):
    """See the module's documentation."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _checked, options = self.validate_argument_spec(_SPEC)
        action = other_action.load(self, options["module"], options["arguments"])
        asks_host = options["module"] != "ansible.builtin.reboot"
        with progress.reported(self, progress.host_name(task_vars), options["text"], asks_host=asks_host):
            return action.run(task_vars=task_vars)
