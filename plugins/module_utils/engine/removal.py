# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the removal of the container engine that the role installed, and of its options. Pure functions.

Module package_transaction removes packages, repositories and holds by its record, and module docker_daemon_config the
options by its own record.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import plan as daemon_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import record
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.dockerd_flags import Flag
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import (
    DEFAULT_PATH,
    DaemonConfigError,
    parse,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import (
    coexistence,
    docker_data_directory,
    docker_group,
    docker_group_users,
    image_store,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.plan import MANAGER, RECORD_FILE, UNITS
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.variables import EngineRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

_SOURCES = ("distribution", "docker")


@dataclasses.dataclass
class EngineRemoval:
    """What the role removes. `packages` must not stay. `service`: the unit to stop and disable, or None.

    `revokes`: the role has options in daemon.json. `options`: the options to keep, always empty.
    """

    revokes: bool = False
    options: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    # Whether there is a record of package transactions.
    record: bool = False
    packages: list[str] = dataclasses.field(default_factory=list)
    service: str | None = None
    # The users to remove from group docker, and whether there is a record of them.
    users: list[str] = dataclasses.field(default_factory=list)
    user_record: bool = False
    # Whether Docker itself is among the packages. Its daemon then does not apply changed options.
    removes_docker: bool = False
    # What the role does. The next two fields are derived from it.
    steps: list[Step] = dataclasses.field(default_factory=list)
    acts: bool = False
    changes: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)


def plan(host: Host, request: EngineRequest, platforms: dict[str, t.Any]) -> EngineRemoval:
    """Return what to remove, and why it is not possible."""
    result = EngineRemoval(record=observed_files.exists(host, owned.ENGINE_RECORD))
    installed = list(host["installed_packages"])
    # The record also lists packages that somebody else has removed since.
    recorded = record_of_role.possibly_installed(host, owned.ENGINE_RECORD, installed).intersection(installed)
    removable = record_of_role.to_remove(host, owned.ENGINE_RECORD)
    platform = platforms.get(host["os"]["key"] or "") or {}
    for name, unit in UNITS.items():
        sources = [(platform.get(name) or {}).get(source) or {} for source in _SOURCES]
        found = sorted({package for data in sources for package in data.get("packages", ())} & removable)
        main = host["engines"][name]["package"]
        if not found or main not in found:
            continue
        result.removes_docker |= name == "docker"
        result.packages += [package for package in found if package not in result.packages]
        _check_containers(host, name, result)
        if unit and (host["services"].get(unit) or {}).get("load_state") == "loaded" and result.service is None:
            result.service = unit
    # The dependencies go, too.
    harmed = coexistence.removal_problems(host, recorded)
    result.problems += [] if result.problems else harmed
    _options(host, result)
    result.users, result.user_record = docker_group_users.added(host), docker_group_users.has_record(host)
    if not result.record and request.name in UNITS and host["engines"][request.name]["package"]:
        result.reasons.append(f"{request.name} is kept because this role did not install it")
    result.steps = _steps(result)
    result.acts = bool(result.steps)
    if result.acts and host["uid"] != 0:
        result.problems.append(needs_root(host["uid"]))
    if not result.acts and not result.reasons:
        result.reasons.append("this role has not installed anything on this host")
    result.changes = steps.texts(result.steps)
    return result


def _check_containers(host: Host, name: str, result: EngineRemoval) -> None:
    number = coexistence.running(host, name)
    if number:
        # The kubelet starts stopped containers again.
        first = "Remove the node from the cluster" if coexistence.kubernetes(host) else "Stop the containers"
        result.problems.append(
            f"{name} cannot be removed: its containers are running ({coexistence.counted(host, name)}). "
            f"Nothing was changed. {first} first."
        )


def _options(host: Host, result: EngineRemoval) -> None:
    try:
        state = record.load_state(observed_files.content(host, RECORD_FILE), RECORD_FILE)
        result.revokes = any(MANAGER in entry.managers for entry in state.record.entries.values())
        if result.revokes and not result.removes_docker:
            _check_data(host, state, result)
    except DaemonConfigError as error:
        result.problems.append(str(error))


def _check_data(host: Host, state: record.State, result: EngineRemoval) -> None:
    """Refuse to restore options with which the Docker that stays would not find its data."""
    file = host["files"][DEFAULT_PATH]
    text = file["content"] if file["exists"] else None
    flags = [Flag(**flag) for flag in host["docker_daemon_json"]["flags"]]
    change = daemon_plan.plan(text, state, MANAGER, None, present=False, lists="union", flags=flags, path=DEFAULT_PATH)
    before, docker = parse(text, DEFAULT_PATH) if text is not None else {}, host["engines"]["docker"]
    hidden = docker_data_directory.hidden(host, before, change.config)
    if hidden and docker["package"]:
        result.problems.append(docker_data_directory.problem(*hidden))
    remapped = docker_data_directory.remap_problem(host, before, change.config) if docker["package"] else None
    lost = remapped or image_store.problem(host, before, change.config, docker["version"])
    result.problems += [lost] if lost else []


def _steps(result: EngineRemoval) -> list[Step]:
    group = docker_group.GROUP
    parts = (
        ("group", f"remove {', '.join(result.users)} from group {group}", result.users),
        ("group", "remove the record of the users in group docker", result.user_record and not result.users),
        (steps.OPTION, f"remove the options of this role from {DEFAULT_PATH}", result.revokes),
        (steps.SERVICE, f"stop and disable {result.service}", result.service),
        (steps.PACKAGES, f"remove {', '.join(result.packages)}", result.packages),
        (steps.PACKAGES, "remove the dependencies, repositories and holds that this role recorded", result.record),
    )
    return [steps.own(kind, text) for kind, text, is_needed in parts if is_needed]
