# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the registration of a vendor's runtime in Docker. Pure functions."""

from __future__ import annotations

import dataclasses
import os
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import (
    dockerd_flags,
    json_text,
    option_fields,
    record,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import plan as daemon_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import (
    DEFAULT_PATH,
    DaemonConfigError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

MANAGER = "nvidia_container_toolkit"
UNIT = "docker.service"
NAME, PATH = "nvidia", "/usr/bin/nvidia-container-runtime"
_RECORD = record.state_path(record.DEFAULT_STATE_DIRECTORY, DEFAULT_PATH)
# What Docker looks for only when it starts: moby/moby, daemon/nvidia_linux.go.
HOOK = "the detection of NVIDIA's hook for --gpus"


@dataclasses.dataclass(frozen=True)
class DockerRuntime:
    """A runtime: the owner of the options in daemon.json, its name and its program."""

    manager: str
    name: str
    path: str


_NVIDIA = DockerRuntime(MANAGER, NAME, PATH)


@dataclasses.dataclass
class DockerRegistration:
    """The options of a role in daemon.json, and their changes as imperative texts."""

    options: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    steps: list[Step] = dataclasses.field(default_factory=list)
    # The texts of the steps.
    changes: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    # The changed options that need a restart of Docker, and daemon.json afterwards.
    restart: list[str] = dataclasses.field(default_factory=list)
    config: dict[str, t.Any] = dataclasses.field(default_factory=dict)


def plan(host: Host, runtime: DockerRuntime = _NVIDIA, *, default_runtime: bool) -> DockerRegistration:
    """Return the registration. A runtime that somebody else registered for the same program stays as it is."""
    result = DockerRegistration()
    if host["docker_daemon_json"].get("error"):
        result.problems.append(str(host["docker_daemon_json"]["error"]))
        return result
    daemon_flags = [dockerd_flags.Flag(**flag) for flag in host["docker_daemon_json"]["flags"]]
    try:
        state = _state(host)
        foreign = _foreign(host, runtime, state, dockerd_flags.runtimes(daemon_flags))
        if foreign:
            result.reasons.append(foreign)
        else:
            result.options["runtimes"] = {runtime.name: {"path": runtime.path}}
        if default_runtime:
            result.options["default-runtime"] = runtime.name
        file = host["files"][DEFAULT_PATH]
        change = daemon_plan.plan(
            file["content"] if file["exists"] else None,
            state,
            runtime.manager,
            result.options,
            present=True,
            lists="union",
            purge=True,
            flags=daemon_flags,
            path=DEFAULT_PATH,
        )
    except DaemonConfigError as error:
        result.problems.append(str(error))
        return result
    result.restart, result.config = change.restart_keys, change.config
    if change.changed_keys:
        text = f"change {', '.join(sorted(change.changed_keys))} in {DEFAULT_PATH}"
        result.steps = [steps.options(text, result.options)]
    elif change.state.record != state.record:
        result.steps = [steps.own(steps.OPTION, f"update the record of the options in {DEFAULT_PATH}")]
    result.changes = steps.texts(result.steps)
    return result


def is_registered(host: Host, manager: str = MANAGER) -> bool:
    """Return whether a role has options in daemon.json. Raise DaemonConfigError if the record cannot be read."""
    return any(manager in entry.managers for entry in _state(host).record.entries.values())


def needs_restart(host: Host) -> bool:
    """Return whether the running Docker started before this role installed the hook."""
    docker = host["services"].get(UNIT) or {}
    marker = observed_files.content(host, owned.CONTAINER_TOOLKIT_RESTART_MARKER)
    return docker.get("active_state") == "active" and (marker or "").strip() == str(docker.get("active_since_us"))


def _state(host: Host) -> record.State:
    return record.load_state(observed_files.content(host, _RECORD), _RECORD)


def _foreign(host: Host, runtime: DockerRuntime, state: record.State, of_flags: list[str]) -> str | None:
    """Return who else has registered the runtime, or None."""
    if runtime.name in of_flags:
        return f"a flag of {UNIT} registers runtime {runtime.name}"
    there = json_text.runtimes(host["docker_daemon_json"].get("content")).get(runtime.name)
    ours = any(
        runtime.manager in entry.managers and tuple(leaf.path[:2]) == ("runtimes", runtime.name)
        for leaf, entry in state.record.entries.items()
    )
    path = option_fields.program(there)
    # The program of an earlier installation is gone.
    is_missing = runtime.name in host["docker_daemon_json"].get("missing_runtimes", {}) and str(path).startswith("/")
    if ours or is_missing or os.path.basename(str(path)) != os.path.basename(runtime.path):
        return None
    return f"runtime {runtime.name} is already registered in {DEFAULT_PATH} as {path}"
