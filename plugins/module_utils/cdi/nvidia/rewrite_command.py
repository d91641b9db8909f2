# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which command writes a stale CDI specification again. Pure functions."""

from __future__ import annotations

import os

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories as cdi_directories

# The unit of this collection that writes a specification.
REFRESH_UNIT = os.path.basename(owned.CDI_UNIT)


def remedy(path: str, command: str | None, *, ours: bool) -> str:
    """Return what writes a specification again. `command`: if it is not the usual one."""
    if command:
        return f"run `{command}`"
    if ours and cdi_directories.real(path) == owned.CDI_REFRESHED:
        return f"run `systemctl restart {REFRESH_UNIT}`"
    if ours:
        return "run nvidia_cdi_spec again"
    return f"run `nvidia-ctk cdi generate --output={path}`, or remove the file and run nvidia_cdi_spec"
