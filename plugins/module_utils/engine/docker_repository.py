# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Docker's own package repository on a host: its definition, and the entries that the host already has."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    repositories_of_others,
    role_repository,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust, role_file_paths

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.variables import EngineRequest

BASE = "https://download.docker.com/linux"
# The components of the repository. The name docker alone may also be that of a server with mirrors of distributions.
_COMPONENTS = {"stable", "test", "nightly"}


def define(host: Host, data: dict[str, t.Any], request: EngineRequest) -> dict[str, t.Any]:
    """Return the options of module package_transaction that define the repository.

    `data` is the platform's description: `folder` (and `folders` for distributions with another one), `fingerprint`,
    and with apt `suite`, else `release`.
    """
    folder = data.get("folders", {}).get(host["os"]["id"], data["folder"])
    base = f"{(request.mirror or BASE).rstrip('/')}/{folder}"
    suite = data.get("suite")
    url = base if suite else f"{base}/{data['release']}/{host['os']['arch']}/stable"
    return role_repository.definition(
        request,
        name=owned.DOCKER_REPOSITORY_ID,
        description="Docker",
        url=url,
        suite=suite,
        components=["stable"] if suite else None,
        key=request.key_url or f"{base}/gpg",
        fingerprint=key_trust.normalized(request.key_fingerprint or data["fingerprint"]),
    )


def others(host: Host, data: dict[str, t.Any]) -> list[str]:
    """Return the files with enabled entries for the repository or a mirror of it, except the role's own file.

    With apt, entries for the components `test` and `nightly` count, too. apt rejects a second entry for the suite with
    another key.
    """
    if host["apt"] is not None:
        entries = [entry for entry in host["apt"]["sources"] if entry["enabled"] and _is_apt_entry(entry, data)]
    else:
        path = re.compile(rf"docker.*/{data['release']}/{host['os']['arch']}/stable/*$", re.IGNORECASE)
        urls = [
            (entry, repositories_of_others.resolved(entry, host)) for entry in host["repositories"] if entry["enabled"]
        ]
        # Docker no longer updates the folder centos of a release that it builds only for another folder.
        is_frozen = "centos" not in data.get("folders", {})
        entries = [entry for entry, url in urls if path.search(url) and not (is_frozen and "/centos/" in url)]
    own = [
        role_file_paths.repository_entry(owned.DOCKER_REPOSITORY_ID, manager) for manager in role_file_paths.MANAGERS
    ]
    return sorted({entry["file"] for entry in entries if entry["file"] not in own})


def _is_apt_entry(entry: dict[str, t.Any], data: dict[str, t.Any]) -> bool:
    path = re.compile(rf"docker.*/{data['folder']}/*$", re.IGNORECASE)
    return (
        "deb" in entry["types"]
        and data["suite"] in entry["suites"]
        and bool(_COMPONENTS.intersection(entry["components"]))
        and any(path.search(uri) for uri in entry["uris"])
    )


def is_ours(host: Host) -> bool:
    """Return whether the role's own entry exists."""
    return role_repository.is_present(host, owned.DOCKER_REPOSITORY_ID)
