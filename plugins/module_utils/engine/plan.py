# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the container engine of a host, from the observation of the host. Pure functions."""

from __future__ import annotations

import typing as t

from ansible.module_utils.common.validation import check_type_bool, check_type_dict

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.privileges import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import changes, record
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.daemon_json import DEFAULT_PATH, DaemonConfigError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import version_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.flags import Flag
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.masking import masked_file, masked_tree
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.options import unknown_options, value_problems

MANAGER = "container_engine"
RECORD_FILE = record.state_path(record.DEFAULT_STATE_DIRECTORY, DEFAULT_PATH)
_UNITS = {"docker": "docker.service", "containerd": "containerd.service", "podman": None}
# Docker 25.0 introduced CDI as a feature to enable. Since 28.2 it is enabled by default.
_CDI_IS_OPTIONAL = ((25,), (28, 2))


class SettingsError(Exception):
    """A variable has the wrong type. The text names the variable and the expected form."""


class Settings(t.NamedTuple):
    """The role's variables."""

    name: str
    source: str
    docker_options: dict[str, t.Any]
    docker_recommended: bool
    platforms: dict[str, dict[str, t.Any]]


def settings(
    name: str, source: str, docker_options: t.Any, docker_recommended: t.Any, platforms: dict[str, dict[str, t.Any]]
) -> Settings:
    """Convert the variables to their types.

    Argument validation accepts a string for a boolean or a dictionary, and does not convert it. Extra variables as
    key=value, INI inventories and surveys provide strings only.
    """
    options = _as("container_engine_docker_options", check_type_dict, docker_options or {}, '{"mtu": 9000}')
    for key in options:
        if not isinstance(key, str):
            raise SettingsError(
                f"container_engine_docker_options has the key {key!r}, which is not a string. Write it in quotes."
            )
    recommended_ = _as("container_engine_docker_recommended", check_type_bool, docker_recommended, "true or false")
    return Settings(name, source, options, recommended_, platforms)


