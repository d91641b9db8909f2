# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugin of gpu_fleet_text: print the state of a fleet after a run.

The documentation is in plugins/modules/gpu_fleet_text.py, the text in module_utils/site/end_of_run_text.py.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.site import end_of_run_text
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import text_output

_SPEC = {"hosts": {"type": "list", "elements": "dict", "required": True}}


class ActionModule(ActionBase):
    """See the module's documentation."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _checked, options = self.validate_argument_spec(_SPEC)
        return text_output.show(end_of_run_text.render(options["hosts"], is_check=bool(self._task.check_mode)))
