# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which branch has the version that `nvidia_driver_minimum_version` asks for.

By its number a branch may do while all that the repositories have of it is older. They are asked for the packages of
all branches at once; then the first one counts of which they have something that is new enough.
"""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import choice, resolver


def others(host: dict, request: dict, platform: dict | None, result: dict) -> list[dict]:
    """Return the resolutions for the branches that may do in place of the one that was chosen, in their order."""
    order = [result["branch"], *result["next_branches"]]
    found = [resolver.resolve(host, request, platform, order[:count]) for count in range(1, len(order))]
    return [other for other in found if not other["errors"]]


def choose(host: dict, request: dict, platform: dict | None, result: dict, available: dict) -> dict:
    """Return the resolution for the first branch that has a version from the minimum on.

    Where that one is not there in full, it is the one that the refusal is about; where no branch has any, the first.
    """
    if not result["next_branches"]:
        return result
    for other in (result, *others(host, request, platform, result)):
        needed = [name for name in other["lockstep"] if name not in other["optional"]]
        if choice.has_some(available, needed, other["branch"], request):
            return other
    return result
