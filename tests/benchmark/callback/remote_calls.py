# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record every module that runs on a host, and every task result.

Modules: the plugin counts executions. A task whose action plugin runs three modules counts three times. A task that
runs only on the controller does not count. A program that replaces modules counts like one module. The plugin wraps the
functions that run them in the parent process, from which Ansible forks the workers.

Sent bytes: commands, their input, and files. What the connection adds does not count.

Task results: a task counts once per host, also if it loops or is skipped.
"""

from __future__ import annotations

import json
import os
import time

from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.plugins.callback import CallbackBase

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import host_python

DOCUMENTATION = r"""
name: remote_calls
type: aggregate
short_description: Module executions on hosts and task results as JSON lines
description:
  - Appends an object for each module execution (host, module, task, seconds), for each command and file that is sent
    (host, and the bytes in sent), and for each task result (host, result, task). The environment variable REMOTE_CALLS
    contains the path of the file.
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


def _counted_program(run):
    def run_program(action, *arguments):
        started = time.monotonic()
        result = run(action, *arguments)
        if result is not None:
            _write(
                host=action._templar.available_variables["inventory_hostname"],
                module=action._task.action,
                task=action._task.get_name(),
                seconds=round(time.monotonic() - started, 3),
            )
        return result

    return run_program


def _counting_sent(method, size):
    def send(self, *arguments, **more):
        _write(host=self._templar.available_variables["inventory_hostname"], sent=size(*arguments, **more))
        return method(self, *arguments, **more)

    return send


def _command_size(command, sudoable=True, in_data=None, **_more) -> int:
    return sum(len(part if isinstance(part, bytes) else part.encode()) for part in (command, in_data or ""))


def _file_size(local, _remote) -> int:
    return os.path.getsize(local)


class CallbackModule(CallbackBase):
    """Wrap the methods once, and write each task result."""

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
            host_python.run = _counted_program(host_python.run)
            for name, size in ("_low_level_execute_command", _command_size), ("_transfer_file", _file_size):
                setattr(ActionBase, name, _counting_sent(getattr(ActionBase, name), size))

    def v2_runner_on_ok(self, result) -> None:
        self._result(result, "changed" if result.result.get("changed") else "ok")

    def v2_runner_on_skipped(self, result) -> None:
        self._result(result, "skipped")

    def v2_runner_on_failed(self, result, ignore_errors=False) -> None:
        self._result(result, "failed")

    def v2_runner_on_unreachable(self, result) -> None:
        self._result(result, "failed")

    @staticmethod
    def _result(result, status: str) -> None:
        # Ansible calls back for a skipped `meta` of the whole play, too, but does not count it as a result of a host.
        if PATH and result.task.action not in C._ACTION_META:
            _write(host=result.host.get_name(), result=status, task=result.task.get_name())
