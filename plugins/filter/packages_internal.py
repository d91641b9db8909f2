# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filters of the roles that install packages. They can change in any release."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository_data, removable


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by their names."""
        return {
            "_nvidia_repository_dnf_module": nvidia_repository_data.dnf_module,
            "_packages_removable": removable.removable,
            "_packages_unneeded": removable.unneeded,
            "_packages_unrelated": removable.unrelated,
        }
