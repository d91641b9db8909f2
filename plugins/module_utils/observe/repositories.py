# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Observe the package repositories of apt, dnf and zypper, and unattended upgrades."""

from __future__ import annotations

import re
from typing import Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import apt_sources, key_trust, role_file_paths

Run = Callable[["list[str]"], "tuple[int, str, str]"]

# The components of the archive that contain packages of the roles, by family.
_REQUIRED = {"debian": ["main", "contrib", "non-free", "non-free-firmware"], "ubuntu": ["multiverse"]}


def apt(root: str, system: dict, run: Run) -> dict:
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(system["arch"], system["arch"])
    codename = system["codename"] or ""
    origin = apt_sources.recorded_origin(root, run)
    entries = [entry for path, text in apt_sources.read_files(root).items() for entry in apt_sources.parse(path, text)]
    for entry in entries:
        entry["uris"] = [url_logins.without_login(uri) for uri in entry["uris"]]
        entry["distribution"] = system["family"] in _REQUIRED and apt_sources.is_distribution(
            entry, codename, arch, origin, family=system["family"]
        )
    family = system["family"] if system["family"] in _REQUIRED else "debian"
    missing = apt_sources.missing_components(entries, _REQUIRED[family], codename, arch, origin, family=family)
    for entry in entries:
        entry["uris"] = [url_logins.plain(uri) for uri in entry["uris"]]  # Passwords must not leave the host.
    lists = [name for name in listing(root, "/var/lib/apt/lists") if name.endswith("_Packages") or "_Packages." in name]
    return {
        "sources": entries,
        "architecture": arch,
        "missing_components": missing if system["family"] in _REQUIRED else [],
        "lists": len(lists),
        "unattended_upgrades": _unattended_upgrades(run),
    }


def _unattended_upgrades(run: Run) -> dict:
    rc, out, _err = run(["apt-config", "dump", "--no-empty", "APT::Periodic::Unattended-Upgrade", "Unattended-Upgrade"])
    pairs = re.findall(r'^(\S+) "(.*)";$', out, re.MULTILINE) if rc == 0 else []
    return {
        "enabled": any(name == "APT::Periodic::Unattended-Upgrade" and value not in ("", "0") for name, value in pairs),
        "blacklist": [value for name, value in pairs if name.startswith("Unattended-Upgrade::Package-Blacklist::")],
    }


def rpm_repositories(root: str) -> list[dict]:
    """List the repositories of dnf and zypper from their files."""
    found = []
    for directory in ("/etc/yum.repos.d", "/etc/zypp/repos.d"):
        for name in listing(root, directory):
            if name.endswith(".repo"):
                found += _repo_file(f"{directory}/{name}", read_text(root, f"{directory}/{name}") or "")
    return found


def _repo_file(path: str, text: str) -> list[dict]:
    sections: list[dict] = []
    for line in text.splitlines():
        section = re.match(r"^\s*\[(.+)\]\s*$", line)
        if section:
            sections.append({"id": section.group(1), "file": path, "url": None, "enabled": True})
        elif sections and "=" in line and not line.lstrip().startswith(("#", ";")):
            name, _sign, value = (part.strip() for part in line.partition("="))
            if name.lower() == "baseurl":
                sections[-1]["url"] = url_logins.plain(value)
            elif name.lower() == "enabled":
                sections[-1]["enabled"] = value.lower() in ("1", "true", "yes")
    return sections


def role_keyrings(root: str, names: list[str]) -> dict:
    """Return the keys of the repositories that the roles add."""
    paths = [path for name in names for path in role_file_paths.keyrings(name)]
    return {path: key for path in paths if (key := key_trust.read(root, path))}
