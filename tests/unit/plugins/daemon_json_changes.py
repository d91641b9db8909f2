# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan changes of daemon.json with the defaults of module docker_daemon_config."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import plan as daemon_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.managed_keys import EMPTY_RECORD
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.record import State

FILE = "/etc/docker/daemon.json"


def plan(
    before: str | None, options: dict[str, t.Any] | None, state: State | None = None, **more: t.Any
) -> daemon_plan.DaemonPlan:
    """Plan a change for manager `us`."""
    arguments: dict[str, t.Any] = {"present": True, "lists": "union", "flags": [], "path": FILE, **more}
    manager = arguments.pop("manager", "us")
    return daemon_plan.plan(before, state or State(EMPTY_RECORD), manager, options, **arguments)
