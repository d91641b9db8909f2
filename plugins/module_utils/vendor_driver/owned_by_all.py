# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every part for accelerators of a vendor owns: the program of its CDI specification, its units, its record."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Owns


def of(
    vendor: str, *, files: tuple[str, ...] = (), packages: tuple[str, ...] = (), repositories: tuple[str, ...] = ()
) -> Owns:
    """Return what a part owns, with `files`, `packages` and `repositories` of the vendor alone."""
    units = owned.ACCELERATOR_CDI_UNITS[vendor]
    return Owns(
        files=(owned.ACCELERATOR_CDI_PROGRAMS[vendor], *units, owned.ACCELERATOR_USERS[vendor], *files),
        units=tuple(path.rpartition("/")[2] for path in units),
        packages=packages,
        repositories=repositories,
    )
