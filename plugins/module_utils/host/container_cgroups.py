# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The containers and the pod in the cgroup names of a process. No other file has a pattern for these names.

Engines name a cgroup after the container, with or without a prefix and `.scope`, and anywhere in the tree: the cgroup
driver, slices, systemd in the container and rootless engines change the rest of the path.
"""

from __future__ import annotations

import re

_IDENTIFIER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?=\.scope|[/:]|$)", re.MULTILINE)
_POD = re.compile(r"kubepods.*?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})\b")
# LXC uses lxc.payload.NAME, and /lxc/NAME before version 4. Proxmox VE still uses /lxc/NUMBER.
_LXC = re.compile(r"/lxc(?:\.payload\.|/)([^/\n]+)")
# The first text in the name of a container's cgroup decides.
_ENGINES = (
    ("kubepods", "kubernetes"),
    ("libpod", "podman"),
    ("crio", "kubernetes"),
    ("cri-containerd", "kubernetes"),
    ("docker", "docker"),
)


def container_ids(groups: str) -> list[str]:
    """Return the IDs of the containers in the text of /proc/PID/cgroup, the enclosing ones first."""
    return list(dict.fromkeys(_IDENTIFIER.findall(groups)))


def pod_uid(groups: str) -> str:
    """Return the UID of the Kubernetes pod, or an empty text."""
    found = _POD.search(groups)
    return found.group(1).replace("_", "-") if found else ""


def lxc_names(groups: str) -> list[str]:
    """Return the names of the containers of LXC, LXD, Incus or Proxmox VE, the enclosing ones first."""
    return list(dict.fromkeys(_LXC.findall(groups)))


def engine_name(groups: str) -> str:
    """Return the engine that uses such a name, or an empty text if several engines use it."""
    return next((engine for text, engine in _ENGINES if text in groups), "")
