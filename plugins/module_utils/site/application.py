# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How playbook `site` applies the plans of a host. Pure functions of the plans."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.planned import Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry

# The plan is applied as it is; the role plans again at its turn; check mode only reports the changes.
PLANNED, AGAIN, REPORTED = "planned", "again", "reported"


def apply(parts: Mapping[str, Part], *, check_mode: bool) -> dict[str, str]:
    """Return how each acting part is applied, by name."""
    return {name: _how(part, check_mode=check_mode) for name, part in parts.items() if part.acts}


def _how(part: Part, *, check_mode: bool) -> str:
    if check_mode:
        return REPORTED if part.is_only_reported else PLANNED
    return AGAIN if part.plans_again else PLANNED


def removed_first(parts: Mapping[str, Part]) -> list[str]:
    """Return the parts whose removal comes before the changes of all other parts."""
    return [name for name, part in parts.items() if part.removes and registry.BY_NAME[name].removed_first]
