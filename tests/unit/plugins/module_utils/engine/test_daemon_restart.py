# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.daemon_restart import apply_plan

IDLE = {"containers_running": 0, "live_restore": False, "swarm": False}
BUSY = {"containers_running": 3, "live_restore": False, "swarm": False}
SAFE = {"containers_running": 3, "live_restore": True, "swarm": False}
PAUSED = {"containers_running": 0, "containers_paused": 3, "live_restore": False, "swarm": False}
KEEPS = {"live-restore": True}
RESTART = {"reload": ["live-restore"], "restart": ["features.cdi"]}


@pytest.mark.parametrize(
    ("pending", "info", "config", "policy", "expected"),
    [
        ({"reload": [], "restart": []}, BUSY, {}, "when_safe", ("none", False, False, "uses the options in the file")),
        ({"reload": ["debug"], "restart": []}, BUSY, {}, "never", ("reload", True, False, "enough for debug")),
        (RESTART, IDLE, {}, "when_safe", ("restart", False, True, "no container is running")),
        (RESTART, SAFE, {}, "when_safe", ("wait", True, False, "would stop 3 running")),
        (RESTART, SAFE, {"live-restore": False}, "when_safe", ("wait", True, False, "would stop 3 running")),
        (RESTART, SAFE, KEEPS, "when_safe", ("restart", False, True, "live-restore keeps the 3 running")),
        ({"reload": [], "restart": ["mtu"]}, SAFE, {}, "when_safe", ("restart", False, True, "keeps the 3 running")),
        ({"reload": [], "restart": ["live-restore"]}, SAFE, {}, "when_safe", ("wait", False, False, "would stop 3")),
        (RESTART, BUSY, KEEPS, "when_safe", ("reload_then_restart", True, True, "first enables live-restore")),
        (RESTART, {**BUSY, "swarm": True}, KEEPS, "when_safe", ("wait", True, False, "would stop 3 running")),
        (RESTART, BUSY, {}, "when_safe", ("wait", True, False, "would stop 3 running containers")),
        ({"reload": [], "restart": ["mtu"]}, BUSY, {}, "when_safe", ("wait", False, False, "mtu needs a restart")),
        (RESTART, {**IDLE, "containers_paused": 0}, {}, "when_safe", ("restart", False, True, "no container")),
        (RESTART, PAUSED, {}, "when_safe", ("wait", True, False, "would stop 3 paused containers")),
        (
            RESTART,
            PAUSED,
            KEEPS,
            "when_safe",
            ("reload_then_restart", True, True, "keeps the 3 paused containers"),
        ),
        (
            RESTART,
            {**SAFE, "containers_paused": 2},
            KEEPS,
            "when_safe",
            ("restart", False, True, "live-restore keeps the 3 running and 2 paused containers"),
        ),
        (RESTART, BUSY, {}, "always", ("restart", False, True, "restart_policy is always")),
        (RESTART, IDLE, {}, "never", ("wait", True, False, "restart_policy is never")),
        (RESTART, None, {}, "when_safe", ("wait", True, False, "does not report whether containers are running")),
    ],
)
def test_options_take_effect_by_reload_or_restart(
    pending: dict[str, list[str]],
    info: dict[str, t.Any] | None,
    config: dict[str, t.Any],
    policy: str,
    expected: tuple[str, bool, bool, str],
) -> None:
    done = apply_plan(pending, info, config, policy)
    assert (done.action, done.reload, done.restart) == expected[:3]
    assert expected[3] in done.reason