def _as(name: str, convert: t.Callable[[t.Any], t.Any], value: t.Any, form: str) -> t.Any:
    try:
        return convert(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise SettingsError(f"{name} is {masked_file(str(value))[:60]!r}. Write it as {form}.") from error


def plan(host: dict[str, t.Any], settings: Settings) -> dict[str, t.Any]:
    """Plan what the role does on this host, and why."""
    engine = host["engines"][settings.name]
    unit = _UNITS[settings.name]
    service = host["services"].get(unit or "", {})
    platform = (settings.platforms.get(host["os"]["key"] or "") or {}).get(settings.name)
    origin, is_installed = _found(settings.name, engine, service, platform)
    result: dict[str, t.Any] = {
        "engine": settings.name,
        "is_installed": is_installed,
        "origin": origin,
        "version": _version(engine, platform),
        "packages": [],
        "options": {},
        "config_needed": False,
        "service": None,
        "problems": [],
    }
    _packages(result, host, settings, platform)
    if settings.name == "docker":
        _config(result, host, settings)
    if unit and host["services"]:
        result["service"] = _service(unit, service)
        if service.get("load_state") == "masked":
            result["problems"].append(f"{unit} is masked on this host. Run systemctl unmask {unit} first.")
    has_changes = bool(result["packages"] or result["config_needed"] or (result["service"] or {}).get("needed"))
    if has_changes and host["uid"] != 0:
        result["problems"].append(needs_root(host["uid"]))
    result["reason"] = _reason(result, host, service)
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


def _packages(
    result: dict[str, t.Any], host: dict[str, t.Any], settings: Settings, platform: dict[str, t.Any] | None
) -> None:
    """Keep an installed engine, whoever packaged it, and add the packages that the collection's modules need."""
    name, system = settings.name, host["os"]
    if not result["is_installed"]:
        if settings.source == "preinstalled":
            result["problems"].append(
                f"container_engine_source=preinstalled, but {name} is not installed on this host. Install it, or set "
                "container_engine_source=distribution."
            )
            return
        if not platform:
            known = ", ".join(sorted(key for key, row in settings.platforms.items() if name in row)) or "none"
            result["problems"].append(
                f"container_engine_name={name}: this role cannot install it on {system['name']}, only on: {known}. "
                "Install the engine yourself; the role then keeps it."
            )
            return
    elif settings.source == "preinstalled":
        return
    if platform and system["package_manager"] == "apt":
        required = platform["support"] if result["is_installed"] else [*platform["packages"], *platform["support"]]
        if result["origin"] == "distribution":
            required = [*platform["packages"], *platform["support"]]
        result["packages"] = [package for package in required if package not in host["packages"]]


def _config(result: dict[str, t.Any], host: dict[str, t.Any], settings: Settings) -> None:
    flags = [Flag(**flag) for flag in host["docker_daemon_json"]["flags"]]
    options = dict(settings.docker_options)
    if settings.docker_recommended:
        options = recommended(options, version_key(result["version"]), is_swarm(host), {flag.key for flag in flags})
    result["options"] = options
    # The observation is masked, so compare it with masked options.
    masked_options = masked_tree(options)
    result["problems"] += [f"container_engine_docker_options.{text}" for text in value_problems(masked_options)]
    if not result["is_installed"] and not result["problems"]:
        # No dockerd can validate the options yet, and the role installs no version that has other options.
        result["problems"] += [f"container_engine_docker_options.{text}" for text in unknown_options(options)]
    if host["docker_daemon_json"].get("error"):
        result["problems"].append(host["docker_daemon_json"]["error"])
    if result["problems"]:
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
        result["problems"].append(str(error))
        return
    # Only the module on the host can compare passwords.
    result["config_needed"] = (
        bool(change.changed_keys)
        or change.state.record != state.record
        or bool(state.written)
        or masked_options != options
    )


def is_swarm(host: dict[str, t.Any]) -> bool:
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


def _service(unit: str, service: dict[str, t.Any]) -> dict[str, t.Any]:
    is_loaded = service.get("load_state") == "loaded"
    enabled = service.get("unit_file_state") in ("enabled", "enabled-runtime", "static", "indirect", "alias")
    active = service.get("active_state") in ("active", "reloading")
    return {
        "unit": unit,
        "is_known": is_loaded,
        "enable": not enabled,
        "start": not active,
        "needed": not (enabled and active),
    }


def _reason(result: dict[str, t.Any], host: dict[str, t.Any], service: dict[str, t.Any]) -> str:
    name, version = result["engine"], result["version"]
    if not result["is_installed"]:
        return f"{name} is not installed; the role installs it from {host['os']['name']}"
    origin = "the distribution" if result["origin"] == "distribution" else result["origin"]
    text = f"{name} {version or ''} from {origin} is installed and is kept".replace("  ", " ")
    if service and service.get("active_state") != "active":
        text += f"; its unit is {service.get('active_state') or 'not running'}"
    return text


def apply_plan(
    pending: dict[str, list[str]], info: dict[str, t.Any] | None, config: dict[str, t.Any], policy: str
) -> dict[str, t.Any]:
    """Decide how changed options take effect: `action` is none, reload, restart, reload_then_restart or wait."""
    reload, restart = pending["reload"], pending["restart"]
    need = f"{', '.join(restart)} {'needs' if len(restart) == 1 else 'need'}"
    if not reload and not restart:
        return {
            "action": "none",
            "reload": False,
            "restart": False,
            "reason": "the daemon uses the options in the file",
        }
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
        return _act("restart", f"{need} a restart; live-restore keeps the {counted} containers")
    if config.get("live-restore") is True and not info.get("swarm"):
        return _act(
            "reload_then_restart",
            f"{need} a restart; a reload first enables live-restore, which keeps the {counted} containers",
        )
    return _act(
        "wait",
        f"{need} a restart, which would stop {counted} containers because live-restore is off. "
        "Stop them and run again, or set container_engine_restart_policy=always.",
        reload=bool(reload),
    )


def _act(action: str, reason: str, reload: bool = False) -> dict[str, t.Any]:
    return {
        "action": action,
        "reload": reload or action in ("reload", "reload_then_restart"),
        "restart": action in ("restart", "reload_then_restart"),
        "reason": reason,
    }
