# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the container engine of a host, from the observation of the host. Pure functions."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.privileges import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import changes, record
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.daemon_json import (
    DEFAULT_PATH,
    DaemonConfigError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.flags import Flag
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.masking import masked_tree
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.options import (
    unknown_options,
    value_problems,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import version_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.request import Request
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.installed import is_installed

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host

MANAGER = "container_engine"
RECORD_FILE = record.state_path(record.DEFAULT_STATE_DIRECTORY, DEFAULT_PATH)
_UNITS = {"docker": "docker.service", "containerd": "containerd.service", "podman": None}
# Docker 25.0 introduced CDI as a feature to enable. Since 28.2 it is enabled by default.
_CDI_IS_OPTIONAL = ((25,), (28, 2))


@dataclasses.dataclass
class Service:
    """The unit of the engine's daemon, and whether to enable and start it."""

    unit: str
    is_known: bool
    enable: bool
    start: bool
    needed: bool


@dataclasses.dataclass
class Plan:
    """What the role does on a host, and why. `service` is None without a unit."""

    engine: str
    is_installed: bool
    origin: str | None
    version: str | None
    packages: list[str] = dataclasses.field(default_factory=list)
    options: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    config_needed: bool = False
    service: Service | None = None
    problems: list[str] = dataclasses.field(default_factory=list)
    reason: str = ""


@dataclasses.dataclass
class Apply:
    """How changed options take effect. `action` is none, reload, restart, reload_then_restart or wait."""

    action: str
    reason: str
    reload: bool = False
    restart: bool = False


def plan(host: Host, request: Request, platforms: dict[str, dict[str, t.Any]]) -> Plan:
    """Plan what the role does on this host, and why."""
    engine = host["engines"][request.name]
    unit = _UNITS[request.name]
    service = host["services"].get(unit or "", {})
    platform = (platforms.get(host["os"]["key"] or "") or {}).get(request.name)
    origin, is_installed = _found(request.name, engine, service, platform)
    result = Plan(request.name, is_installed, origin, _version(engine, platform))
    _packages(result, host, request, platforms)
    if request.name == "docker":
        _config(result, host, request)
    if unit and host["services"]:
        result.service = _service(unit, service)
        if service.get("load_state") == "masked":
            result.problems.append(f"{unit} is masked on this host. Run systemctl unmask {unit} first.")
    has_changes = result.packages or result.config_needed or (result.service and result.service.needed)
    if has_changes and host["uid"] != 0:
        result.problems.append(needs_root(host["uid"]))
    result.reason = _reason(result, host, service)
    return result


def _found(
    name: str, engine: dict[str, t.Any], service: dict[str, t.Any], platform: dict[str, t.Any] | None
) -> tuple[str | None, bool]:
    """Return where the installed engine comes from, and whether one is installed."""
    if engine["package"]:
        is_distribution = bool(platform) and engine["package"] in t.cast("dict[str, t.Any]", platform)["packages"]
        return ("distribution" if is_distribution else f"package {engine['package']}"), True
    if name != "podman" and service.get("load_state") == "loaded":
        return f"unit {service.get('fragment_path')}", True
    return None, False


def _version(engine: dict[str, t.Any], platform: dict[str, t.Any] | None) -> str | None:
    installed = (engine.get("info") or {}).get("server_version") or engine["version"]
    return installed or (platform or {}).get("version")


def _packages(result: Plan, host: Host, request: Request, platforms: dict[str, dict[str, t.Any]]) -> None:
    """Keep an installed engine, whoever packaged it, and add the packages that the collection's modules need."""
    name, system = request.name, host["os"]
    platform = (platforms.get(system["key"] or "") or {}).get(name)
    if not result.is_installed:
        if request.source == "preinstalled":
            result.problems.append(
                f"container_engine_source=preinstalled, but {name} is not installed on this host. Install {name}, or "
                "set container_engine_source=distribution."
            )
            return
        if not platform:
            known = ", ".join(sorted(key for key, row in platforms.items() if name in row)) or "none"
            result.problems.append(
                f"container_engine_name={name}: this role cannot install {name} on {system['name']}, only on: {known}. "
                "Install the engine yourself. The role keeps an installed engine."
            )
            return
    elif request.source == "preinstalled":
        return
    if platform and system["package_manager"] == "apt":
        required = platform["support"] if result.is_installed else [*platform["packages"], *platform["support"]]
        if result.origin == "distribution":
            required = [*platform["packages"], *platform["support"]]
        result.packages = [package for package in required if not is_installed(host, package)]


def _config(result: Plan, host: Host, request: Request) -> None:
    flags = [Flag(**flag) for flag in host["docker_daemon_json"]["flags"]]
    options = dict(request.docker_options)
    if request.docker_recommended:
        options = recommended(options, version_key(result.version), is_swarm(host), {flag.key for flag in flags})
    result.options = options
    # The observation is masked, so compare it with masked options.
    masked_options = masked_tree(options)
    result.problems += [f"container_engine_docker_options.{text}" for text in value_problems(masked_options)]
    if not result.is_installed and not result.problems:
        # No dockerd can validate the options yet, and the role installs no version that has other options.
        result.problems += [f"container_engine_docker_options.{text}" for text in unknown_options(options)]
    if host["docker_daemon_json"].get("error"):
        result.problems.append(host["docker_daemon_json"]["error"])
    if result.problems:
        return
    file, record_file = host["files"][DEFAULT_PATH], host["files"].get(RECORD_FILE, {})
    try:
        state = record.load_state(record_file.get("content"), RECORD_FILE)
        change = changes.plan(
            file["content"] if file["exists"] else None,
            state,
            MANAGER,
            masked_options,
            present=True,
            lists="union",
            flags=flags,
            path=DEFAULT_PATH,
        )
    except DaemonConfigError as error:
        result.problems.append(str(error))
        return
    # Only the module on the host can compare passwords.
    result.config_needed = (
        bool(change.changed_keys)
        or change.state.record != state.record
        or bool(state.written)
        or masked_options != options
    )


def is_swarm(host: Host) -> bool:
    """Return whether the host is a member of a swarm."""
    return bool(((host["engines"]["docker"].get("info")) or {}).get("swarm"))


def recommended(
    options: dict[str, t.Any], version: tuple[int, ...], in_swarm: bool, flags: t.Collection[str] = ()
) -> dict[str, t.Any]:
    """Add the options recommended for GPU hosts, unless the user or a flag in the daemon's unit sets them."""
    found = dict(options)
    if not in_swarm and "live-restore" not in flags:
        found.setdefault("live-restore", True)
    first, last = _CDI_IS_OPTIONAL
    if first <= version < last and "features" not in flags:
        features = found.get("features", {})
        if isinstance(features, dict):
            found["features"] = {"cdi": True, **features}
    return found


def _service(unit: str, service: dict[str, t.Any]) -> Service:
    is_loaded = service.get("load_state") == "loaded"
    enabled = service.get("unit_file_state") in ("enabled", "enabled-runtime", "static", "indirect", "alias")
    active = service.get("active_state") in ("active", "reloading")
    return Service(unit, is_loaded, enable=not enabled, start=not active, needed=not (enabled and active))


def _reason(result: Plan, host: Host, service: dict[str, t.Any]) -> str:
    name, version = result.engine, result.version
    if not result.is_installed:
        return f"{name} is not installed; the role installs it from {host['os']['name']}"
    origin = "the distribution" if result.origin == "distribution" else result.origin
    text = f"{name} {version or ''} from {origin} is installed and is kept".replace("  ", " ")
    if service and service.get("active_state") != "active":
        text += f"; its unit is {service.get('active_state') or 'not running'}"
    return text


def apply_plan(
    pending: dict[str, list[str]], info: dict[str, t.Any] | None, config: dict[str, t.Any], policy: str
) -> Apply:
    """Decide how changed options take effect."""
    reload, restart = pending["reload"], pending["restart"]
    need = f"{', '.join(restart)} {'needs' if len(restart) == 1 else 'need'}"
    if not reload and not restart:
        return Apply("none", "the daemon uses the options in the file")
    if not restart:
        return _act("reload", f"a reload is enough for {', '.join(reload)}")
    if policy == "always":
        return _act("restart", f"{need} a restart, and container_engine_restart_policy is always")
    if policy == "never":
        return _act("wait", f"{need} a restart, and container_engine_restart_policy is never", reload=bool(reload))
    if info is None:
        return _act(
            "wait",
            f"{need} a restart, but the daemon does not report whether containers are running. "
            "Restart the daemon yourself, or set container_engine_restart_policy=always.",
            reload=bool(reload),
        )
    # Docker counts paused containers separately from running ones. A restart stops them, too.
    numbers = {state: info.get(f"containers_{state}") or 0 for state in ("running", "paused")}
    if not any(numbers.values()):
        return _act("restart", f"{need} a restart, and no container is running")
    counted = " and ".join(f"{number} {state}" for state, number in numbers.items() if number)
    # A daemon that starts without live-restore stops the containers that live-restore has kept running.
    stays_on = config.get("live-restore") is True or "live-restore" not in (*reload, *restart)
    if info.get("live_restore") and stays_on:
        return _act("restart", f"{need} a restart; live-restore keeps the {counted} containers alive")
    if config.get("live-restore") is True and not info.get("swarm"):
        return _act(
            "reload_then_restart",
            f"{need} a restart; a reload first enables live-restore, which keeps the {counted} containers alive",
        )
    return _act(
        "wait",
        f"{need} a restart, which would stop {counted} containers because live-restore is off. "
        "Stop these containers and run this role again, or set container_engine_restart_policy=always.",
        reload=bool(reload),
    )


def _act(action: str, reason: str, reload: bool = False) -> Apply:
    return Apply(
        action,
        reason,
        reload=reload or action in ("reload", "reload_then_restart"),
        restart=action in ("restart", "reload_then_restart"),
    )
