# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the users that a role adds to the groups of the device nodes, and their removal. Pure functions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import USER, is_like
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver.vendor_differences import VendorDriver


@dataclasses.dataclass
class VendorUsers:
    """`create`: groups to create. `add` and `remove`: pairs of user and group. `record`: all pairs of the role."""

    create: list[str] = dataclasses.field(default_factory=list)
    add: list[list[str]] = dataclasses.field(default_factory=list)
    remove: list[list[str]] = dataclasses.field(default_factory=list)
    record: list[list[str]] = dataclasses.field(default_factory=list)
    record_path: str = ""
    has_record: bool = False
    changes: list[str] = dataclasses.field(default_factory=list)


def plan(host: Mapping[str, Any], vendor: VendorDriver, users: Iterable[str]) -> VendorUsers:
    """Return the memberships to add, and those of users that are no longer requested, to remove."""
    result = _empty(host, vendor)
    groups = _groups(host, vendor)
    wanted = [[user, group] for user in dict.fromkeys(users) for group in vendor.groups]
    recorded = [pair for pair in _recorded(host, vendor) if pair[0] in groups.get(pair[1], ())]
    result.create = [name for name in vendor.groups if name not in groups] if wanted else []
    result.add = [pair for pair in wanted if pair[0] not in groups.get(pair[1], ())]
    result.remove = [pair for pair in recorded if pair not in wanted]
    result.record = sorted([*result.add, *(pair for pair in recorded if pair in wanted)])
    result.changes = [
        *(f"create group {name}" for name in result.create),
        *_texts("add {} to group {}", result.add, vendor),
        *_texts("remove {} from group {}", result.remove, vendor),
    ]
    return result


def removal(host: Mapping[str, Any], vendor: VendorDriver) -> VendorUsers:
    """Return the memberships to remove: those that the role has added. Groups stay, because nodes belong to them."""
    result = plan(host, vendor, ())
    if result.has_record and not result.remove:
        result.changes.append(f"remove {result.record_path}")
    return result


def _empty(host: Mapping[str, Any], vendor: VendorDriver) -> VendorUsers:
    path = owned.ACCELERATOR_USERS[vendor.name]
    return VendorUsers(record_path=path, has_record=observed_files.exists(host, path))


def _groups(host: Mapping[str, Any], vendor: VendorDriver) -> dict[str, list[str]]:
    group = host["accelerators"][vendor.name]
    # The memberships stay on a host whose devices are gone.
    return (group["record"] or {}).get("groups", {}) if group else host.get("former_groups") or {}


def _texts(form: str, pairs: list[list[str]], vendor: VendorDriver) -> list[str]:
    names = {group: [user for user, other in pairs if other == group] for group in vendor.groups}
    return [form.format(", ".join(found), group) for group, found in names.items() if found]


def _recorded(host: Mapping[str, Any], vendor: VendorDriver) -> list[list[str]]:
    try:
        found = json.loads(observed_files.content(host, owned.ACCELERATOR_USERS[vendor.name]) or "null")
        pairs = found.get("members") if isinstance(found, dict) else None
        return [[user, group] for user, group in pairs or [] if group in vendor.groups and is_like(USER, user)]
    except (TypeError, ValueError):
        return []
