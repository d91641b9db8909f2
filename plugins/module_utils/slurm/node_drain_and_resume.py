# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask Slurm about a node and its jobs, and drain and resume the node. Every command has a time limit."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown

# Seconds for one command.
TIMEOUT = 30
# Exit statuses of `timeout`: the limit passed, and the program had to be killed.
_LATE = (124, 137)
# The program does not exist.
_MISSING = 127
# Job states in which a job occupies its nodes: squeue(1), "JOB STATE CODES".
_OCCUPYING = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STOPPED,SIGNALING,STAGE_OUT"
# Base states of a node with jobs: sinfo(1), "NODE STATE CODES".
_BUSY = {"ALLOCATED", "MIXED", "COMPLETING"}
_SILENT = ("NOT_RESPONDING", "UNKNOWN")
# A node with one of these flags gets no new job.
_CLOSED = {"DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING"}
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)
_MOST_JOBS = 20
# How often, and with how many seconds in between, a node is resumed whose state the controller does not know yet.
_ATTEMPTS, _PAUSE = 15, 2


class SlurmError(Exception):
    """Slurm does not answer, or refuses a request."""


@dataclass(frozen=True)
class SlurmNode:
    """A node, as the controller describes it. `reason` is the administrator's text without its author."""

    name: str
    states: frozenset[str]
    reason: str = ""
    author: str = ""
    gres: str = ""
    # slurmd has not answered yet, or no longer.
    is_silent: bool = False

    @property
    def is_closed(self) -> bool:
        """Return whether the node gets no new job."""
        return bool(self.states & _CLOSED)

    @property
    def is_busy(self) -> bool:
        """Return whether jobs occupy the node."""
        return bool(self.states & _BUSY)

    @property
    def is_down(self) -> bool:
        """Return whether the controller regards the node as down."""
        return "DOWN" in self.states


def parse_node(text: str) -> SlurmNode:
    """Read the output of `scontrol show node NAME`, which has several lines."""
    name = re.search(r"^NodeName=(\S+)", text, re.MULTILINE)
    # State stands before all texts that a user can choose.
    state = re.search(r"^\s+State=(\S+)", text, re.MULTILINE)
    if name is None or state is None:
        raise SlurmError(f"scontrol printed no node: {shown(text.strip())}")
    gres = re.search(r"^\s+Gres=(\S+)", text, re.MULTILINE)
    reason = re.search(r"^\s+Reason=(.*?)(?: \[([^\[\]@]*)@[^\[\]]*\])?$", text, re.MULTILINE)
    return SlurmNode(
        name=name.group(1),
        # The suffixes *, ~, #, ! and others of the base state: sinfo(1).
        states=frozenset(re.sub(r"[^A-Z_]", "", part) for part in state.group(1).upper().split("+")),
        reason=reason.group(1) if reason else "",
        author=(reason.group(2) or "") if reason else "",
        # Newer releases write the suffix * as a flag.
        is_silent="*" in state.group(1) or any(word in state.group(1).upper() for word in _SILENT),
        gres="" if gres is None or gres.group(1) == "(null)" else gres.group(1),
    )


class SlurmClient:
    """Slurm's commands on this host. `programs`: the directory of the commands, if not in the system's PATH."""

    def __init__(
        self,
        run: Run,
        node: str,
        programs: str | None = None,
        timeout: float = TIMEOUT,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not _NODE_NAME.fullmatch(node):
            raise SlurmError(f"{shown(node)} is not the name of one Slurm node. Set the name of this host's node.")
        self._run, self.name, self._programs, self._timeout = run, node, programs, timeout
        self._sleep = sleep

    def node(self) -> SlurmNode:
        """Return the node."""
        return parse_node(self._call("scontrol", "show", "node", self.name))

    def jobs(self) -> list[str]:
        """Return the jobs that occupy the node, as texts for messages."""
        lines = self._call(
            "squeue", "--noheader", f"--nodelist={self.name}", f"--states={_OCCUPYING}", "--format=%i %u %T"
        ).splitlines()
        jobs = [line.split(maxsplit=2) for line in lines if len(line.split()) >= 3]
        texts = [f"job {shown(number)} of {shown(user)} ({shown(state)})" for number, user, state in jobs]
        more = len(texts) - _MOST_JOBS
        return texts[:_MOST_JOBS] + ([f"{more} more jobs"] if more > 0 else [])

    def job_details(self) -> str:
        """Return the details of all jobs, with the GPUs of each node."""
        return self._call("scontrol", "--details", "show", "job")

    def drain(self, reason: str) -> None:
        """Give the node no new job. Running jobs continue. An earlier reason is replaced."""
        self._call("scontrol", "update", f"NodeName={self.name}", "State=DRAIN", f"Reason={reason}")

    def resume(self, node: SlurmNode) -> None:
        """Give the node new jobs again."""
        for left in reversed(range(_ATTEMPTS)):
            # RESUME is refused for an idle node, and UNDRAIN does not end DOWN, which follows a reboot.
            verb = "RESUME" if node.is_down else "UNDRAIN"
            try:
                self._call("scontrol", "update", f"NodeName={self.name}", f"State={verb}")
            except SlurmError:
                # A controller that has just started does not know the state of a node before slurmd answers. It then
                # returns an error, although it can have ended the drain (measured with Slurm 22.05).
                node = self.node()
                if not node.is_closed:
                    return
                if "UNKNOWN" not in node.states or not left:
                    raise
                self._sleep(_PAUSE)
                node = self.node()
            else:
                return

    def _call(self, program: str, *arguments: str) -> str:
        path = os.path.join(self._programs, program) if self._programs else program
        limit = ["timeout", "--kill-after=2", str(self._timeout)]
        status, out, err = self._run([*limit, path, *arguments])
        if status in _LATE:
            raise SlurmError(
                f"Slurm's controller did not answer `{program} {arguments[0]}` within {self._timeout:g} seconds. "
                "Check slurmctld and the network."
            )
        if status == _MISSING:
            raise SlurmError(
                f"{path} cannot be found on this host. Install Slurm's client, or set the directory of its programs."
            )
        if status:
            cause = shown((err or out).strip().replace("\n", " ")) or f"exit status {status}"
            raise SlurmError(f"`{program} {' '.join(arguments[:2])}` failed for node {self.name}: {cause}")
        return out
