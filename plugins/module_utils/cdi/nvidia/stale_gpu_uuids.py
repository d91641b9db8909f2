# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a CDI specification names the UUIDs of other GPUs and MIG devices than the host has. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import rewrite_command

# The names of devices that are UUIDs of GPUs and MIG devices.
_UUID = re.compile(r"""\bname["']?\s*:\s*["']?((?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b""")


def written(text: str) -> tuple[str, ...]:
    """Return the UUIDs that are names of devices. The result is empty if the specification names devices otherwise."""
    return tuple(sorted(set(_UUID.findall(text))))


def changed_message(
    path: str, named: list[str], present: Collection[str], *, ours: bool, command: str | None = None
) -> str | None:
    """Return a message if a specification names other devices than those that are present.

    Both are UUIDs. Return None if one of them is empty, because then they are not known.
    """
    gone, new = sorted(set(named) - set(present)), sorted(set(present) - set(named))
    if not named or not present or not (gone or new):
        return None
    parts = [*([f"it names {', '.join(gone)}, which no longer exists"] if len(gone) == 1 else [])]
    if len(gone) > 1:
        parts.append(f"it names {', '.join(gone)}, which no longer exist")
    if new:
        parts.append(f"it lacks {', '.join(new)}")
    remedy = rewrite_command.remedy(path, command, ours=ours)
    return f"the CDI specification {path} is stale: {', and '.join(parts)}; {remedy}"


def present(facts: Mapping[str, Any]) -> set[str]:
    """Return the UUIDs of the devices that a specification can name. A GPU in MIG mode is not one of them."""
    found: set[str] = set()
    for gpu in facts.get("nvidia_gpus", []) if facts.get("nvidia_gpu_state") == "ready" else []:
        mig = gpu.get("mig") or {}
        names = [device.get("uuid") for device in mig.get("devices") or []] if mig.get("enabled") else [gpu.get("uuid")]
        # Specifications do not contain lost GPUs, so their UUIDs show nothing.
        if (gpu.get("health") or {}).get("state") == "lost" or None in names:
            return set()
        found.update(names)
    return found
