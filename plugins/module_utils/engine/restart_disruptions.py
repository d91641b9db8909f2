# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run interrupts when Docker restarts, for changed options or another version. Pure functions."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import (
    ENGINE_RESTART,
    FORBIDDEN,
    Disruption,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import coexistence, daemon_restart

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step

_POLICY = "container_engine_restart_policy"


def of_options(host: Host, restart: t.Sequence[str], config: t.Mapping[str, t.Any], policy: str) -> list[Disruption]:
    """Return the restart of a running Docker for changed options. `config`: daemon.json afterwards."""
    service = host["services"].get("docker.service") or {}
    if not restart or service.get("active_state") not in ("active", "reloading"):
        return []
    info = host["engines"]["docker"].get("info")
    decision = daemon_restart.apply_plan({"reload": [], "restart": list(restart)}, info, dict(config), policy)
    if decision.restart:
        keeps = decision.action == "reload_then_restart" or bool((info or {}).get("live_restore"))
        number = 0 if keeps else coexistence.running(host, "docker")
        return [Disruption(ENGINE_RESTART, decision.reason, target="docker.service", count=number)]
    return [
        Disruption(ENGINE_RESTART, decision.reason, FORBIDDEN, target="docker.service", forbidden_by=_POLICY),
    ]


def of_packages(host: Host, name: str, unit: str | None, reason: str) -> list[Disruption]:
    """Return the restart of a running engine by its packages. `reason`: what the packages change."""
    service = host["services"].get(unit or "") or {}
    if not unit or service.get("active_state") not in ("active", "reloading"):
        return []
    keeps = name != "docker" or bool((host["engines"]["docker"].get("info") or {}).get("live_restore"))
    number = coexistence.running(host, name)
    kept = f"; its containers ({number}) keep running" if keeps and number else ""
    return [Disruption(ENGINE_RESTART, f"{reason}{kept}", target=unit, count=0 if keeps else number)]


def after_packages(config: list[Step], restarts: t.Collection[Disruption]) -> list[Step]:
    """Return the steps that change options, without interruptions of their own if the packages restart the daemon.

    It then reads its options, too. `restarts`: what the packages interrupt.
    """
    return [dataclasses.replace(one, disrupts=()) for one in config] if restarts else config
