# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which changes of a simulated transaction are allowed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import (
    INSTALL,
    REMOVE,
    UPGRADE,
    SimulatedChange,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.selectors_of_allowed_packages import (
    Selector,
    is_selected,
)


@dataclasses.dataclass(frozen=True)
class Allowed:
    """What a transaction may do besides the installation of new packages."""

    # The packages that the user asked to install, and those to remove.
    install: frozenset[str] = frozenset()
    remove: frozenset[str] = frozenset()
    # Installed packages that may also be changed or removed.
    may_change: tuple[Selector, ...] = ()
    # Whether any installed package may be upgraded for a dependency.
    may_upgrade: bool = False
    # Packages that the transaction must neither change nor install.
    keep: tuple[Selector, ...] = ()
    # Held packages that the transaction does not release.
    held: frozenset[str] = frozenset()


def refused(changes: Iterable[SimulatedChange], allowed: Allowed) -> list[str]:
    """Describe the changes that are not allowed, each with the reason."""
    reasons = ((change, _reason(change, allowed)) for change in changes)
    return [f"{change} ({reason})" for change, reason in reasons if reason]


def _reason(change: SimulatedChange, allowed: Allowed) -> str | None:
    """Return why a change is not allowed, or None."""
    name = change.name
    if change.action != INSTALL and name in allowed.held:
        return "held"
    if name in (allowed.remove if change.action == REMOVE else allowed.install):
        return None
    if is_selected(allowed.keep, name, change.before, change.after):
        return "in keep"
    if change.action == INSTALL or is_selected(allowed.may_change, name, change.before, change.after):
        return None
    if change.action == UPGRADE and allowed.may_upgrade:
        return None
    return "not in may_change"
