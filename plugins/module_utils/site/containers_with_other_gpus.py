# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find running containers of module gpu_container that have another GPU than the assigned one. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown

_GPU = re.compile(r"/dev/nvidia(\d+)")


def problems(host: Host, facts: Mapping[str, Any]) -> list[str]:
    """Name the containers that have nodes of GPUs that they were not assigned.

    A CDI specification from before a GPU was moved or replaced has such nodes, and a container keeps them. Containers
    whose GPUs the facts do not all show are left out.
    """
    minors = _minors(facts)
    found = []
    for holder in host.get("holders") or []:
        assigned = holder.get("assigned") or []
        if not assigned or not set(assigned) <= set(minors):
            continue
        own = {minors[uuid] for uuid in assigned}
        others = sorted(
            int(match[1]) for match in map(_GPU.fullmatch, holder["devices"]) if match and int(match[1]) not in own
        )
        if others:
            name = shown(holder.get("container_name") or holder["container"] or "")
            nodes = " and ".join(f"/dev/nvidia{minor}" for minor in others)
            found.append(
                f"The container {name} was assigned {', '.join(sorted(assigned))}, but it has {nodes}, which "
                f"{'are nodes' if len(others) > 1 else 'is a node'} of another GPU. Create the container again"
            )
    return found


def _minors(facts: Mapping[str, Any]) -> dict[str, int]:
    """Return the minor number of the GPU for the UUID of each GPU and MIG device."""
    found = {}
    for gpu in facts.get("nvidia_gpus", []) if facts.get("nvidia_gpu_state") == "ready" else []:
        if gpu.get("minor") is None:
            continue
        devices = [device.get("uuid") for device in (gpu.get("mig") or {}).get("devices") or []]
        found.update({uuid: gpu["minor"] for uuid in (gpu.get("uuid"), *devices) if uuid})
    return found
