# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the result of each task to a file, one JSON object per line. tests/gpu/run evaluates the file."""

from __future__ import annotations

import json
import os
import time

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: acceptance_events
type: aggregate
short_description: Task results as JSON lines
description:
  - Appends an object with task, item, status, result and seconds for each task and each loop item. The environment
    variable ACCEPTANCE_EVENTS contains the path of the file.
"""


class CallbackModule(CallbackBase):
    """Write task results in order."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "acceptance_events"
    CALLBACK_NEEDS_ENABLED = False

    def __init__(self, *arguments, **more) -> None:
        super().__init__(*arguments, **more)
        self._path = os.environ.get("ACCEPTANCE_EVENTS")
        self._started = time.monotonic()

    def v2_playbook_on_task_start(self, task, is_conditional) -> None:
        self._started = time.monotonic()

    def _write(self, status: str, result) -> None:
        if not self._path:
            return
        answer = result.result
        event = {
            "task": result.task.get_name().rpartition(" : ")[2],
            "item": answer.get("item"),
            "status": status,
            "seconds": round(time.monotonic() - self._started, 3),
            "result": answer,
        }
        self._started = time.monotonic()
        with open(self._path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(event, default=str) + "\n")

    def v2_runner_on_ok(self, result) -> None:
        if "results" not in result.result:
            self._write("ok", result)

    def v2_runner_on_failed(self, result, ignore_errors=False) -> None:
        if "results" not in result.result:
            self._write("failed", result)

    def v2_runner_on_skipped(self, result) -> None:
        self._write("skipped", result)

    def v2_runner_on_unreachable(self, result) -> None:
        self._write("unreachable", result)

    def v2_runner_item_on_ok(self, result) -> None:
        self._write("ok", result)

    def v2_runner_item_on_failed(self, result) -> None:
        self._write("failed", result)

    def v2_runner_item_on_skipped(self, result) -> None:
        self._write("skipped", result)
