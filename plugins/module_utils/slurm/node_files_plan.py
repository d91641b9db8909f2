# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the files of a GPU node of Slurm. Pure functions of what was read from the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import (
    auto_detection,
    cgroup_constrain_devices,
    configuration_files,
    gpu_types,
    node_findings,
    slurmd_at_boot,
    unusable_variables,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import gres_lines as slurm_gres_lines
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.node_drain_and_resume import SlurmNode

GRES, CGROUP = "gres.conf", "cgroup.conf"


@dataclasses.dataclass(frozen=True)
class SlurmHost:
    """What was read. `texts`: the files of the directory, None for a missing one. `detects`: the installed plugins.

    `configless`: slurmd gets its files from the controller. `node`: as the controller describes it; None if it does not
    know the node, or does not answer, which `unanswered` says. `hardware`: the line of `slurmd -C`. `has_directory`:
    whether the directory exists. `lacks_client`: the path of Slurm's client in a directory that the user named, if it
    is missing.
    """

    name: str
    directory: str
    texts: Mapping[str, str | None]
    devices: Sequence[Mapping[str, Any]]
    drop_in: str | None = None
    detects: tuple[str, ...] = ()
    installed: bool = True
    active: bool = False
    invocation: str = ""
    marker: str | None = None
    needs_reload: bool = False
    configless: bool = False
    node: SlurmNode | None = None
    unanswered: str | None = None
    hardware: str = ""
    has_directory: bool = True
    lacks_client: str = ""


@dataclasses.dataclass(frozen=True)
class SlurmRequest:
    """What the user wants."""

    present: bool = True
    detect: str = "off"
    types: Mapping[str, str] = dataclasses.field(default_factory=dict)
    constrain_devices: bool = True


@dataclasses.dataclass
class SlurmNodePlan:
    """What changes. `writes`: the new text by path, None for a file to remove. `gres_changes`: the node must drain.

    `problems`: what prevents the change. `findings`: what is wrong with the node apart from the files of the plan.
    """

    writes: dict[str, str | None] = dataclasses.field(default_factory=dict)
    changes: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    findings: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    gres_changes: bool = False
    daemon_reload: bool = False
    restart: bool = False
    gres_lines: list[str] = dataclasses.field(default_factory=list)
    node_gres: str = ""
    node_line: str = ""
    skipped: list[dict[str, str]] = dataclasses.field(default_factory=list)


def plan(host: SlurmHost, request: SlurmRequest) -> SlurmNodePlan:
    """Plan the files of a node."""
    result = SlurmNodePlan()
    selected, skipped = slurm_gres_lines.select(host.devices, request.types)
    result.skipped = [dataclasses.asdict(one) for one in skipped]
    result.notes = [f"{one.device} is not in gres.conf: {one.reason}." for one in skipped]
    if request.present:
        _describe(host, request, selected, result)
        result.problems += unusable_variables.problems(host, request, selected)
    _plan_gres(host, request, result)
    _plan_cgroup(host, request, result)
    _plan_drop_in(host, request, selected, result)
    if result.gres_changes and host.active and host.unanswered:
        result.problems.append(
            f"The devices of node {host.name} change, so its jobs must end first, but the node cannot be drained. "
            f"{host.unanswered}"
        )
    if result.problems:
        result.writes, result.changes, result.gres_changes = {}, [], False
        return result
    configures = bool(result.writes.keys() - {owned.SLURMD_DROP_IN})
    result.restart = host.active and (configures or (bool(host.invocation) and host.marker == host.invocation))
    result.daemon_reload = owned.SLURMD_DROP_IN in result.writes or host.needs_reload
    if result.restart:
        result.changes.append("restart slurmd.service")
    if request.present:
        result.findings = node_findings.findings(host, result.node_gres, constrains=request.constrain_devices)
    return result


