# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be done so that a host has its container engine: pure functions over what was observed of the host.

This file is private to the collection: it may change in any release.
"""

from __future__ import annotations

import typing as t

from ansible.module_utils.common.validation import check_type_bool, check_type_dict

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import daemon_config
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import version_key

MANAGER = "container_engine"
RECORD_FILE = daemon_config.state_path(daemon_config.DEFAULT_STATE_DIRECTORY, daemon_config.DEFAULT_PATH)
_UNITS = {"docker": "docker.service", "containerd": "containerd.service", "podman": None}
# CDI came with Docker 25 as an experiment that has to be asked for, and is on by default since 28.2.
_CDI_ON_REQUEST = ((25,), (28, 2))


class SettingsError(Exception):
    """A variable has a value that does not stand for what it wants. The text names the variable and the form."""


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
    """The variables as values of the types that they stand for.

    Argument validation accepts a text that stands for a truth value or a dictionary, and leaves it a text: `-e` with
    key=value, an INI inventory and surveys know nothing else.
    """
    options = _as("container_engine_docker_options", check_type_dict, docker_options or {}, '{"mtu": 9000}')
    for key in options:
        if not isinstance(key, str):
            raise SettingsError(
                f"container_engine_docker_options has {key!r}, which is no option's name. Write it in quotes."
            )
    recommended_ = _as("container_engine_docker_recommended", check_type_bool, docker_recommended, "true or false")
    return Settings(name, source, options, recommended_, platforms)


def _as(name: str, convert: t.Callable[[t.Any], t.Any], value: t.Any, form: str) -> t.Any:
    try:
        return convert(value)
    except (TypeError, ValueError, RecursionError) as error:
        shown = daemon_config.masked_file(str(value))[:60]
        raise SettingsError(f"{name} is {shown!r}, which is not of the form {form}.") from error


def plan(host: dict[str, t.Any], settings: Settings) -> dict[str, t.Any]:
    """Resolve what the role is to do on this host, and why."""
    engine = host["engines"][settings.name]
    unit = _UNITS[settings.name]
    service = host["services"].get(unit or "", {})
    platform = (settings.platforms.get(host["os"]["key"] or "") or {}).get(settings.name)
    origin, there = _found(settings.name, engine, service, platform)
    result: dict[str, t.Any] = {
        "engine": settings.name,
        "is_there": there,
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
            result["problems"].append(f"{unit} is masked on this host, so somebody wants it off. Unmask it first.")
    works = bool(result["packages"] or result["config_needed"] or (result["service"] or {}).get("needed"))
    if works and host["uid"] != 0:
        result["problems"].append(f"this needs root, and the host was seen as user {host['uid']}. Set become: true.")
    result["reason"] = _reason(result, host, service)
    return result


def _found(
    name: str, engine: dict[str, t.Any], service: dict[str, t.Any], platform: dict[str, t.Any] | None
) -> tuple[str | None, bool]:
    """Whose engine is there already, and whether one is there at all."""
    if engine["package"]:
        ours = bool(platform) and engine["package"] in t.cast("dict[str, t.Any]", platform)["packages"]
        return ("distribution" if ours else f"package {engine['package']}"), True
    if name != "podman" and service.get("load_state") == "loaded":
        return f"unit {service.get('fragment_path')}", True
    return None, False


def _version(engine: dict[str, t.Any], platform: dict[str, t.Any] | None) -> str | None:
    said = (engine.get("info") or {}).get("server_version") or engine["version"]
    return said or (platform or {}).get("version")


def _packages(
    result: dict[str, t.Any], host: dict[str, t.Any], settings: Settings, platform: dict[str, t.Any] | None
) -> None:
    """An engine that is there is kept, whoever packaged it; what our own modules need beside it is completed."""
    name, system = settings.name, host["os"]
    if not result["is_there"]:
        if settings.source == "preinstalled":
            result["problems"].append(
                f"container_engine_source=preinstalled, but {name} is not on this host. "
                "Install it, or set container_engine_source=distribution."
            )
            return
        if not platform:
            known = ", ".join(sorted(key for key, row in settings.platforms.items() if name in row)) or "none"
            result["problems"].append(
                f"container_engine_name={name}: how to install it on {system['name']} is not known (known: {known}). "
                "Install an engine by your own means; this role then adopts it."
            )
            return
    elif settings.source == "preinstalled":
        return
    if platform and system["package_manager"] == "apt":
        wanted = platform["support"] if result["is_there"] else [*platform["packages"], *platform["support"]]
        if result["origin"] == "distribution":
            wanted = [*platform["packages"], *platform["support"]]
        result["packages"] = [package for package in wanted if package not in host["packages"]]


def _config(result: dict[str, t.Any], host: dict[str, t.Any], settings: Settings) -> None:
    flags = [daemon_config.Flag(**flag) for flag in host["docker_daemon_json"]["flags"]]
    options = dict(settings.docker_options)
    if settings.docker_recommended:
        options = recommended(options, version_key(result["version"]), is_swarm(host), {flag.key for flag in flags})
    result["options"] = options
    # What was seen is masked, so it is compared with masked options.
    shown = daemon_config.masked_tree(options)
    result["problems"] += [f"container_engine_docker_options.{text}" for text in daemon_config.value_problems(shown)]
    if not result["is_there"] and not result["problems"]:
        # The one that is to come cannot be asked yet, and is none newer than what is known.
        result["problems"] += [
            f"container_engine_docker_options.{text}" for text in daemon_config.unknown_options(options)
        ]
    if host["docker_daemon_json"].get("error"):
        result["problems"].append(host["docker_daemon_json"]["error"])
    if result["problems"]:
        return
    file, record = host["files"][daemon_config.DEFAULT_PATH], host["files"].get(RECORD_FILE, {})
    try:
        state = daemon_config.load_state(record.get("content"), RECORD_FILE)
        done = daemon_config.plan(
            file["content"] if file["exists"] else None,
            state,
            MANAGER,
            shown,
            present=True,
            lists="union",
            flags=flags,
            path=daemon_config.DEFAULT_PATH,
        )
    except daemon_config.DaemonConfigError as error:
        result["problems"].append(str(error))
        return
    # Only the module on the host can tell whether a password is still the same.
    result["config_needed"] = (
        bool(done.changed_keys) or done.state.record != state.record or bool(state.written) or shown != options
    )


def is_swarm(host: dict[str, t.Any]) -> bool:
    return bool(((host["engines"]["docker"].get("info")) or {}).get("swarm"))


def recommended(
    options: dict[str, t.Any], version: tuple[int, ...], in_swarm: bool, flags: t.Collection[str] = ()
) -> dict[str, t.Any]:
    """The options with those added that a GPU host is better off with.

    What the user says comes first, and so do the flags that somebody gave the daemon in its unit.
    """
    found = dict(options)
    if not in_swarm and "live-restore" not in flags:
        found.setdefault("live-restore", True)
    first, last = _CDI_ON_REQUEST
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
    if not result["is_there"]:
        return f"{name} is not on this host; it comes from {host['os']['name']}"
    where = "the distribution" if result["origin"] == "distribution" else result["origin"]
    text = f"{name} {version or ''} of {where} is there and is kept".replace("  ", " ")
    if service and service.get("active_state") != "active":
        text += f"; its unit is {service.get('active_state') or 'not running'}"
    return text


def apply_plan(
    pending: dict[str, list[str]], info: dict[str, t.Any] | None, config: dict[str, t.Any], policy: str
) -> dict[str, t.Any]:
    """How changed options become effective: `action` is none, reload, restart, reload_then_restart or wait."""
    reload, restart = pending["reload"], pending["restart"]
    they_need = f"{', '.join(restart)} {'needs' if len(restart) == 1 else 'need'}"
    if not reload and not restart:
        return {"action": "none", "reload": False, "restart": False, "reason": "the daemon uses what is in the file"}
    if not restart:
        return _act("reload", f"a reload is enough for {', '.join(reload)}")
    if policy == "always":
        return _act("restart", f"{they_need} a restart, and container_engine_restart_policy is always")
    if policy == "never":
        return _act("wait", f"{they_need} a restart, and container_engine_restart_policy is never", reload=bool(reload))
    if info is None:
        return _act(
            "wait",
            f"{they_need} a restart, and the daemon does not say whether containers run. "
            "Restart it yourself, or set container_engine_restart_policy=always.",
            reload=bool(reload),
        )
    # Docker counts paused containers apart from the running ones. A restart ends them as well.
    numbers = {state: info.get(f"containers_{state}") or 0 for state in ("running", "paused")}
    if not any(numbers.values()):
        return _act("restart", f"{they_need} a restart, and no container is running")
    counted = " and ".join(f"{number} {state}" for state, number in numbers.items() if number)
    # A daemon that starts without live-restore ends the containers that one with it has left running.
    stays = config.get("live-restore") is True or "live-restore" not in (*reload, *restart)
    if info.get("live_restore") and stays:
        return _act("restart", f"{they_need} a restart; live-restore keeps the {counted} containers")
    if config.get("live-restore") is True and not info.get("swarm"):
        return _act(
            "reload_then_restart",
            f"{they_need} a restart; a reload first turns live-restore on, which keeps {counted} containers",
        )
    return _act(
        "wait",
        f"{they_need} a restart, which would stop {counted} containers without live-restore. "
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
