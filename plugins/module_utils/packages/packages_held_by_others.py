# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether packages that a role has to change are held by somebody else. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.capitalized import capitalized


def problem(why: str, installed: Iterable[str], *, held: Collection[str], own_holds: Collection[str]) -> str | None:
    """Return the error that packages are held and not by the role, or None. `why`: why they have to change."""
    foreign = [name for name in installed if name in held and name not in own_holds]
    if not foreign:
        return None
    return (
        f"{capitalized(why)}, but {', '.join(foreign)} {'is' if len(foreign) == 1 else 'are'} held, and not by "
        "this role. Release the hold, or remove the setting that requires other packages."
    )
