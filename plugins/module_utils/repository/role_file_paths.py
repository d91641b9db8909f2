# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The paths of the files of a repository that a role adds to a host.

Every run imports this file on every host, so it imports nothing.
"""

from __future__ import annotations

MANAGERS = ("apt", "dnf", "zypper")
# The directories of logins.
APT_LOGINS = "/etc/apt/auth.conf.d"
ZYPPER_LOGINS = "/etc/zypp/credentials.d"
_ENTRIES = {
    "apt": "/etc/apt/sources.list.d/{}.sources",
    "dnf": "/etc/yum.repos.d/{}.repo",
    "zypper": "/etc/zypp/repos.d/{}.repo",
}
_KEYS = {
    "apt": "/usr/share/keyrings/{}.gpg",
    "dnf": "/etc/pki/rpm-gpg/RPM-GPG-KEY-{}",
    "zypper": "/usr/share/pki/{}.asc",
}


def repository_entry(name: str, manager: str) -> str:
    """Return the path of a repository's entry for apt, dnf or zypper."""
    return _ENTRIES[manager].format(name)


def repository_key(name: str, manager: str) -> str:
    """Return the path of the key that signs a repository."""
    return _KEYS[manager].format(name)


def key_note(path: str) -> str:
    """Return the path of the file beside a key that stores the digest of the downloaded key."""
    return f"{path}.sha256"


def apt_proxy(name: str) -> str:
    """Return the path of apt's proxy for a repository."""
    return f"/etc/apt/apt.conf.d/53{_with_suffix(name, '.conf')}"


def apt_preferences(name: str) -> str:
    """Return the path of apt's priority for a repository."""
    return f"/etc/apt/preferences.d/{_with_suffix(name, '.pref')}"


def _with_suffix(name: str, suffix: str) -> str:
    # apt reads files without a suffix, but ignores those with an unknown suffix.
    return name + suffix if "." in name else name


def apt_login(name: str) -> str:
    """Return the path of apt's logins for a repository and its proxy, which only root can read."""
    return f"{APT_LOGINS}/{name}.conf"


def zypper_login(name: str) -> str:
    """Return the path of zypper's login for a repository, which only root can read."""
    return f"{ZYPPER_LOGINS}/{name}"


def of_manager(name: str, manager: str) -> list[str]:
    """Return the paths of all files that a repository may have with one package manager."""
    key = repository_key(name, manager)
    access = {
        "apt": [apt_proxy(name), apt_login(name), apt_preferences(name)],
        "zypper": [zypper_login(name)],
    }
    return [key, key_note(key), *access.get(manager, []), repository_entry(name, manager)]


def paths(name: str) -> list[str]:
    """Return the paths of all files of a repository, for all package managers."""
    return [path for manager in MANAGERS for path in of_manager(name, manager)]


def keyrings(name: str) -> list[str]:
    """Return the paths of the repository's key, for all package managers."""
    return [repository_key(name, manager) for manager in MANAGERS]


def with_logins(name: str) -> list[str]:
    """Return the paths of the files that may contain a login."""
    entries = [repository_entry(name, manager) for manager in MANAGERS]
    return [*entries, apt_proxy(name), apt_login(name), zypper_login(name)]


def is_login(path: str) -> bool:
    """Return whether one of these files only contains logins."""
    return path.startswith((APT_LOGINS, ZYPPER_LOGINS))
