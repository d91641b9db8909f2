# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has a device node of Gaudi or Neuron open, which keeps its driver from being replaced."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import gpu_processes

# The vendors whose drivers are not replaced while a program uses a device, and the nodes that count. Monitoring opens
# Gaudi's control nodes.
_HELD = {"neuron": re.compile(r"/dev/neuron\d+"), "gaudi": re.compile(r"/dev/(?:accel/accel|hl)\d+")}


def that_count(vendor: str, nodes: Iterable[str]) -> list[str]:
    """Return the nodes that keep the vendor's driver from being replaced while a program has them open."""
    return [path for path in nodes if vendor in _HELD and _HELD[vendor].fullmatch(path)]


def holders(root: str, nodes: Iterable[str]) -> list[dict[str, Any]]:
    """Return the processes that have a node open, and the containers that have one in their /dev."""
    wanted = list(nodes)
    table = gpu_processes.read(root, nodes=wanted)
    numbers = {gpu_processes.device_numbers(os.path.join(root, path.lstrip("/"))): path for path in wanted}
    found = [
        {
            "pid": one.pid,
            "command": one.command,
            "container": _title(one.container) if one.container else None,
            "nodes": sorted(one.opened),
        }
        for one in table.processes.values()
        if one.opened
    ]
    for container in table.containers:
        given = sorted({numbers[number] for number in container.devices if number in numbers})
        # A privileged container has all nodes.
        if given and not container.privileged:
            found.append({"pid": None, "command": None, "container": _title(container), "nodes": given})
    return found


def _title(container: gpu_processes.Container) -> str:
    return container.name or (container.identifiers[-1][:12] if container.identifiers else container.engine)
