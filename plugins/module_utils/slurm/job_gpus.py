# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs of a node that Slurm has given to jobs, from `scontrol --details show job`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import (
    auto_detection,
    configuration_files,
    gpu_types,
    reported_gres,
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


def numbered_files(gres_conf: str, node: str, node_gres: str) -> dict[int, frozenset[str]] | None:
    """Return the device nodes behind each number of a GPU, from the explicit lines of gres.conf and the node's Gres.

    slurmd numbers the GPUs in the order of the types in the Gres, and those of a type in the order of the lines. None
    if the files do not tell: AutoDetect is on, lines come from another file, or the Gres lacks the types.
    """
    if configuration_files.includes(gres_conf):
        return None
    lines = [line for line in configuration_files.parse(gres_conf) if configuration_files.applies(line, node)]
    if auto_detection.effective(lines) != "off":
        return None
    found: list[tuple[str, frozenset[str]]] = []
    for line in lines:
        if line.options.get("name", "").lower() != gpu_types.NAME:
            continue
        kind = line.options.get("type", "")
        if "multiplefiles" in line.options:
            paths = frozenset(configuration_files.expand(line.options["multiplefiles"]))
            # The GPU of several MIG devices stands in all of their lines.
            found.append((kind, frozenset(path for path in paths if "/nvidia-caps/" in path) or paths))
        elif "file" in line.options:
            found += [(kind, frozenset([path])) for path in configuration_files.expand(line.options["file"])]
        else:
            return None
    kinds = list(reported_gres.parse(node_gres)) or list(dict.fromkeys(kind for kind, _paths in found))
    if not {kind for kind, _paths in found} <= set(kinds):
        if len({kind for kind, _paths in found}) > 1:
            return None
        kinds = [kind for kind, _paths in found]
    found.sort(key=lambda one: kinds.index(one[0]))
    return dict(enumerate(paths for _kind, paths in found))
