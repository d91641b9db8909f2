# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the changes in a simulated transaction of a package manager that role cuda_toolkit does not allow."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.membership import is_part_of_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import simulation
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.simulation import REMOVE, Change


def forbidden_changes(text: str) -> list[str]:
    """Return the driver packages that an installation would install or change, and all packages that it would remove.

    `text` is the output of `apt-get --simulate` or `zypper --xmlout`, or the lines of `results` of ansible.builtin.dnf.
    """
    return sorted({change.name for change in simulation.of(text) if change.action == REMOVE or _is_of_driver(change)})


def _is_of_driver(change: Change) -> bool:
    # A transitional package may have another version before or after the change.
    return any(is_part_of_driver(change.name, version) for version in (change.before, change.after))