def _describe(
    host: SlurmHost, request: SlurmRequest, selected: Sequence[slurm_gres_lines.SlurmGres], result: SlurmNodePlan
) -> None:
    others = _others(host, GRES)
    general = [line for line in others if "autodetect" in line.options and "nodename" not in line.options]
    if request.detect == "off":
        result.gres_lines = slurm_gres_lines.lines(host.name, selected, detection_off=bool(general))
    elif missing := auto_detection.missing_plugin(request.detect, host.detects):
        result.problems.append(missing)
    elif selected:
        result.gres_lines = [auto_detection.line(host.name, request.detect)]
    result.node_gres = slurm_gres_lines.node_gres(selected)
    start = host.hardware or f"NodeName={host.name}"
    result.node_line = f"{start} Gres={result.node_gres}" if result.node_gres else start


def _others(host: SlurmHost, name: str) -> list[configuration_files.SlurmLine]:
    """Return the lines of others that apply to this node."""
    text = configuration_files.without_block(host.texts.get(name) or "", host.name)
    return [line for line in configuration_files.parse(text) if configuration_files.applies(line, host.name)]


def _plan_gres(host: SlurmHost, request: SlurmRequest, result: SlurmNodePlan) -> None:
    wanted = result.gres_lines if request.present else []
    others = _others(host, GRES)
    foreign = [line for line in others if line.options.get("name", "").lower() == gpu_types.NAME]
    detection = auto_detection.contradiction(others, host.name, f"{host.directory}/{GRES}")
    path = f"{host.directory}/{GRES}"
    if host.configless:
        if wanted:
            result.notes.append(
                f"This node gets its configuration from the controller. Add these lines to {GRES} there: "
                f"{'; '.join(wanted)}"
            )
        return
    if foreign and wanted:
        numbers = ", ".join(str(line.number) for line in foreign)
        result.problems.append(
            f"{path} already describes GPUs of node {host.name} (line {numbers}). Slurm would count them twice. Remove "
            "these lines, or do not use this role for the node."
        )
        return
    if detection and wanted:
        result.problems.append(detection)
        return
    if wanted and configuration_files.includes(host.texts.get(GRES) or ""):
        result.notes.append(
            f"{path} includes other files, which are not read. They must not describe GPUs of this node."
        )
    result.gres_changes = _edit(host, GRES, wanted, result)


def _plan_cgroup(host: SlurmHost, request: SlurmRequest, result: SlurmNodePlan) -> None:
    if host.configless:
        return
    wanted = request.present and request.constrain_devices and bool(result.gres_lines)
    lines, problem = cgroup_constrain_devices.plan(_others(host, CGROUP), f"{host.directory}/{CGROUP}", wanted=wanted)
    if problem:
        result.problems.append(problem)
    else:
        _edit(host, CGROUP, lines, result)


def _edit(host: SlurmHost, name: str, lines: list[str], result: SlurmNodePlan) -> bool:
    before = host.texts.get(name)
    after = configuration_files.with_block(before or "", host.name, lines)
    if after == (before or ""):
        return False
    path = f"{host.directory}/{name}"
    if refusal := configuration_files.refusal_of_edit(before or "", host.name):
        result.problems.append(f"{path} {refusal}")
        return False
    result.writes[path] = after or None
    own = configuration_files.own_block(before or "", host.name)
    verb = "remove" if not lines else "change" if own is not None else "add"
    result.changes.append(f"{verb} the managed lines of node {host.name} in {path}")
    return True


def _plan_drop_in(
    host: SlurmHost, request: SlurmRequest, selected: Sequence[slurm_gres_lines.SlurmGres], result: SlurmNodePlan
) -> None:
    wanted = slurmd_at_boot.drop_in(selected) if request.present and selected else None
    if wanted == host.drop_in:
        return
    result.writes[owned.SLURMD_DROP_IN] = wanted
    result.changes.append(f"{'remove' if wanted is None else 'write'} {owned.SLURMD_DROP_IN}")
