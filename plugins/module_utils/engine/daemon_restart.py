# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether Docker reloads or restarts for changed options, and whether a new version may restart the daemon.

Both follow container_engine_restart_policy. Pure functions.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.coexistence import TITLES, running

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.variables import EngineRequest


@dataclasses.dataclass
class Apply:
    """How changed options take effect. `action` is none, reload, restart, reload_then_restart or wait."""

    action: str
    reason: str
    reload: bool = False
    restart: bool = False


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


def restart_problems(host: Host, request: EngineRequest, versions: str, *, is_older: bool) -> list[str]:
    """Refuse a change of the version that would stop containers, because the packages restart the daemon.

    The policy `never` allows no restart of a daemon with running containers, even if they would not stop.

    The containers of containerd do not stop, but an older containerd may be unable to manage them.
    """
    if request.restart_policy == "always":
        return []
    if request.name == "containerd":
        counts = {TITLES[name]: running(host, name) for name in ("docker", "containerd") if running(host, name)}
        if not counts or not is_older:
            return []
        listed = " and ".join(f"{name} ({number})" for name, number in counts.items())
        return [
            f"Changing containerd from {versions} is a downgrade, and the older version may be unable to manage "
            f"the running containers of {listed}. Stop these containers, or set container_engine_restart_policy=always."
        ]
    number = running(host, "docker")
    if request.name != "docker" or not number:
        return []
    change = f"Changing Docker from {versions} restarts the daemon"
    if not (host["engines"]["docker"]["info"] or {}).get("live_restore"):
        return [
            f"{change}, which would stop its running containers ({number}) because live-restore is off. Stop these "
            "containers, or set container_engine_restart_policy=always."
        ]
    if request.restart_policy != "never":
        return []
    return [
        f"{change}, but container_engine_restart_policy is never, and containers are running ({number}). Stop these "
        "containers, or set container_engine_restart_policy=when_safe, because live-restore keeps them running."
    ]
