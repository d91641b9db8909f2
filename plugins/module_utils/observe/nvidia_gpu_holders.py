# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes and containers use NVIDIA's GPUs."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import gpu_processes

_SHORT_ID = 12


def holders(root: str) -> list[dict]:
    """List the processes that have a GPU device open, and the running containers that have one in /dev.

    A container is listed once, with its first process, regardless of its engine.
    """
    return [
        {
            "pid": user.pid,
            "command": user.command or None,
            "devices": sorted(user.opened | user.visible),
            "open": bool(user.opened),
            "container": _name(user.container) if user.container else None,
        }
        for user in gpu_processes.gpu_users(root)
    ]


def _name(container: gpu_processes.Container) -> str:
    """Return the short ID of a container, of the outer one if it is nested. LXC has only names."""
    return container.identifiers[0][:_SHORT_ID] if container.identifiers else container.name
