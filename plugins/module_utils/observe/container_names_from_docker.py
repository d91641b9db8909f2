# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names and the assigned GPUs of containers that hold devices, if Docker knows them."""

from __future__ import annotations

import re
from typing import Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import UUID, is_like

Ask = Callable[[str, str], "dict | None"]
_DOCKER_ID = re.compile("[0-9a-f]{12}")
_SOCKET = "/run/docker.sock"
# The label with which gpu_container records the assigned GPUs.
_ASSIGNED = "gpufleet.gpus"


def add_container_names(host: dict, ask: Ask | None) -> None:
    """Add the name of each container with a GPU, and the GPUs that gpu_container assigned to it, if Docker knows it."""
    for holder in host["holders"]:
        holder["container_name"] = None
    if not (ask and host["engines"]["docker"]["info"]):
        return
    for holder in _of_other_vendors(host):
        answer = ask(_SOCKET, f"/containers/{holder['container']}/json") or {}
        holder["container"] = (answer.get("Name") or "").lstrip("/") or holder["container"]
    for holder in host["holders"]:
        if holder["container"]:
            answer = ask(_SOCKET, f"/containers/{holder['container']}/json") or {}
            holder["container_name"] = (answer.get("Name") or "").lstrip("/") or None
            assigned = ((answer.get("Config") or {}).get("Labels") or {}).get(_ASSIGNED)
            # A privileged container has all devices, and its user was warned.
            if assigned and not (answer.get("HostConfig") or {}).get("Privileged"):
                holder["assigned"] = [uuid for uuid in assigned.split(",") if is_like(UUID, uuid)]


def _of_other_vendors(host: dict) -> list[dict]:
    """Return the containers with devices of other vendors whose names only Docker knows."""
    records = [(group or {}).get("record") or {} for group in (host.get("accelerators") or {}).values()]
    found = [holder for record in records for holder in record.get("holders") or ()]
    return [holder for holder in found if _DOCKER_ID.fullmatch(holder["container"] or "")]
