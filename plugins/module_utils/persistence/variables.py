# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of role nvidia_persistenced, with their types and accepted values."""

from __future__ import annotations

import dataclasses

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import variable


@dataclasses.dataclass(frozen=True)
class PersistenceRequest:
    """The variables of the role, without the prefix `nvidia_persistenced_`."""

    timeout: int = variable(30, minimum=1)
    download_timeout: int = variable(120, minimum=1)
