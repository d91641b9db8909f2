# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the record of a role's package transactions from an observed host. record_ownership.py decides what it means."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_ownership
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

DRIVER = owned.DRIVER_RECORD
TOOLKIT = owned.TOOLKIT_RECORD


def read(host: Host, path: str) -> dict:
    """Return the record of a host, or an empty record if it is missing or invalid."""
    known = _content(host, path)
    known["pending_key"] = _fingerprint(host, known["pending_key"])
    known["key"] = _fingerprint(host, known["key"]) or known["pending_key"]
    return known


def is_unfinished(host: Host, path: str) -> bool:
    """Return whether an interrupted run left a record that can be finished."""
    return bool(read(host, path)["pending"])


def is_abandoned(host: Host, path: str) -> bool:
    """Return whether the driver and the toolkit of the record were removed by hand."""
    return record_ownership.is_abandoned(read(host, path), host["installed_packages"])


def installed_for_certain(host: Host, path: str, installed: list[str]) -> set[str]:
    """Return the packages that this role installed for certain. `installed` are all installed packages."""
    return record_ownership.certainly(read(host, path), installed)


def possibly_installed(host: Host, path: str, installed: list[str]) -> set[str]:
    """Return the packages that this role installed. After an interrupted run, return all packages installed since."""
    return record_ownership.possibly(read(host, path), installed, _others(host, path))


def to_remove(host: Host, path: str) -> set[str]:
    """Return the installed packages that this role may remove."""
    return record_ownership.removable(read(host, path), host["installed_packages"], _others(host, path))


def _others(host: Host, path: str) -> list[dict]:
    return [_content(host, other) for other in host["files"] if owned.is_record(other) and other != path]


def _content(host: Host, path: str) -> dict:
    content = observed_files.content(host, path)
    try:
        found = json.loads(content or "null")
    except ValueError:
        found = None
    return record_ownership.normalized(found if isinstance(found, dict) else {})


def _fingerprint(host: Host, key: str | None) -> str | None:
    """Return the fingerprint of a key that is trusted by the digest of its file, once that file is on the host."""
    if key is None or not key_trust.is_digest(key):
        return key
    keys = host["keyrings"].values()
    return next((there["fingerprints"][0] for there in keys if key_trust.is_trusted(there, key)), key)
