# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the processes and containers that use NVIDIA GPUs."""

from __future__ import annotations

import os
import re
from typing import Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import listing, read_text

Ask = Callable[[str, str], "dict | None"]


def holders(root: str) -> list[dict]:
    """List the processes that have a GPU device open, and the running containers that have one in /dev.

    A container is listed once, with its first process, regardless of its engine.
    """
    found = []
    host_mounts = _link(root, "/proc/1/ns/mnt")
    own = _containers(root, 1)  # The host may be a container itself.
    seen = set()
    for pid in sorted(int(name) for name in listing(root, "/proc") if name.isdigit()):
        opened = {
            target
            for name in listing(root, f"/proc/{pid}/fd")
            for target in [_link(root, f"/proc/{pid}/fd/{name}")]
            if target and target.startswith("/dev/nvidia")
        }
        mounts = _link(root, f"/proc/{pid}/ns/mnt")
        container = next(iter(_containers(root, pid) - own), None)
        visible = set()
        if container and mounts not in (None, host_mounts) and mounts not in seen:
            seen.add(mounts)
            visible = {
                f"/dev/{name}" for name in listing(root, f"/proc/{pid}/root/dev") if re.fullmatch(r"nvidia\d+", name)
            }
        if opened or visible:
            found.append(
                {
                    "pid": pid,
                    "command": (read_text(root, f"/proc/{pid}/comm") or "").strip() or None,
                    "devices": sorted(opened | visible),
                    "open": bool(opened),
                    "container": container,
                }
            )
    return found


def add_container_names(host: dict, ask: Ask | None) -> None:
    """Add the names of the containers that use a GPU, if Docker knows the container."""
    for holder in host["holders"]:
        holder["container_name"] = None
    if not (ask and host["engines"]["docker"]["info"] and any(holder["container"] for holder in host["holders"])):
        return
    for holder in host["holders"]:
        if holder["container"]:
            answer = ask("/run/docker.sock", f"/containers/{holder['container']}/json") or {}
            holder["container_name"] = (answer.get("Name") or "").lstrip("/") or None


def _containers(root: str, pid: int) -> set[str]:
    groups = read_text(root, f"/proc/{pid}/cgroup") or ""
    found = re.findall(r"(?:docker|libpod|cri-containerd|crio|containerd)[-/]([0-9a-f]{64})", groups)
    return {name[:12] for name in found}


def _link(root: str, path: str) -> str | None:
    try:
        return os.readlink(os.path.join(root, path.lstrip("/")))
    except OSError:
        return None
