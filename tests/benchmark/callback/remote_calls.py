# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record every module that runs on a host.

The plugin counts module executions instead of tasks. A task whose action plugin runs three modules counts three times.
A task that runs only on the controller does not count. The plugin wraps `ActionBase._execute_module` in the parent
process, from which Ansible forks the workers.
"""

from __future__ import annotations

import json
import os
import time

from ansible.plugins.action import ActionBase
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: remote_calls
type: aggregate
short_description: Module executions on hosts as JSON lines
description:
  - Appends an object with host, module, task and seconds for each module execution, and an object with the recap of
    each host. The environment variable REMOTE_CALLS contains the path of the file.
"""

PATH = os.environ.get("REMOTE_CALLS")


def _write(**entry) -> None:
    # A single write to a file in append mode is atomic, so the workers need no lock.
    descriptor = os.open(PATH, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, (json.dumps(entry) + "\n").encode())
    finally:
        os.close(descriptor)


def _counted(execute):
    def execute_module(self, module_name=None, *arguments, **more):
        started = time.monotonic()
        try:
            return execute(self, module_name, *arguments, **more)
        finally:
            _write(
                host=(more.get("task_vars") or {}).get("inventory_hostname") or self._play_context.remote_addr,
                module=module_name or self._task.action,
                task=self._task.get_name(),
                seconds=round(time.monotonic() - started, 3),
            )

    return execute_module


class CallbackModule(CallbackBase):
    """Wrap the method once, and write the recap at the end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "remote_calls"
    CALLBACK_NEEDS_ENABLED = False

    def __init__(self, *arguments, **more) -> None:
        super().__init__(*arguments, **more)
        if PATH and not hasattr(ActionBase._execute_module, "__wrapped__"):
            counted = _counted(ActionBase._execute_module)
            counted.__wrapped__ = ActionBase._execute_module
            ActionBase._execute_module = counted

    def v2_playbook_on_stats(self, stats) -> None:
        for host in sorted(stats.processed) if PATH else ():
            _write(host=host, recap=stats.summarize(host))
