# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses the devices of a vendor, so that its driver is not replaced or removed. Pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Part


def holders(host: Mapping[str, Any], vendor: str) -> list[str]:
    """Return the processes and containers that hold a device, for messages."""
    record = (host["accelerators"][vendor] or {}).get("record") or {}
    texts = []
    for one in record.get("holders") or ():
        process = f"process {one['pid']} ({shown(one['command'])})" if one["pid"] else ""
        container = f"container {shown(one['container'])}" if one["container"] else ""
        texts.append(f"{container or process} ({', '.join(one['nodes'])})")
    return list(dict.fromkeys(texts))


def refusal(host: Mapping[str, Any], vendor: str, devices: str, what: str) -> str | None:
    """Return why the driver stays as it is, or None. `devices`: what the vendor calls them. `what`: what is refused."""
    found = holders(host, vendor)
    if not found:
        return None
    return (
        f"The driver cannot be {what}, because {devices} are in use by {'; '.join(found)}. Stop the containers and "
        "processes, and run this role again. Nothing was changed."
    )


def after_drain(host: Host, vendor: str, *, drains: bool) -> tuple[Host, list[str]]:
    """Return the host as a drain leaves it, and what holds the devices until then. The role plans again after it."""
    group = host["accelerators"][vendor]
    held = holders(host, vendor) if drains else []
    if not held or group is None:
        return host, []
    idle = {**group, "record": {**group["record"], "holders": []}}
    changed: Host = {**host, "accelerators": {**host["accelerators"], vendor: idle}}  # type: ignore[typeddict-item]
    return changed, held


def in_drain(part: Part, held: list[str], devices: str, *, changes_driver: bool) -> Part:
    """Return a part of a run that drains the host first if the driver changes. `held`: see `after_drain`."""
    waits = [f"{devices} are in use by {'; '.join(held)}; the drain must end this first"] if held else []
    return dataclasses.replace(
        part,
        changes_driver=changes_driver,
        reasons=[*part.reasons, *(waits if changes_driver else [])],
        plans_again=part.plans_again or bool(held and changes_driver),
    )
