# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the CDI specification of a vendor's accelerators with the devices of the host. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import accelerator_specification, directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver.vendor_differences import VendorDriver

_NUMBERS = re.compile(r" \d+:\d+\Z")
_MOST_NAMES = 3


def own(specs: Sequence[Mapping[str, Any]], vendor: VendorDriver) -> Mapping[str, Any] | None:
    """Return the observed specification of this collection for a vendor, or None."""
    path = directories.real(owned.ACCELERATOR_CDI_SPECIFICATIONS[vendor.name])
    return next((spec for spec in specs if spec["ours"] and directories.real(spec["path"]) == path), None)


def other(specs: Sequence[Mapping[str, Any]], vendor: VendorDriver, kind: str) -> Mapping[str, Any] | None:
    """Return a specification of the same kind that is not the own one. Engines reject devices that two describe."""
    path = directories.real(owned.ACCELERATOR_CDI_SPECIFICATIONS[vendor.name])
    return next((spec for spec in specs if spec["kind"] == kind and directories.real(spec["path"]) != path), None)


def expected(devices: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the nodes of each device that a specification should have. Unusable devices are left out."""
    found: dict[str, list[str]] = {}
    every: dict[str, None] = {}
    usable = []
    for device in devices:
        nodes = device["nodes"] or []
        if device["health"]["state"] == "lost" or not nodes or any(node["gid"] is None for node in nodes):
            continue
        usable.append(device)
        paths = [node["path"] for node in nodes]
        every.update(dict.fromkeys(paths))
        found.update(dict.fromkeys(accelerator_specification.names(device), paths))
    if found and not accelerator_specification.gap(usable):
        found[accelerator_specification.ALL] = list(every)
    return found


def differences(spec: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return how a specification differs from the host, as parts of a sentence. Empty: it is current."""
    if spec["nodes"] is None:
        return ["it cannot be read"]
    common = [_path(node) for node in spec["nodes"].get("", [])]
    written = {name: {*common, *map(_path, nodes)} for name, nodes in spec["nodes"].items() if name}
    wanted = expected(devices)
    gone = [name for name in written if name not in wanted]
    new = [name for name in wanted if name not in written]
    changed = [name for name in wanted if name in written and written[name] != set(wanted[name])]
    found = []
    if gone:
        found.append(f"it names {_names(gone)}, which no longer exist{'s' if len(gone) == 1 else ''}")
    if new:
        found.append(f"it lacks {_names(new)}")
    if changed:
        first = changed[0]
        found.append(
            f"device {first} has the nodes {', '.join(sorted(written[first]))} instead of "
            f"{', '.join(sorted(wanted[first]))}"
        )
    return found


def message(vendor: VendorDriver, spec: Mapping[str, Any], found: Sequence[str]) -> str:
    """Return the message for a specification that differs from the host."""
    advice = f"run `systemctl restart {vendor.service}`" if spec["ours"] else "create it again with its own tool"
    return f"the CDI specification {spec['path']} is stale: {', and '.join(found)}; {advice}"


def _path(node: str) -> str:
    return _NUMBERS.sub("", node)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
