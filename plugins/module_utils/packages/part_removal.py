# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The removal of a part, derived from what it declares to own, and from the record of its packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Part, of_steps, package_removal

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Owns


def plan(host: Host, role: str, owns: Owns) -> Part:
    """Return the part that stops the units, and removes the files and the packages of a role.

    The files of a part contain nothing of others. Units of packages that the role did not install stay as they are.
    """
    path = f"{owned.STATE_DIRECTORY}/{role}.json"
    packages = sorted(record_of_role.installed_for_certain(host, path, list(host["installed_packages"])))
    files = [path for path in owns.files if observed_files.exists(host, path)]
    is_ours = bool(packages or files)
    stopped = [
        steps.stop(unit)
        for unit in owns.units
        if is_ours and (host["services"].get(unit) or {}).get("load_state") == "loaded"
    ]
    removed = [steps.file(path, None) for path in files]
    reload = [steps.reload()] if any(path.startswith("/etc/systemd/") for path in files) else []
    gone = [steps.remove(packages)] if packages else []
    return of_steps(
        [*stopped, *removed, *reload, *gone],
        reasons=[f"{role}_state is absent"],
        removal=package_removal(role, packages, exists=observed_files.exists(host, path)),
        removes=True,
    )
