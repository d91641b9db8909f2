# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One repository of a role on a host: its files, and whether they are as the role would write them. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import file_contents as repository_files
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust, role_file_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import proxy_and_logins as repository_access
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import (
    repository_options as repository_definition,
)

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.repository_variables import (
        RepositoryVariables,
    )


def definition(request: RepositoryVariables, *, url: str, **options: Any) -> dict[str, Any]:
    """Return the options of module package_transaction that define a repository, with its login and its proxy."""
    username, password = repository_access.login_of_mirror(url, vars(request))
    options |= {"url": url, "username": username, "password": password, "proxy": request.proxy}
    options |= {"proxy_username": request.proxy_username, "proxy_password": request.proxy_password}
    return {name: value for name, value in options.items() if value}


def is_present(host: Host, name: str) -> bool:
    """Return whether the role's own entry exists."""
    return observed_files.content(host, role_file_paths.repository_entry(name, _manager(host))) is not None


def is_outdated(host: Host, definition: dict[str, Any]) -> bool:
    """Return whether the role's own entry exists and differs from the definition, or its key is not trusted."""
    manager, name = _manager(host), definition["name"]
    if not is_present(host, name):
        return False
    repository = repository_definition.read([definition], manager)[0]
    for file in repository_files.without_key(repository, manager):
        current = observed_files.content(host, file.path)
        wanted = None if file.content is None else file.content.decode()
        if current != wanted and (wanted is None or current != repository_access.sealed_file(file.path, wanted)):
            return True
    return not key_trust.is_trusted(
        host["keyrings"].get(role_file_paths.repository_key(name, manager)), repository.trust
    )


def has_password(definitions: list[dict[str, Any]]) -> bool:
    """Return whether definitions contain passwords."""
    return any(definition.get(name) for definition in definitions for name in ("password", "proxy_password"))


def _manager(host: Host) -> str:
    return host["os"]["package_manager"] or "apt"
