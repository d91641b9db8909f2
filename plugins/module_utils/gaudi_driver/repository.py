# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's package repository of Gaudi's driver: its definition for a host. Pure functions.

The addresses: HabanaAI/Setup_and_Install (b626de8), dockerfiles/base. No published fingerprint of the keys is known, so
the user has to set it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    repositories_of_others,
    role_repository,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver.variables import GaudiDriverRequest

NAME = owned.GAUDI_REPOSITORY_ID
BASE = "https://vault.habana.ai/artifactory"
# The vendor builds only for this architecture.
_ARCH = "x86_64"
_EL = "el"


def address(host: Host, request: GaudiDriverRequest, platform: Mapping[str, Any]) -> str:
    """Return the URL of the repository."""
    base = (request.mirror or BASE).rstrip("/")
    if host["os"]["package_manager"] == "apt":
        return f"{base}/debian"
    version = host["os"]["version"] or ""
    return f"{base}/rhel/{version.partition('.')[0]}/{_release(version, platform)}"


def key(host: Host, request: GaudiDriverRequest, platform: Mapping[str, Any]) -> str:
    """Return the URL of the key file."""
    base = (request.mirror or BASE).rstrip("/")
    if host["os"]["package_manager"] == "apt":
        return request.key_url or f"{base}/api/gpg/key/public"
    return request.key_url or f"{address(host, request, platform)}/repodata/repomd.xml.key"


def problem(host: Host, request: GaudiDriverRequest, platform: Mapping[str, Any] | None) -> str | None:
    """Return why the role cannot use the repository on this host, or None. Nothing is changed then."""
    role, name = "gaudi_driver", host["os"]["name"]
    ways_out = f"install the driver yourself and set {role}_source=preinstalled, or set {role}_source=none"
    if host["os"]["arch"] != _ARCH:
        return f"The vendor has no Gaudi driver for {host['os']['arch']}. Set {role}_source=none."
    if platform is None and not (request.suite and host["os"]["package_manager"] == "apt"):
        more = f" set {role}_suite to the suite of a similar release," if host["os"]["package_manager"] == "apt" else ""
        return f"The vendor has no packages for {name}. To change that,{more} {ways_out}."
    data = platform or {}
    if host["os"]["package_manager"] != "apt" and not _release(host["os"]["version"] or "", data):
        known = ", ".join(data.get("releases") or ())
        return (
            f"The vendor has packages for the releases {known}, but this host has {host['os']['version']}. Update the "
            f"host to one of them, {ways_out}."
        )
    if not (request.driver_package or data.get("driver_package")):
        return (
            f"{role}_driver_package is not set. The vendor's name of the package with the kernel modules on {name} is "
            f"not known here. Read it with 'dnf list --available \"habanalabs*\"' on a host with the repository "
            f"{address(host, request, data)}, and set it."
        )
    if not request.key_fingerprint and not repositories_of_others.others(host, NAME, _PATTERN):
        url = key(host, request, data)
        return (
            f"{role}_key_fingerprint is not set, and no published fingerprint of the vendor's key is known. On a "
            f"computer that you trust, read it with 'curl -fsS {url} | gpg --show-keys', compare it with the vendor's "
            "documentation or support, and set it. Nothing was changed."
        )
    return None


_PATTERN = r"/artifactory/(debian|rhel/[^/]+/[^/]+)/*$"


def define(host: Host, request: GaudiDriverRequest, platform: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the options of module package_transaction, or None if a file of another tool has the repository."""
    if repositories_of_others.others(host, NAME, _PATTERN):
        return None
    is_apt = host["os"]["package_manager"] == "apt"
    url = address(host, request, platform)
    return role_repository.definition(
        request,
        name=NAME,
        description="Intel Gaudi",
        url=url,
        suite=(request.suite or platform.get("suite")) if is_apt else None,
        components=["main"] if is_apt else None,
        key=key(host, request, platform),
        fingerprint=key_trust.normalized(request.key_fingerprint),
        # The key of the metadata is known. The packages have the signature of another key.
        signed="metadata" if host["os"]["package_manager"] == "dnf" else None,
    )


def notes(host: Host, platform: Mapping[str, Any]) -> list[str]:
    """Return what the user has to know before the repository is used."""
    release = _release(host["os"]["version"] or "", platform) if host["os"]["family"] == _EL else ""
    if release in (platform.get("sha1_releases") or ()):
        return [
            f"the vendor's signatures for {release} use SHA-1; if dnf rejects them, run 'update-crypto-policies --set "
            "DEFAULT:SHA1' yourself, because the role never changes the crypto policy"
        ]
    return []


def _release(version: str, platform: Mapping[str, Any]) -> str:
    return version if version in (platform.get("releases") or ()) else ""
