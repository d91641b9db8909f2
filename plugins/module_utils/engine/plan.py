# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the container engine of a host, from the observation of the host. Pure functions."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import Disruption
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import password_digests, record
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import plan as daemon_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.docker_options import (
    NEWEST_KNOWN,
    RELOADABLE,
    unknown_options,
    value_problems,
    version_problems,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.dockerd_flags import (
    Flag,
    of_command,
    without_options_set_by_flags,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import (
    DEFAULT_PATH,
    DaemonConfigError,
    parse,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.secret_masking import masked_tree
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import (
    coexistence,
    daemon_restart,
    docker_data_directory,
    docker_group,
    docker_group_users,
    image_store,
    package_plan,
    recommended_options,
    restart_disruptions,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import plain_version, version_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.variables import EngineRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import role_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.role_packages import RolePackages, RoleTransaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

MANAGER = "container_engine"
RECORD_FILE = record.state_path(record.DEFAULT_STATE_DIRECTORY, DEFAULT_PATH)
# docker.service requires the socket.
_SOCKET = "docker.socket"
UNITS = {"docker": "docker.service", "containerd": "containerd.service", "podman": None}


@dataclasses.dataclass
class Service:
    """The unit of the engine's daemon, whether to enable and start it, and the units to unmask."""

    unit: str
    is_known: bool
    enable: bool
    start: bool
    needed: bool
    unmask: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class EnginePlan:
    """What the role does on a host, and why. `service` is None without a unit.

    `origin`: the source of the installed engine, `package NAME` or `unit PATH`. `transaction`: the options of module
    package_transaction, whose packages to install are also in `packages`. `query`: its options for the versions that
    the plan depends on. `changes_engine`: the transaction installs or replaces the engine, or changes its version, so
    the dockerd that is installed in check mode is not the one for the options. `has_secrets`: `options` or repositories
    contain passwords or tokens. `changes` has imperative texts, in the order of the steps.
    """

    engine: str
    is_installed: bool
    origin: str | None
    version: str | None
    source: str | None = None
    packages: list[str] = dataclasses.field(default_factory=list)
    transaction: RoleTransaction | None = None
    query: dict[str, t.Any] | None = None
    changes_engine: bool = False
    options: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    config_needed: bool = False
    service: Service | None = None
    # The users to add to group docker, and all users that the role has added afterwards.
    users: list[str] = dataclasses.field(default_factory=list)
    recorded_users: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    reason: str = ""
    has_secrets: bool = False
    # What the role does. The next three fields are derived from it.
    steps: list[Step] = dataclasses.field(default_factory=list)
    acts: bool = False
    changes: list[str] = dataclasses.field(default_factory=list)
    disruptions: list[Disruption] = dataclasses.field(default_factory=list)


def plan(
    host: Host,
    request: EngineRequest,
    platforms: dict[str, dict[str, t.Any]],
    versions: t.Mapping[str, list[str]] | None = None,
) -> EnginePlan:
    """Plan what the role does on this host, and why. `versions` is None before the query of the repositories."""
    if request.name == "none":
        return _no_engine(host, request)
    engine = host["engines"][request.name]
    unit = UNITS[request.name]
    service = host["services"].get(unit or "", {})
    sources = (platforms.get(host["os"]["key"] or "") or {}).get(request.name) or {}
    found = _found(request.name, engine, service, sources)
    packages = package_plan.plan(host, request, platforms, found, versions)
    result = EnginePlan(
        request.name, bool(found.origin), found.origin, packages.version or found.version, packages.source
    )
    result.problems += packages.problems
    if packages.transaction and not packages.problems:
        result.transaction = packages.transaction
        result.packages = packages.transaction.install
        result.query = packages.query
        result.changes_engine = packages.installs or packages.moves
        result.has_secrets = role_repository.has_password(packages.transaction.repositories)
    command = (sources.get(result.source or "") or {}).get("command", "")
    restarts: list[Disruption] = []
    if result.changes_engine and result.is_installed:
        new = plain_version(result.version) or "another version"
        reason = f"{request.name} {plain_version(found.version)} is changed to {new}"
        restarts = restart_disruptions.of_packages(host, request.name, unit, reason)
    config, notes = _config(result, host, request, service, command) if request.name == "docker" else ([], [])
    if unit and host["services"]:
        result.service = _service(unit, host["services"])
    result.config_needed = bool(config)
    members = docker_group_users.plan(
        host, request, installs=packages.installs or not result.is_installed, is_active=_is_active(service)
    )
    result.users, result.recorded_users = members.add, members.record
    result.problems += members.problems
    config = restart_disruptions.after_packages(config, restarts)
    packages_first = result.transaction.steps() if result.transaction else []
    result.steps = [
        *steps.interrupting(packages_first, restarts),
        *_service_steps(result.service, config),
        *steps.listed("group", f"add {{}} to group {docker_group.GROUP}", members.add),
    ]
    result.changes, result.disruptions = steps.texts(result.steps), steps.disruptions(result.steps)
    result.acts = bool(result.steps)
    if result.acts and host["uid"] != 0:
        result.problems.append(needs_root(host["uid"]))
    reasons = [*packages.reasons, _reason(result, host, service, found, packages), *notes, *members.reasons]
    cdi = [] if packages.problems else package_plan.without_cdi(host, request, platforms, result.version)
    result.reason = "; ".join([*reasons, *coexistence.notes(host, request.name), *cdi])
    return result


def _no_engine(host: Host, request: EngineRequest) -> EnginePlan:
    result = EnginePlan("none", is_installed=False, origin=None, version=None)
    result.reason = "; ".join(
        ["container_engine_name is none: the role changes no container engine", *coexistence.notes(host, request.name)]
    )
    if request.docker_options:
        result.problems.append(
            "container_engine_name is none, but container_engine_docker_options contains options. Remove the options, "
            "or set container_engine_name=docker."
        )
    if request.users:
        result.problems.append(
            "container_engine_name is none, but container_engine_users contains users. Remove the users, or set "
            "container_engine_name=docker."
        )
    return result


def _service_steps(service: Service | None, config: list[Step]) -> list[Step]:
    """Return the steps around those that configure the daemon: the unit is unmasked before, and starts afterwards."""
    if service is None:
        return config
    return [
        *steps.listed(steps.SERVICE, "unmask {}", service.unmask, item=steps.SERVICE),
        *config,
        *steps.service(service.unit, enable=service.enable, start=service.start),
    ]


def _found(
    name: str, engine: dict[str, t.Any], service: dict[str, t.Any], sources: dict[str, t.Any]
) -> package_plan.Found:
    """Return the installed engine, and where it comes from."""
    package = engine["package"]
    if package:
        # The daemon may still run with an older version.
        origin = package_plan.source_of(package, sources) or f"package {package}"
        return package_plan.Found(package, origin, engine["version"])
    version = (engine.get("info") or {}).get("server_version") or engine["version"]
    if name != "podman" and service.get("load_state") == "loaded":
        return package_plan.Found(None, f"unit {service.get('fragment_path')}", version)
    return package_plan.Found(None, None, None)


def _options(
    result: EnginePlan, host: Host, request: EngineRequest, flags: list[Flag], command: str
) -> tuple[dict[str, t.Any], list[str]]:
    """Return the options of daemon.json that the role wants, and what is wrong with them.

    command: how the package's unit starts dockerd
    """
    options = dict(request.docker_options)
    if request.docker_recommended:
        before, own = _present(host)
        options = recommended_options.recommended(
            options,
            version_key(result.version),
            is_swarm(host),
            flags={flag.key for flag in flags},
            before=before,
            own=own,
        )
    masked_options = masked_tree(options)
    wrong = value_problems(masked_options)
    version = version_key(result.version)
    if not result.problems and not wrong and version:
        wrong = version_problems(masked_options, version)
    if not result.is_installed and not result.problems and not wrong:
        # No dockerd can validate the options yet. A newer version than the known ones may have other options.
        wrong = unknown_options(options) if version[:2] <= NEWEST_KNOWN and (version or not result.query) else []
        wrong += [] if host["docker_daemon_json"].get("has_command") else _set_by_unit(masked_options, command)
    return options, wrong


def _config(
    result: EnginePlan, host: Host, request: EngineRequest, service: dict[str, t.Any], command: str
) -> tuple[list[Step], list[str]]:
    """Plan the options. Return the steps that change daemon.json, and what the user should know.

    command: how the package's unit starts dockerd
    """
    flags = [Flag(**flag) for flag in host["docker_daemon_json"]["flags"]]
    options, wrong = _options(result, host, request, flags, command)
    result.options = options
    # The observation is masked, so compare it with masked options.
    masked_options = masked_tree(options)
    has_secrets = masked_options != options
    result.has_secrets |= has_secrets
    notes: list[str] = []
    result.problems += [f"container_engine_docker_options.{text}" for text in wrong]
    if host["docker_daemon_json"].get("error"):
        result.problems.append(host["docker_daemon_json"]["error"])
    if result.problems:
        return [], notes
    file = host["files"][DEFAULT_PATH]
    try:
        state, change = _change(host, masked_options, flags)
    except DaemonConfigError as error:
        result.problems.append(str(error))
        return [], notes
    before = parse(file["content"], DEFAULT_PATH) if file["exists"] else {}
    hidden = docker_data_directory.hidden(host, before, change.config)
    lost = _lost_data(result, host, before, change.config, hidden)
    if lost:
        result.problems.append(lost)
        return [], notes
    if hidden:
        text = "{0} contains {2} of an earlier Docker installation, but Docker will use {1} and will not find this data"
        notes.append(text.format(*hidden))
    names, is_recorded = _differing_secrets(host, options, change.satisfied) if has_secrets else ([], True)
    changed = sorted({*change.changed_keys, *names})
    if changed:
        keys = sorted({*change.restart_keys, *(name for name in names if name.partition(".")[0] not in RELOADABLE)})
        restarts = restart_disruptions.of_options(host, keys, change.config, request.restart_policy)
        text = f"change {', '.join(changed)} in {DEFAULT_PATH}"
        return [steps.options(text, options, disrupts=restarts)], notes
    if change.state.record != state.record or not is_recorded:
        return [steps.own(steps.OPTION, f"update the record of the options in {DEFAULT_PATH}")], notes
    by_flags = sorted(key for key in change.satisfied if masked_options[key] != options[key])
    if by_flags:
        text = f"compare the passwords in {', '.join(by_flags)} with the flags in {UNITS['docker']}"
        return [steps.own(steps.OPTION, text)], notes
    pending = _pending(host, state, request.restart_policy, service)
    if pending:
        keys, content = state.written["restart"], host["docker_daemon_json"].get("content") or {}
        restarts = restart_disruptions.of_options(host, keys, content, request.restart_policy)
        return [steps.own(steps.OPTION, text, disrupts=restarts) for text in pending], notes
    return [], notes


def _change(
    host: Host, masked_options: dict[str, t.Any], flags: list[Flag]
) -> tuple[record.State, daemon_plan.DaemonPlan]:
    """Return the record of daemon.json, and the planned change."""
    file, record_file = host["files"][DEFAULT_PATH], host["files"].get(RECORD_FILE, {})
    state = record.load_state(record_file.get("content"), RECORD_FILE)
    change = daemon_plan.plan(
        file["content"] if file["exists"] else None,
        state,
        MANAGER,
        masked_options,
        present=True,
        lists="union",
        purge=True,
        flags=flags,
        path=DEFAULT_PATH,
        in_swarm=is_swarm(host),
    )
    return state, change


def _lost_data(
    result: EnginePlan, host: Host, before: dict[str, t.Any], after: dict[str, t.Any], hidden: tuple | None
) -> str | None:
    """Return why Docker would not find its data after the change. `hidden`: see `docker_data_directory.hidden`."""
    if hidden and result.is_installed:
        return docker_data_directory.problem(*hidden)
    lost = docker_data_directory.remap_problem(host, before, after) if result.is_installed else None
    return lost or (None if result.query else image_store.problem(host, before, after, result.version))


def _set_by_unit(options: dict[str, t.Any], command: str) -> list[str]:
    """Report the options that the unit of a package that is not installed yet will set to another value."""
    coming = of_command(command, UNITS["docker"])
    differing = without_options_set_by_flags(options, coming)
    return [
        f"{flag.key}: the package's unit starts dockerd with {flag.text}, and dockerd does not start if daemon.json "
        "sets this option, too. Remove the option, or first write a drop-in to /etc/systemd/system/docker.service.d "
        "that starts dockerd without the flag."
        for flag in coming
        if differing.get(flag.key) is not None
    ]


def _differing_secrets(host: Host, options: dict[str, t.Any], satisfied: list[str]) -> tuple[list[str], bool]:
    """Return the options whose secrets differ from the file, and whether the record has no other secrets.

    `satisfied` names the options that flags set instead of the file.
    """
    wanted = password_digests.of_tree(
        {key: value for key, value in options.items() if key not in satisfied}, host["identity"]["machine_id"]
    )
    known = host["docker_daemon_json"]["digests"]
    recorded = known["record"].get(MANAGER, {})
    added = [name for digest, name in wanted.items() if digest not in known["file"]]
    removed = [name for digest, name in recorded.items() if digest in known["file"] and digest not in wanted]
    return [*added, *removed], set(recorded) <= set(wanted)


def _pending(host: Host, state: record.State, policy: str, service: dict[str, t.Any]) -> list[str]:
    """Return what happens to options that the daemon has not applied. A start of the daemon applies all."""
    written = state.written
    if not written or host["docker_daemon_json"]["applied"] or not _is_active(service):
        return []
    pending = {"reload": written["reload"], "restart": written["restart"]}
    docker = host["engines"]["docker"]
    decision = daemon_restart.apply_plan(
        pending, docker.get("info"), host["docker_daemon_json"].get("content") or {}, policy
    )
    verb = "apply" if decision.reload or decision.restart else "show"
    return [f"{verb} the pending options {', '.join([*written['reload'], *written['restart']])} of {UNITS['docker']}"]


def is_swarm(host: Host) -> bool:
    """Return whether the host is a member of a swarm. Only a running daemon reports it, but its files remain."""
    info = host["engines"]["docker"].get("info") or {}
    return bool(info.get("swarm") or host["docker_daemon_json"].get("in_swarm"))


def _present(host: Host) -> tuple[dict[str, t.Any], set[str]]:
    """Return daemon.json, and the dotted names of the options that the role has set in it. Empty if it is not valid."""
    file, record_file = host["files"][DEFAULT_PATH], host["files"].get(RECORD_FILE, {})
    try:
        known = record.load_state(record_file.get("content"), RECORD_FILE).record
        before = parse(file["content"], DEFAULT_PATH) if file["exists"] else {}
    except DaemonConfigError:  # _config reports it
        return {}, set()
    return before, set(record.owned_keys(known, MANAGER))


def _service(unit: str, services: t.Mapping[str, t.Mapping[str, t.Any]]) -> Service:
    service = services.get(unit, {})
    units = [*([_SOCKET] if unit == UNITS["docker"] else []), unit]
    unmask = [name for name in units if services.get(name, {}).get("load_state") == "masked"]
    # `enabled-runtime` ends with the next boot.
    enabled = service.get("unit_file_state") in ("enabled", "static", "indirect", "alias")
    active = _is_active(service)
    needed = bool(unmask) or not (enabled and active)
    is_known = service.get("load_state") in ("loaded", "masked")
    return Service(unit, is_known, enable=not enabled, start=not active, needed=needed, unmask=unmask)


def _is_active(service: dict[str, t.Any]) -> bool:
    return service.get("active_state") in ("active", "reloading")


def _reason(
    result: EnginePlan,
    host: Host,
    service: dict[str, t.Any],
    found: package_plan.Found,
    packages: RolePackages,
) -> str:
    titles = {"distribution": "the distribution", "docker": "Docker's repository"}
    name, origin = result.engine, titles.get(str(found.origin), str(found.origin))
    installed = f"{name} {plain_version(found.version)} from {origin}".replace("  ", " ")
    if packages.installs or not result.is_installed:
        place = titles["docker"] if result.source == "docker" else host["os"]["name"]
        before = f"{installed} is replaced" if result.is_installed else f"{name} is not installed"
        return f"{before}; the role installs it from {place}"
    fate = f"is changed to {plain_version(result.version) or 'another version'}" if packages.moves else "is kept"
    text = f"{installed} is installed and {fate}"
    if service.get("load_state") == "masked":
        text += "; its unit is masked"
    elif service and service.get("active_state") != "active":
        text += f"; its unit is {service.get('active_state') or 'not running'}"
    running = (host["engines"][name].get("info") or {}).get("server_version")
    if found.package and running and version_key(running) != version_key(found.version):
        text += f"; a restart is pending, because the daemon still runs version {plain_version(running)}"
    return text
