# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether containerd and CRI-O restart or reload for a runtime, and what follows if they may not. Pure functions."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import (
    ENGINE_RESTART,
    FORBIDDEN,
    Disruption,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import version_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import (
    CONTAINERD,
    CRIO,
    CriChange,
    CriFile,
    CriPlan,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import CriRuntime

_MARKERS = {CONTAINERD: owned.CONTAINERD_RESTART_MARKER, CRIO: owned.CRIO_RESTART_MARKER}
# The first CRI-O that applies changed runtimes with a reload: cri-o/cri-o, a3fb007fb1, which is in v1.26.0.
_RELOADS = "1.26"


def add(
    result: CriPlan, title: str, runtime: CriRuntime, change: CriChange, *, restart_policy: str, variable: str
) -> None:
    """Add the change to the plan, unless it needs a restart and the policy is never.

    `variable`: the name of the variable with the policy.
    """
    if not change.files and not change.action:
        return
    restart = Disruption(
        ENGINE_RESTART, f"the registration of runtime {runtime.name}; running containers stay", target=change.unit
    )
    if change.action == "restarted" and restart_policy == "never":
        result.disruptions.append(dataclasses.replace(restart, state=FORBIDDEN, forbidden_by=variable))
        result.reasons.append(
            f"the registration of runtime {runtime.name} in {title} was not changed: it needs a restart of "
            f"{change.unit}, but {variable} is never. Set it to when_safe"
        )
        return
    result.engines.append(change)
    restarts = (restart,) if change.action == "restarted" else ()
    result.disruptions += restarts
    result.steps += [steps.written(file.path, file.content) for file in change.files]
    text = f"{(change.action or '').removesuffix('ed')} {change.unit}"
    result.steps += [steps.own(steps.RELOAD, text, disrupts=restarts)] if change.action else []


def change_of(host: Host, unit: str, files: list[CriFile], action: str) -> CriChange:
    """Return the change without the files that are as they must be."""
    result = CriChange(unit, [file for file in files if file.content != file.former])
    service = host["services"].get(unit) or {}
    if service.get("active_state") != "active":
        return result
    since = service.get("active_since_us")
    is_pending = (observed_files.content(host, _MARKERS[unit]) or "").strip() == str(since)
    if is_pending or any(_has_effect(file) for file in result.files):
        result.action, result.marker, result.marker_file = action, since, _MARKERS[unit]
    return result


def kept_loaded(title: str, change: CriChange, *, restart_policy: str, variable: str) -> str | None:
    """Take the restart out of a removal if the policy is never, and return what follows. The files are removed."""
    if change.action != "restarted" or restart_policy != "never":
        return None
    change.action = change.marker = None
    return f"{title} keeps the removed runtime loaded until its next restart, because {variable} is never"


def _has_effect(file: CriFile) -> bool:
    """Return whether the engine reads anything else afterwards. It does not read the record, nor comments."""
    if file.path == owned.CONTAINERD_CONFIG_RECORD:
        return False
    if file.content is None or file.former is None:
        return True
    try:
        return toml_editor.parse(file.content) != toml_editor.parse(file.former)
    except TomlError:
        return True


def action_of_crio(version: str | None) -> str:
    """Return what applies changed runtimes in CRI-O: restarted or reloaded, as state of the unit."""
    return "reloaded" if version_key(version) >= version_key(_RELOADS) else "restarted"
