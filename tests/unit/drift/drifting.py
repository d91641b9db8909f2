# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Break one item in an observation, by kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.tests.drift import items as drift_items
from ansible_collections.gpufleet.hosts.tests.unit.drift import converged_host as sample


def remove_daemon_json(host: dict[str, Any]) -> None:
    host["files"][owned.DAEMON_JSON] = dict(drift_items.NO_FILE)
    host["docker_daemon_json"].update(exists=False, content=None)


def _package(host: dict[str, Any], name: str) -> None:
    host["installed_packages"].pop(name)
    host["packages"].pop(name, None)
    if name in host["held_packages"]:
        host["held_packages"].remove(name)
    for kernel in host["kernel"]["kernels"]:
        kernel["headers"] = kernel["headers"] and name != f"linux-headers-{kernel['release']}"


def _hold(host: dict[str, Any], name: str) -> None:
    host["held_packages"].remove(name)
    host["packages"][name]["held"] = False


def _module(host: dict[str, Any], name: str) -> None:
    host["modules_loaded"] = ["nvidia"] if name == "nvidia_uvm" else []
    host["accelerators"]["nvidia"]["driver"]["loaded"] = (
        host["accelerators"]["nvidia"]["driver"]["loaded"] if name == "nvidia_uvm" else None
    )


def _build(host: dict[str, Any], _name: str) -> None:
    host["kernel"]["kernels"][0]["nvidia_module"] = None
    host["accelerators"]["nvidia"]["driver"].update(drift_items.NO_MODULE)


def _option(host: dict[str, Any], name: str) -> None:
    content: dict[str, Any] = host["docker_daemon_json"]["content"]
    head, _dot, rest = name.partition(".")
    content[head] = {rest: False} if rest else False
    host["files"][host["docker_daemon_json"]["path"]]["content"] = json.dumps(content)


BREAK: dict[str, Callable[[dict[str, Any], str], Any]] = {
    "package": _package,
    "hold": _hold,
    "file": lambda host, name: host["files"][name].update(content="# edited\n"),
    "service": lambda host, name: host["services"][name].update(active_state="inactive"),
    "module": _module,
    "build": _build,
    "option": _option,
    "volume": lambda host, name: host["driver_volume"].update(changed=True, actions=[f"repair volume {name}: add 1"]),
    "registration": lambda host, name: host["driver_volume"].update(
        changed=True, actions=[f"register {sample.VOLUME} with {name}"]
    ),
    "persistence_mode": lambda host, name: None,
}
