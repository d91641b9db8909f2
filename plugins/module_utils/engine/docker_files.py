# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of Docker's package repository that role container_engine writes."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned, url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import access as repository_access
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust

# Files that may contain a login.
WITH_LOGINS = (*owned.DOCKER_REPOSITORY_ENTRIES.values(), owned.DOCKER_APT_PROXY, owned.DOCKER_APT_LOGIN)
KEYRINGS = tuple(owned.DOCKER_REPOSITORY_KEYS.values())
FILES = (*WITH_LOGINS, *KEYRINGS, *map(key_trust.note_path, KEYRINGS))


def sealed(path: str, text: str) -> str:
    """Return the text of one of these files with digests in place of the logins."""
    return url_logins.digest(text) if path == owned.DOCKER_APT_LOGIN else repository_access.sealed_entry(text)
