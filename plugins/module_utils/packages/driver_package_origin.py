# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides which source of the driver an installed package came from, by what its package manager recorded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host, PackageOrigin

NVIDIA, DISTRIBUTION, OTHER = "nvidia", "distribution", "other"
# The network repository, mirrors with its layout, and the local repositories of NVIDIA's installers.
_URL = re.compile(
    r"/compute/cuda/repos/|/(?:debian|ubuntu|rhel|amzn|sles)\d+/(?:x86_64|sbsa|arm64)/*$|/(?:cuda-repo|nvidia-driver-local-repo)-"
)
# Origins of the archives of a family; for Ubuntu also those of Ubuntu Pro: canonical/ubuntu-pro-client,
# uaclient/entitlements (983bb06).
_ARCHIVES = {"debian": re.compile(r"Debian( Backports)?"), "ubuntu": re.compile(r"Ubuntu([A-Z]\w*)?")}
# Origins of repositories that build their own drivers: PPAs, and Pop!_OS (pop-os/upgrade, daemon/src/release/repos.rs,
# d5248e1). Any other unknown origin may be a mirror's.
_OTHER_VENDORS = re.compile(r"LP-PPA-|pop-os")
# The repository files of NVIDIA have these IDs.
_ID = re.compile(r"cuda-(?:rhel|amzn|sles|fedora|opensuse)\d*")


def of(host: Host, name: str, nvidia: dict, mirrors: Iterable[str] = ()) -> set[str]:
    """Return the sources that provide the installed version of a package. The set is empty if they are unknown.

    `nvidia` is the platform's data of NVIDIA's repository. `mirrors` names the distribution's mirrors of it.
    """
    found = (_source(host, entry, nvidia, mirrors) for entry in host["package_origins"].get(name, []))
    return {source for source in found if source}


def describe(host: Host, name: str) -> str:
    """Name the origin of a package for messages, or return an empty text."""
    names = [entry["vendor"] or entry["repository"] for entry in host["package_origins"].get(name, [])]
    return " and ".join(dict.fromkeys(name for name in names if name))


def _source(host: Host, entry: PackageOrigin, nvidia: dict, mirrors: Iterable[str]) -> str | None:
    vendor, repository = entry["vendor"] or "", entry["repository"] or ""
    if repository in mirrors:
        return OTHER
    # A mirror's packages have NVIDIA's signatures.
    if not repository and mirrors and _is_only_mirror_enabled(host, mirrors):
        return OTHER
    if _is_of_nvidia(host, entry, nvidia):
        return NVIDIA
    if host["apt"] is None:
        return OTHER if vendor else None
    archive = _ARCHIVES.get(host["os"]["family"] or "")
    if archive and archive.fullmatch(vendor):
        return DISTRIBUTION
    return OTHER if _OTHER_VENDORS.match(vendor) else None


def _is_only_mirror_enabled(host: Host, mirrors: Iterable[str]) -> bool:
    """Return whether a mirror of NVIDIA's repository is enabled, and the repository itself is not."""
    enabled = [item for item in host["repositories"] if item["enabled"]]
    return any(item["id"] in mirrors for item in enabled) and not any(
        item["id"] not in mirrors and _is_repository_of_nvidia(item["id"], item["url"] or "") for item in enabled
    )


def _is_repository_of_nvidia(repository: str, url: str) -> bool:
    return bool(repository == owned.REPOSITORY_ID or _ID.match(repository) or _URL.search(url))


def _is_of_nvidia(host: Host, entry: PackageOrigin, nvidia: dict) -> bool:
    repository = entry["repository"] or ""
    known = {item["id"]: item["url"] or "" for item in host["repositories"]}
    url = f"/{repository}" if host["apt"] is not None else known.get(repository, "")
    # The name of the key file is the end of the key's ID.
    key = nvidia["repository"]["key"].partition(".")[0].lower()
    return bool(
        _is_repository_of_nvidia(repository, url)
        or (entry["key"] or "").endswith(key)
        or (entry["vendor"] or "").upper().startswith("NVIDIA")
    )
