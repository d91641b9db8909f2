# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Digests of the options with passwords or tokens, so that masked values can be compared.

A digest depends on the host and on the key, so equal passwords have different digests. It is slow to compute, which
protects passwords from guessing.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import (
    login_digests,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import managed_keys
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.docker_options import merge_policy
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.managed_keys import (
    ABSENT,
    Leaf,
    ManagedRecord,
    Path,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.secret_masking import masked, masked_tree


def of_tree(tree: dict[str, t.Any], machine_id: str | None) -> dict[str, str]:
    """Return the dotted name of each option that contains a secret, by digest."""
    values = managed_keys.leaves(tree, merge_policy())
    return {digest: masked(leaf.name) for leaf, value in values.items() if (digest := _digest(leaf, value, machine_id))}


def of_record(record: ManagedRecord, machine_id: str | None) -> dict[str, dict[str, str]]:
    """Return the dotted name of each recorded option that contains a secret, by manager and digest."""
    found: dict[str, dict[str, str]] = {}
    for leaf, entry in record.entries.items():
        digest = _digest(leaf, entry.value, machine_id)
        for manager in entry.managers if digest else ():
            found.setdefault(manager, {})[t.cast("str", digest)] = masked(leaf.name)
    return found


def _digest(leaf: Leaf, value: t.Any, machine_id: str | None) -> str | None:
    if value is ABSENT or not _is_secret(leaf.path, value):
        return None
    value = merge_policy().normalize(leaf.path, value)
    return login_digests.digest(json.dumps([machine_id, leaf.path, value], sort_keys=True))


def _is_secret(path: Path, value: t.Any) -> bool:
    return masked_tree(value, path[-1]) != value or any(masked(key) != key for key in path)
