# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find keys that rpm imported from a key file together with the trusted key.

Only the first key of a file used to be verified, but rpm imports every key of a file and trusts it until somebody
erases it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_ownership
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def in_files(contents: Iterable[bytes | None], keys: Iterable[str], records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the fingerprints in replaced key files that are neither among the new `keys` nor trusted by a record."""
    found = {key for content in contents if content for key in key_trust.describe(content)["fingerprints"]}
    return sorted(found.difference(keys, *map(record_ownership.trusted_keys, records)))


def of_host(host: Host) -> dict[str, list[str]]:
    """Return the names of rpm's packages for further keys, by the key file or the record that names the key."""
    records = {path: _record(host, path) for path in host["files"] if owned.is_record(path)}
    trusted = {key for known in records.values() for key in record_ownership.trusted_keys(known)}
    candidates = {path: set(known["further_keys"]) for path, known in records.items()}
    for path, key in host.get("keyrings", {}).items():
        # The roles wrote this file only if a record names one of its keys.
        if trusted.intersection(key["fingerprints"]):
            candidates[path] = set(key["fingerprints"])
    found = {}
    for path, keys in candidates.items():
        further = keys - trusted
        names = [
            name for name in host["installed_packages"] if any(record_ownership.is_key_of(name, key) for key in further)
        ]
        if names:
            found[path] = sorted(names)
    return found


def _record(host: Host, path: str) -> dict[str, Any]:
    try:
        content = json.loads(observed_files.content(host, path) or "null")
    except ValueError:
        content = None
    return record_ownership.normalized(content if isinstance(content, dict) else {})
