# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which jobs of Slurm hold GPUs of a node: the states of jobs, and their GPUs in `scontrol --details show job`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import (
    configuration_files,
)

# States in which a job holds its GPUs: squeue(1).
_HOLDING = {"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT"}
# Older releases call it GRES_IDX.
_NODES = re.compile(r"^\s+Nodes=(\S+)\s.*?GRES(?:_IDX)?=(\S*)", re.MULTILINE)
_PART = re.compile(r"(gpu|shard|mps)((?::[^,:()]+)*)(?:\(([^()]*)\))?(?=,|$)")


@dataclass(frozen=True)
class SlurmAllocation:
    """The GPUs of one job on a node by their numbers. None: the job has GPUs, but Slurm does not tell which."""

    job: str
    user: str
    indexes: frozenset[int] | None


def allocations(text: str, node: str) -> list[SlurmAllocation]:
    """Return the allocations on a node."""
    found = []
    for block in re.split(r"\n(?=JobId=)", text):
        job = re.match(r"JobId=(\S+)", block)
        # The name of a job stands first and is the user's, so it can look like a state.
        states = set(re.findall(r"^\s+JobState=([A-Z_]+)", block, re.MULTILINE))
        user = re.search(r"^\s+UserId=([^\s(]+)", block, re.MULTILINE)
        if not job or not states & _HOLDING:
            continue
        for names, assigned in _NODES.findall(block):
            numbers = _indexes(assigned) if node in configuration_files.expand(names) else frozenset()
            if numbers is None or numbers:
                found.append(SlurmAllocation(job.group(1), user.group(1) if user else "", numbers))
    return found


def _indexes(text: str) -> frozenset[int] | None:
    """Return the GPUs in the GRES of a node. None if a job has GPUs or parts of them (shard, mps) without numbers."""
    numbers: set[int] = set()
    parts = _PART.findall(text)
    for _name, _type, detail in (part for part in parts if not re.fullmatch(r".*:0+", part[1])):
        match = re.search(r"IDX:([0-9,-]+)", detail)
        if match is None:
            return None
        for one in match.group(1).split(","):
            first, _sign, last = one.partition("-")
            if first.isdigit():
                numbers |= set(range(int(first), int(last or first) + 1))
    if not parts and re.search(r"\b(?:gpu|shard|mps)\b", text):
        return None
    return frozenset(numbers)
