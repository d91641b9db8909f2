# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which versions of packages and which streams to install, and whether they are installed."""

from __future__ import annotations

import difflib
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    Backend,
    Item,
    View,
    newest,
    satisfies,
)


class TransactionError(Exception):
    """The transaction is not possible, not allowed, or it failed. The message is for the user."""


def versions(name: str, state: dict[str, Any]) -> list[str]:
    """Return the installed versions of a package, which may be named with its architecture."""
    name, _colon, arch = name.partition(":")
    copies = [copy.split(" ") for copy in state["all"].get(name, "").split(", ") if copy]
    return [version for version, of_arch in copies if arch in ("", "any", of_arch)]


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


def choose(items: list[Item], backend: Backend, view: View) -> list[Item]:
    """Decide the version of each item. An item without a version stays without: the solver takes the newest one."""
    named = [item for item in items if not item.file]
    offers = backend.offers([item.name for item in named], view) if named else {}
    problems, chosen = [], [item for item in items if item.file]
    for item in named:
        offered = offers.get(item.name, [])
        version = _version(item, offered, backend.name)
        if version is None:
            problems.append(_unavailable(item, offered, backend, view))
        else:
            chosen.append(Item(item.name, version=version))
    if problems:
        raise TransactionError(" ".join(problems))
    return chosen


def _version(item: Item, offered: list[str], manager: str) -> str | None:
    """Return the full version to install, an empty text for any version, or None if there is none."""
    if item.version:
        return newest(offered, item.version)
    if item.minimum:
        return next((version for version in offered if satisfies(version, item.minimum, manager)), None)
    return "" if offered else None


def _unavailable(item: Item, offered: list[str], backend: Backend, view: View) -> str:
    if offered:
        return (
            f"The repositories have no {item}. They have the versions {', '.join(offered[:10])} of {item.name}. "
            "Request one of these, or add a repository."
        )
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
