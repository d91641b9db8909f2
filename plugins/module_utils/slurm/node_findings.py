# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a node of Slurm: the controller's view, slurm.conf, unreadable devices. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import configuration_files, gpu_types, reported_gres
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import gres_lines as slurm_gres_lines

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.node_files_plan import SlurmHost

SLURM = "slurm.conf"

# The state of a node whose registration the controller rejected, in scontrol and in sinfo.
_REJECTED = {"INVALID_REG", "INVAL"}


def findings(host: SlurmHost, wanted: str, *, constrains: bool = True) -> list[str]:
    """Return what is wrong with the node in the controller's view, and with the settings that only it can change."""
    found = []
    settings = {
        key: value
        for line in configuration_files.parse(host.texts.get(SLURM) or "")
        for key, value in line.options.items()
    }
    # An included file can have the settings.
    if host.texts.get(SLURM) is not None and wanted and not configuration_files.includes(host.texts[SLURM] or ""):
        if constrains and "cgroup" not in re.split("[,/]", settings.get("taskplugin", "").lower()):
            found.append(
                f"{SLURM} has no TaskPlugin=task/cgroup, so ConstrainDevices has no effect, and jobs can use GPUs of "
                "other jobs."
            )
        if gpu_types.NAME not in settings.get("grestypes", "").lower().split(","):
            found.append(f"{SLURM} has no GresTypes=gpu, so Slurm does not read the GPUs.")
    if host.unanswered:
        found.append(host.unanswered)
    if host.node is None:
        return found
    way_out = f"Set Gres={wanted} in the node's line of {SLURM} on all nodes, and restart slurmctld."
    if host.node.states & _REJECTED:
        # The controller then shows the devices that the node has, and not those of its own slurm.conf.
        found.append(
            f"The controller rejected the registration of node {host.node.name} ({shown(host.node.reason)}), usually "
            f"because {SLURM} has other devices than the node. {way_out}"
        )
    elif reported_gres.parse(host.node.gres) not in (reported_gres.parse(wanted), _untyped(wanted)):
        found.append(
            f"The controller has Gres={host.node.gres or '(none)'} for node {host.node.name}, but the node has "
            f"{wanted or 'no devices'}. {way_out}"
        )
    return found


def _untyped(wanted: str) -> dict[str, int]:
    total = sum(reported_gres.parse(wanted).values())
    return {"": total} if total else {}


def health(host: SlurmHost) -> tuple[list[str], list[str]]:
    """Return the problems of a node that this role need not have configured, and notes."""
    selected, skipped = slurm_gres_lines.select(host.devices)
    problems = (
        findings(host, slurm_gres_lines.node_gres(selected))
        if host.node is None or _counts_differ(host, selected)
        else []
    )
    notes = [f"Slurm cannot use {one.device}: {one.reason}." for one in skipped]
    node = host.node
    if node is not None and node.is_closed:
        state = "+".join(sorted(node.states)).lower()
        text = f"Slurm gives node {node.name} no job ({state}): {shown(node.reason) or 'no reason given'}."
        (problems if node.is_down else notes).append(text)
    return problems, notes


def _counts_differ(host: SlurmHost, selected: Sequence[slurm_gres_lines.SlurmGres]) -> bool:
    """Return whether the number of devices differs. The types are the administrator's choice."""
    known = sum(reported_gres.parse(host.node.gres).values()) if host.node else 0
    return known != len(selected) or bool(host.node and host.node.states & _REJECTED)


def not_ready(vendors: Mapping[str, schema.AcceleratorVendor]) -> list[str]:
    """Return the vendors whose devices cannot be read now. Their GPUs must not disappear from gres.conf for that."""
    return [
        f"The devices of {vendor} are not ready ({one['state']}), so Slurm's files stay unchanged: {one['reason']}"
        for vendor, one in vendors.items()
        if one["state"] not in (schema.READY, schema.NO_HARDWARE) and one["devices"]
    ]
