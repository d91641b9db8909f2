# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a drain on the host: who drained it, how, since when, and what was stopped."""

from __future__ import annotations

import dataclasses
import json
import math
import os

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import atomic_file, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_protocol import WorkloadError

DRAINING, DRAINED = "draining", "drained"


@dataclasses.dataclass(frozen=True)
class WorkloadRecord:
    """A drain. `closes`: we closed the host for new work; false if somebody else had closed it before.

    `began` is a time of the wall clock. `failed_step`: what failed after the drain; only a successful run ends it then.
    """

    owner: str
    adapter: str
    reason: str
    began: float
    timeout: int
    closes: bool = False
    phase: str = DRAINING
    failed_step: str = ""
    stopped: tuple[str, ...] = ()


class WorkloadRecords:
    """The file of the record. `root` is / except in tests."""

    def __init__(self, root: str = "/", path: str = owned.DRAIN_RECORD) -> None:
        self._root, self._shown = root, path
        self._path = os.path.join(root, path.lstrip("/"))

    def read(self) -> WorkloadRecord | None:
        """Return the record, or None if this collection drained nothing."""
        text = read_text(self._root, self._shown)
        if text is None:
            if os.path.lexists(self._path):
                raise WorkloadError(f"{self._shown} cannot be read. Set become: true.")
            return None
        record = parse(text)
        if record is None:
            raise WorkloadError(
                f"{self._shown} is not a record of a drain, so the owner of a drain is unknown. Read the file, end the "
                "drain by hand if there is one, and remove the file."
            )
        return record

    def write(self, record: WorkloadRecord) -> None:
        """Replace the record. Done before each change, so that a killed run leaves no unrecorded drain."""
        os.makedirs(os.path.dirname(self._path), mode=0o755, exist_ok=True)
        text = json.dumps(dataclasses.asdict(record), indent=2) + "\n"
        atomic_file.put(self._path, text.encode(), lambda temporary: os.chmod(temporary, 0o644))

    def remove(self) -> None:
        """Remove the record."""
        if os.path.lexists(self._path):
            os.unlink(self._path)


def parse(text: str) -> WorkloadRecord | None:
    """Return the record in a text, or None if the text is none."""
    try:
        values = json.loads(text)
        known = {field.name for field in dataclasses.fields(WorkloadRecord)}
        record = WorkloadRecord(**{name: value for name, value in values.items() if name in known})
        texts = (record.owner, record.adapter, record.reason, record.phase, record.failed_step, *record.stopped)
        valid = (
            all(isinstance(one, str) for one in texts)
            and isinstance(record.closes, bool)
            and isinstance(values.get("stopped", []), list)
            and bool(record.owner and record.reason)
            and math.isfinite(record.began)
            and math.isfinite(record.timeout)
        )
        return (
            dataclasses.replace(
                record, began=float(record.began), timeout=int(record.timeout), stopped=tuple(record.stopped)
            )
            if valid
            else None
        )
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
