# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask NVML in a child process, so that a driver that hangs or crashes its callers takes none of ours along.

The child tells what it learns piece by piece: what was learnt before a GPU fell silent is not lost. A process that
waits inside a sick driver can not even be killed, so a silent child is told to go and never waited for.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import time

_CALL_NAME_SIZE = 128


def ask(subsets, timeout: float = 10, binding_path: str | None = None, prefix: str | None = None) -> dict:
    """Ask for the driver, the GPUs and, where it is among the subsets, their topology.

    The answer holds what was learnt (`library`, `binding`, `driver`, `count`, `gpus`, `topology`) and, where it did
    not come to its end, why: `failure` (code and text), `binding_missing`, `silent_in` or `crash` (texts).
    """
    return Inquiry(subsets, timeout, binding_path, prefix).answer()


class Inquiry:
    """A child that asks NVML, while its parent has other things to do until it wants the answer."""

    def __init__(
        self, subsets, timeout: float = 10, binding_path: str | None = None, prefix: str | None = None
    ) -> None:
        self._timeout = timeout
        self._board = mmap.mmap(-1, _CALL_NAME_SIZE)
        self._reader, writer = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            _be_the_child(writer, self._board, subsets, binding_path, prefix)
        os.close(writer)

    def answer(self) -> dict:
        """Wait for all that the child learns, as `ask` describes it; to be called once."""
        try:
            return _listen(self._child, self._reader, self._board, self._timeout)
        finally:
            os.close(self._reader)


def _be_the_child(writer: int, board: mmap.mmap, *question) -> None:
    """Answer and vanish. Never returns."""
    try:
        from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import child as nvml_child  # noqa: PLC0415

        nvml_child.run(writer, board, *question)
    except BaseException:
        # Whatever it is, this process must not go on as a second Ansible module.
        os._exit(1)
    os._exit(0)


def _listen(child: int, reader: int, board: mmap.mmap, timeout: float) -> dict:
    answer: dict = {"gpus": []}
    pending = b""
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            os.kill(child, signal.SIGKILL)
            _reap(child, patience=0)
            answer["silent_in"] = board[:].rstrip(b"\0").decode("ascii", "replace")
            return answer
        data = os.read(reader, 1 << 16)
        if not data:
            answer["crash"] = _how_it_died(_reap(child, patience=1))
            return answer
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            deadline = time.monotonic() + timeout  # Every piece of news shows that the driver does answer.
            news = json.loads(line)
            if "end" in news:
                _reap(child, patience=0)
                return answer
            if "gpu" in news:
                answer["gpus"].append(news["gpu"])
            else:
                answer.update(news)


def _reap(child: int, patience: float) -> int | None:
    """Take a dead child's status. One that will not die is left to init."""
    deadline = time.monotonic() + patience
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.01)


def _how_it_died(status: int | None) -> str:
    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"it was killed by signal {number} ({signal.strsignal(number) or 'unknown'})"
    return "it ended without an answer"
