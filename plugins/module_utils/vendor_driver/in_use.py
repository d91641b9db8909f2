# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses the devices of a vendor, so that its driver is not replaced or removed. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.host_text import shown


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
