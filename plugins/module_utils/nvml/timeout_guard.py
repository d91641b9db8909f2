# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Call NVML in a child process, so that a driver that hangs or crashes its caller does not affect the module.

The child sends each answer when it arrives, so earlier answers survive a timeout. A process that waits inside a faulty
driver may not respond to SIGKILL. The parent therefore kills a child that times out, but does not wait for it.

The initialization of NVML takes longest, so slow modules are imported after the child has started.
"""

from __future__ import annotations

import mmap
import os
import select
import time

_CALL_NAME_SIZE = 128


class Query:
    """A child process that calls NVML while its parent continues."""

    def __init__(
        self, subsets, timeout: float = 10, binding_path: str | None = None, prefix: str | None = None
    ) -> None:
        self._timeout = timeout
        self._current_call = mmap.mmap(-1, _CALL_NAME_SIZE)
        self._reader, writer = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            _run_child(writer, self._current_call, subsets, binding_path, prefix)
        os.close(writer)

    def answer(self) -> dict:
        """Wait for the child and return what it read. Call this once.

        The answer has `library`, `binding`, `driver`, `count`, `gpus` and, if requested, `topology`. If it is
        incomplete, `failure` (code and text), `binding_missing`, `timed_out_in` or `crash` (texts) has the cause.
        """
        try:
            return _receive(self._child, self._reader, self._current_call, self._timeout)
        finally:
            os.close(self._reader)


def _run_child(writer: int, current_call: mmap.mmap, *arguments) -> None:
    """Run the child's code and end the process."""
    try:
        from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import child_process as nvml_child  # noqa: PLC0415

        nvml_child.run(writer, current_call, *arguments)
    except BaseException:
        # The child must never continue as a second Ansible module.
        os._exit(1)
    os._exit(0)


def _receive(child: int, reader: int, current_call: mmap.mmap, timeout: float) -> dict:
    import json  # noqa: PLC0415 (see the top of the file)
    import signal  # noqa: PLC0415

    answer: dict = {"gpus": []}
    pending = b""
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            os.kill(child, signal.SIGKILL)
            _reap(child, patience=0)
            answer["timed_out_in"] = current_call[:].rstrip(b"\0").decode("ascii", "replace")
            return answer
        data = os.read(reader, 1 << 16)
        if not data:
            answer["crash"] = _exit_reason(_reap(child, patience=1))
            return answer
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            deadline = time.monotonic() + timeout  # Every answer shows that the driver works.
            if line.startswith(b"/"):
                answer["library"] = os.fsdecode(line)
                continue
            part = json.loads(line)
            if "end" in part:
                _reap(child, patience=0)
                return answer
            if "gpu" in part:
                answer["gpus"].append(part["gpu"])
            else:
                answer.update(part)


def _reap(child: int, patience: float) -> int | None:
    """Return the status of an ended child. A child that does not end is left to init."""
    deadline = time.monotonic() + patience
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.01)


def _exit_reason(status: int | None) -> str:
    import signal  # noqa: PLC0415 (see the top of the file)

    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"the process was killed by signal {number} ({signal.strsignal(number) or 'unknown'})"
    return "the process ended without an answer"
