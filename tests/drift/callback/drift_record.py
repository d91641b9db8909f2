# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record the changed tasks of a run, and the plans that it made."""

from __future__ import annotations

import json
import os

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: drift_record
type: aggregate
short_description: Changed and failed tasks, and plans of hosts, as JSON lines
description:
  - Appends an object with host, task, action and result for each changed or failed task.
  - Adds the observation and the changes to that object if the task planned the host.
  - The environment variable DRIFT_RECORD contains the path of the file.
"""

PLAN = "gpufleet.hosts.gpu_host_plan"


class CallbackModule(CallbackBase):
    """Write each result that the drift test needs."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "drift_record"
    CALLBACK_NEEDS_ENABLED = False

    def v2_runner_on_ok(self, result) -> None:
        self._result(result, "changed" if result.result.get("changed") else "ok")

    def v2_runner_on_failed(self, result, ignore_errors=False) -> None:
        self._result(result, "failed")

    def v2_runner_on_unreachable(self, result) -> None:
        self._result(result, "failed")

    @staticmethod
    def _result(result, status: str) -> None:
        is_plan = result.task.action == PLAN and status == "ok"
        path = os.environ.get("DRIFT_RECORD")
        if not path or (status == "ok" and not is_plan):
            return
        entry = {"host": result.host.get_name(), "task": result.task.get_name(), "action": result.task.action}
        entry["result"] = status
        if is_plan:
            plan = result.result
            # The result of a converged host is short, with the observation as text.
            host = plan["host"] if "host" in plan else json.loads(plan["host_text"])
            entry["plan"] = {"host": host, "changes": plan["changes"], "acting": plan["acting"]}
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")
