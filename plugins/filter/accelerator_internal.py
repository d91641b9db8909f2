# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filters of the roles for vendors other than NVIDIA."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import accelerator_program


def program(options: dict[str, Any]) -> str:
    """Return the text of the program that keeps the CDI specification current."""
    return accelerator_program.build(plain(options))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by their names."""
        return {"_accelerator_program": program}
