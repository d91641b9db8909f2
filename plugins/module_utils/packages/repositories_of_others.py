# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether somebody else has configured a vendor's repository: which entries of apt, dnf or zypper count."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import role_file_paths

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def others(host: Host, name: str, url: str) -> list[str]:
    """Return the files with enabled entries whose URL matches a regular expression, except the role's own file."""
    pattern = re.compile(url, re.IGNORECASE)
    own = {role_file_paths.repository_entry(name, manager) for manager in role_file_paths.MANAGERS}
    if host["apt"] is not None:
        arch = host["apt"].get("architecture", "")
        listed = [
            (entry["file"], uri.replace("$(ARCH)", arch))
            for entry in host["apt"]["sources"]
            if entry["enabled"]
            for uri in entry["uris"]
        ]
    else:
        # zypper has the proxy as a parameter of the URL.
        listed = [
            (entry["file"], resolved(entry, host).partition("?")[0])
            for entry in host["repositories"]
            if entry["enabled"]
        ]
    return sorted({file for file, address in listed if file not in own and pattern.search(address)})


def resolved(entry: Mapping[str, Any], host: Host) -> str:
    """Return the URL of an entry with dnf's variables for the release and the architecture resolved."""
    release = (host["os"]["version"] or "").partition(".")[0]
    url = str(entry["url"] or "")
    for name, value in (("releasever", release), ("releasever_major", release), ("basearch", host["os"]["arch"])):
        url = url.replace(f"${{{name}}}", value)
        url = re.sub(rf"\${name}\b", value, url)
    return url
