# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which versions and streams a package transaction installs, and which of them are installed already."""

from __future__ import annotations

import difflib
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import installed_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    Backend,
    Steps,
    View,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    Item,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.version_order import (
    newest,
    satisfies,
)


class TransactionError(Exception):
    """The transaction is not possible, not allowed, or it failed. The message is for the user."""


def versions(name: str, state: dict[str, Any]) -> list[str]:
    """Return the installed versions of a package, with apt those of the host's or the named architecture."""
    return installed_packages.versions(name, state["all"], state.get("native", ""))


def is_satisfied(item: Item, state: dict[str, Any], manager: str) -> bool:
    """Return whether an item is installed."""
    return any(is_version(item, version, manager) for version in versions(item.name, state))


def is_version(item: Item, version: str, manager: str) -> bool:
    """Return whether a version of a package is a requested one."""
    if item.file:
        return version.removeprefix("0:") == item.version
    if item.version:
        return newest([version], item.version) is not None
    return not item.minimum or satisfies(version, item.minimum, manager)


def simulate(items: list[Item], steps: Steps, backend: Backend, view: View) -> list[SimulatedChange]:
    """Decide the version of each item, set `steps.install`, and simulate the steps.

    The package manager chooses the version of an item without an exact one, because it knows priorities and pins. If
    its choice is below the minimum of the item, the newest version is installed.
    """
    named = [item for item in items if not item.file]
    offers = backend.offers([item.name for item in named], view) if named else {}
    virtual = [item for item in named if item.name == str(item) and not offers.get(item.name)]
    if virtual:
        items = _resolved(items, virtual, backend, view)
        named = [item for item in items if not item.file]
        offers.update(backend.offers([item.name for item in named if item.name not in offers], view))
    found = {item: _version(item, offers.get(item.name, []), backend.name) for item in named}
    problems = [_unavailable(item, offers.get(item.name, []), backend, view) for item in named if found[item] is None]
    if problems:
        raise TransactionError(" ".join(problems))

    def run(exact: set[Item]) -> list[SimulatedChange]:
        versions = {item: version or "" for item, version in found.items() if item in exact}
        steps.install = [item if item.file else Item(item.name, version=versions.get(item, "")) for item in items]
        return backend.simulate(steps, view) if steps.install or steps.remove or steps.purge else []

    exact = {item for item in named if item.version}
    changes = run(exact)
    after = {change.name: change.after or "" for change in changes}
    low = {i for i in named if i.minimum and not is_version(i, after.get(i.name.partition(":")[0], ""), backend.name)}
    return run(exact | low) if low else changes


def _resolved(items: list[Item], virtual: list[Item], backend: Backend, view: View) -> list[Item]:
    """Replace virtual names by the packages that provide them, unless another item or an installed package does."""
    names = [item.name for item in virtual]
    requested = {item.name for item in items}
    present, available = backend.installed_providers(names), backend.providers(names, view)
    found: list[Item] = []
    for item in items:
        providers = available.get(item.name, []) if item in virtual else []
        if (item in virtual and item.name in present) or requested & {*providers}:
            continue
        if len(providers) > 1:
            raise TransactionError(
                f"No package has the name {item.name}. Several packages provide it: {', '.join(providers)}. Request "
                "one of them."
            )
        found.append(Item(providers[0]) if providers else item)
    return list(dict.fromkeys(found))


def _version(item: Item, offered: list[str], manager: str) -> str | None:
    """Return the newest version that the item accepts, an empty text for any version, or None if there is none."""
    if item.version:
        return newest(offered, item.version)
    if item.minimum:
        return next((version for version in offered if satisfies(version, item.minimum, manager)), None)
    return "" if offered else None


def _unavailable(item: Item, offered: list[str], backend: Backend, view: View) -> str:
    if offered:
        return (
            f"The repositories do not contain {item}. Available versions of {item.name}: {', '.join(offered[:10])}. "
            "Request one of them, or add a repository."
        )
    if item.name in backend.hidden:
        return backend.hidden[item.name]
    # The error may be in the first letters of a short name.
    start = item.name[: max(2, min(4, len(item.name) - 2))]
    known = backend.offers([f"{start}*"], view)
    near = difflib.get_close_matches(item.name, known, n=5)
    hint = f" Packages with similar names: {', '.join(near)}." if near else ""
    return f"The repositories have no package {item.name}.{hint} Correct the name, or add a repository that has it."


def check_streams(wanted: list[str], backend: Backend, view: View) -> None:
    names = [stream.partition(":")[0] for stream in wanted]
    offered = backend.streams(names, view) if names else {}
    for stream in wanted:
        module, _colon, name = stream.partition(":")
        if name not in offered.get(module, []):
            known = ", ".join(offered.get(module, [])) or "none"
            raise TransactionError(
                f"The repositories have no stream {name} of module {module} (streams: {known}). Request one of these "
                "streams, or add a repository that has it."
            )
