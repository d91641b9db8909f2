# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verbs of module gpu_workload: begin, poll, abort and end of a drain, with any adapter.

The record is written before each change. A killed run therefore leaves nothing that the next run of its owner does not
know, and nobody's drain is ended by someone else.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_protocol import (
    EvictingAdapter,
    WorkloadAdapter,
    WorkloadError,
    WorkloadView,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_reason import (
    FAILED,
    is_reason,
    reason_text,
    shown_reason,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_record import (
    DRAINED,
    WorkloadRecord,
    WorkloadRecords,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.kubernetes_adapter import (
    KubernetesRecords,
)

INTERRUPTED = "a run that was interrupted"
_FOREIGN_GAP = "Whoever drained this host can give it new work at any time."
# Seconds between two looks at the work.
_INTERVAL = 5


class WorkloadDrain:
    """A drain of this host by one owner. `check`: only say what would change."""

    def __init__(
        self,
        adapter: WorkloadAdapter,
        records: WorkloadRecords | KubernetesRecords,
        owner: str,
        *,
        check: bool = False,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._adapter, self._records, self._owner = adapter, records, owner
        self._check, self._clock, self._sleep = check, clock, sleep

    def begin(self, reason: str, timeout: int) -> dict[str, Any]:
        """Give the host no new work, and stop what the adapter may stop. Repeating it continues the drain."""
        record, view = self._records.read(), self._adapter.view()
        if self._drains_nothing(record):
            return self._nothing(view)
        if record is not None and record.owner != self._owner:
            return self._result(record, view, foreign=_drained_by(record))
        if record is not None and record.adapter != self._adapter.name:
            raise WorkloadError(
                f"{self._owner} drained this host with adapter {record.adapter}, and cannot continue with "
                f"{self._adapter.name}. End the drain with adapter {record.adapter} first."
            )
        is_new = record is None
        if record is None:
            text = reason_text(self._owner, reason)
            record = WorkloadRecord(self._owner, self._adapter.name, text, self._clock(), timeout)
        elif record.phase == DRAINED and not record.failed_step:
            record = dataclasses.replace(record, failed_step=INTERRUPTED)
        foreign = self._foreign(record, view, is_new=is_new)
        closes = self._adapter.closes and foreign is None
        stops = tuple(one for one in view.stoppable if one not in record.stopped)
        record = dataclasses.replace(
            record, began=self._clock(), timeout=timeout, closes=closes, stopped=(*record.stopped, *stops)
        )
        acts = closes and not view.closed
        if not self._check:
            self._records.write(record)
            if acts:
                self._adapter.close(record.reason)
            if view.stoppable:
                self._adapter.stop(view.stoppable)
            changes = bool(acts or view.stoppable or stops)
            view = self._adapter.view() if acts or view.stoppable else view
            evicted, view = self._evicted(view)
            return self._result(record, view, changed=changes or evicted > 0, foreign=foreign)
        return self._result(record, view, changed=bool(acts or view.stoppable or stops), foreign=foreign)

    def poll(self, wait: float) -> dict[str, Any]:
        """Wait until no work runs, at most `wait` seconds and never longer than the time limit of the drain."""
        record = self._records.read()
        if self._drains_nothing(record):
            return self._nothing(self._adapter.view())
        if record is None:
            raise WorkloadError(f"{self._owner} has not drained this host. Run this module with verb begin first.")
        until, evicted = self._clock() + wait, 0
        while True:
            view = self._adapter.view()
            if record.owner == self._owner and record.closes and not view.closed:
                raise WorkloadError(
                    "Somebody gave this host new work again while it was being drained. Nothing was changed. Find out "
                    "who, and run again."
                )
            left = min(until, record.began + record.timeout) - self._clock()
            # After the time limit, nothing more is ended.
            if record.owner == self._owner and record.began + record.timeout > self._clock() and not self._check:
                count, view = self._evicted(view)
                evicted += count
            if not view.work or left <= 0 or self._check:
                break
            self._sleep(min(_INTERVAL, left))
        if record.owner == self._owner and not view.work and record.phase != DRAINED and not self._check:
            record = dataclasses.replace(record, phase=DRAINED)
            self._records.write(record)
        return self._result(record, view, changed=evicted > 0, foreign=self._foreign(record, view))

    def abort(self) -> dict[str, Any]:
        """Undo a drain before anything else was changed. After a failed step, the host stays drained."""
        record = self._records.read()
        if record is not None and record.owner == self._owner and record.failed_step:
            kept = (
                f"The host stays drained, because this failed: {record.failed_step}. The next successful run ends it."
            )
            return self._result(record, self._adapter.view(), notes=[kept])
        return self._undo(record)

    def end(self, failed_step: str = "") -> dict[str, Any]:
        """Give the host new work again, or say which step failed and keep the host drained."""
        record = self._records.read()
        if not failed_step or record is None or record.owner != self._owner:
            return self._undo(record)
        failed = dataclasses.replace(record, failed_step=reason_text(failed_step))
        if not self._check:
            # First, so that the step is known even if the scheduler does not answer now.
            self._records.write(failed)
        view = self._adapter.view()
        foreign = self._foreign(record, view)
        closes = record.closes and foreign is None
        reason = reason_text(record.reason, f"{FAILED}{failed.failed_step}")
        changed = failed != record or (closes and view.reason != shown_reason(reason))
        if closes and not self._check:
            self._adapter.close(reason)
            view = self._adapter.view()
        return self._result(failed, view, changed=changed, foreign=foreign)

    def _evicted(self, view: WorkloadView) -> tuple[int, WorkloadView]:
        """Evict work, and return how much was accepted, and the work afterwards. An open node would get it back."""
        if not isinstance(self._adapter, EvictingAdapter) or not view.closed or not view.work:
            return 0, view
        return self._adapter.evict(), self._adapter.view()

    def _drains_nothing(self, record: WorkloadRecord | None) -> bool:
        return record is None and self._adapter.name == "none"

    def _nothing(self, view: WorkloadView) -> dict[str, Any]:
        return {**self._result(None, view), "ready": True, "gaps": list(self._adapter.gaps)}

    def _undo(self, record: WorkloadRecord | None) -> dict[str, Any]:
        view = self._adapter.view()
        if record is None:
            return self._result(None, view)
        if record.owner != self._owner:
            return self._result(record, view, foreign=_drained_by(record))
        if record.adapter != self._adapter.name:
            raise WorkloadError(
                f"{self._owner} drained this host with adapter {record.adapter}. End the drain with that adapter, not "
                f"with {self._adapter.name}."
            )
        foreign = self._foreign(record, view)
        opens = record.closes and view.closed and foreign is None
        notes: list[str] = []
        if not self._check:
            # Services first: a scheduler may send work that needs them.
            notes = self._adapter.start(record.stopped) if record.stopped else []
            if opens:
                self._adapter.reopen()
            self._records.remove()
            view = self._adapter.view()
        result = self._result(None, view, changed=bool(opens or record.stopped), foreign=foreign, notes=notes)
        return {**result, "stopped": [], "started": list(record.stopped)}

    def _foreign(self, record: WorkloadRecord, view: WorkloadView, *, is_new: bool = False) -> str | None:
        """Return who else closed this host. Two drains differ in their reasons."""
        if not view.closed:
            return None
        # A program of the user may not know the reason. A scheduler without a reason was closed by somebody else.
        is_unknown = not view.reason and self._adapter.name == "command"
        is_ours = is_unknown or is_reason(view.reason, record.reason)
        if not is_new and record.closes and is_ours:
            return None
        return f"{view.author or 'somebody'}: {view.reason or 'no reason given'}"

    def _result(
        self,
        record: WorkloadRecord | None,
        view: WorkloadView,
        *,
        changed: bool = False,
        foreign: str | None = None,
        notes: list[str] | None = None,
    ) -> dict[str, Any]:
        left = None if record is None else max(0, round(record.began + record.timeout - self._clock()))
        # A foreign drain may end at any time.
        gaps = [*self._adapter.gaps, *([_FOREIGN_GAP] if foreign else [])]
        return {
            "changed": changed,
            "owner": record.owner if record else None,
            "state": "foreign" if foreign else "none" if record is None else "waiting" if view.work else "drained",
            "ready": record is not None and not view.work,
            "waiting_for": list(view.work),
            "expired": bool(view.work) and left == 0,
            "seconds_left": left,
            "reason": view.reason or None,
            "foreign": foreign,
            "failed_step": (record.failed_step or None) if record else None,
            "stopped": list(record.stopped) if record else [],
            "started": [],
            "gaps": gaps if record else [],
            "notes": notes or [],
        }


def _drained_by(record: WorkloadRecord) -> str:
    return f"{shown_reason(record.owner)}: {shown_reason(record.reason)}"
