# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to come before the driver's packages: a repository that brings what they need, and the tool for locks."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.choice import NoVersion


def queried(host: dict, result: dict) -> list[str]:
    """Name the packages of a repository that the host may have to be asked about."""
    return _first(host, result) if _wanted(host, result) else []


def missing(host: dict, result: dict, available: dict | None) -> list[str]:
    """Name the packages that have to come first; refuse where what they would bring is nowhere to be had.

    A mirror of the repository under another name brings the same without them.
    """
    first, wanted, offered = _first(host, result), _wanted(host, result), available or {}
    absent = [name for name in result["prerequisites"] if name not in host["packages"]]
    if not result["prerequisites_bring"]:
        return absent
    if all(offered.get(name) for name in wanted):
        return [name for name in absent if name not in first]
    # What was not asked about may be anywhere.
    nowhere = [name for name in wanted if offered.get(name) == []]
    if nowhere and all(offered.get(name) == [] for name in first):
        raise NoVersion(_refusal(nowhere, first, result))
    return absent


def _first(host: dict, result: dict) -> list[str]:
    names = [name for name in result["prerequisites"] if name not in result["hold_needs"]]
    return [name for name in names if name not in host["packages"]]


def _wanted(host: dict, result: dict) -> list[str]:
    return [
        name for name in result["prerequisites_bring"] if name in result["packages"] and name not in host["packages"]
    ]


def _refusal(nowhere: list[str], first: list[str], result: dict) -> str:
    there = [name for name in result["prerequisites"] if name not in (*first, *result["hold_needs"])]
    also = f", and neither is {', '.join(first)}" if first else f", though {', '.join(there)} is installed"
    return (
        f"{', '.join(nowhere)}, which builds the driver's modules, is in no enabled repository of this host{also}. "
        f"{result['prerequisites_hint'] or 'Enable the repository that has it.'}"
    )
