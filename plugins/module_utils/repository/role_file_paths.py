# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a repository that a role adds to a host, and how to read them without their logins.

Every run imports this file on every host, so it imports little.
"""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import (
    login_digests,
    owned,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import proxy_and_logins as repository_access

MANAGERS = ("apt", "dnf", "zypper")


def of_manager(name: str, manager: str) -> list[str]:
    """Return the paths of all files that a repository may have with one package manager."""
    key = owned.repository_key(name, manager)
    access = {
        "apt": [owned.apt_proxy(name), owned.apt_login(name), owned.apt_preferences(name)],
        "zypper": [owned.zypper_login(name)],
    }
    return [key, key_trust.note_path(key), *access.get(manager, []), owned.repository_entry(name, manager)]


def paths(name: str) -> list[str]:
    """Return the paths of all files of a repository, for all package managers."""
    return [path for manager in MANAGERS for path in of_manager(name, manager)]


def keyrings(name: str) -> list[str]:
    """Return the paths of the repository's key, for all package managers."""
    return [owned.repository_key(name, manager) for manager in MANAGERS]


def with_logins(name: str) -> list[str]:
    """Return the paths of the files that may contain a login."""
    entries = [owned.repository_entry(name, manager) for manager in MANAGERS]
    return [*entries, owned.apt_proxy(name), owned.apt_login(name), owned.zypper_login(name)]


def is_login(path: str) -> bool:
    """Return whether one of these files only contains logins."""
    return path.startswith((owned.APT_LOGINS, owned.ZYPPER_LOGINS))


def sealed(path: str, text: str) -> str:
    """Return the text of one of these files with digests in place of the logins."""
    return login_digests.digest(text) if is_login(path) else repository_access.sealed_entry(text)
