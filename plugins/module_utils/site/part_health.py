# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health of what the parts declare to own. Pure functions of the observation of a host."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Declaration
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def problems(host: Host, declarations: Iterable[Declaration] | None = None) -> list[str]:
    """Return what is missing of the parts that have acted on this host, which their records say."""
    known = registry.DECLARATIONS if declarations is None else declarations
    return [text for one in known for text in _of_part(host, one)]


def _of_part(host: Host, part: Declaration) -> list[str]:
    path = f"{owned.STATE_DIRECTORY}/{part.name}.json"
    if not part.owns.verified or not observed_files.exists(host, path):
        return []
    repair = f"Run playbook gpufleet.hosts.site with --tags {part.name} to repair it."
    packages = [name for name in record_of_role.read(host, path)["requested"] if name not in host["installed_packages"]]
    found = [f"Package {name}, which role {part.name} installed, is missing. {repair}" for name in packages]
    files = [path for path in part.owns.files if not observed_files.exists(host, path)]
    found += [f"{path}, which role {part.name} wrote, is missing. {repair}" for path in files]
    for unit in part.owns.units:
        state = (host["services"].get(unit) or {}).get("active_state")
        if state != "active":
            found.append(
                f"{unit} of role {part.name} is {state or 'not there'}. See 'journalctl --unit={unit} --boot'. {repair}"
            )
    return found
