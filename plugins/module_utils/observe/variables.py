# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of role observe, with their types."""

from __future__ import annotations

import dataclasses

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import variable


@dataclasses.dataclass(frozen=True)
class ObserveRequest:
    """The variables of the role, without the prefix `observe_`."""

    services: list[str] = variable([])
    files: list[str] = variable([])
