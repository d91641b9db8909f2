# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare package versions as dpkg and rpm do, also with requested ones that lack the epoch or the release."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import whole_number


class Parts(NamedTuple):
    """The parts of `epoch:version-release`. Debian calls the release a revision. Missing parts are empty."""

    epoch: str
    version: str
    release: str


def split(text: str) -> Parts:
    """Split a version at the first colon after digits, and at the last hyphen."""
    epoch, colon, rest = text.partition(":")
    if not colon or not re.fullmatch(r"[0-9]+", epoch):
        epoch, rest = "", text
    version, hyphen, release = rest.rpartition("-")
    return Parts(epoch, version, release) if hyphen else Parts(epoch, rest, "")


def debian(text: str) -> tuple[Any, ...]:
    """Return the sort key of a version of a Debian package."""
    return key("apt", split(text))


def rpm(text: str) -> tuple[Any, ...]:
    """Return the sort key of a version of an rpm package."""
    return key("rpm", split(text))


def key(manager: str, parts: Parts) -> tuple[Any, ...]:
    """Return the sort key of a split version. The manager `apt` has Debian's order, all others have rpm's order."""
    one = _debian_part if manager == "apt" else _rpm_part
    return whole_number(parts.epoch or "0"), one(parts.version), one(parts.release)


def _debian_part(text: str) -> list[tuple[tuple[int, ...], int]]:
    # The pattern also matches the empty text at the end. This end sorts after a tilde and before everything else.
    pairs = re.findall(r"([^0-9]*)([0-9]*)", text or "0")
    words = [((*(_debian_order(character) for character in word), 0), number or "0") for word, number in pairs]
    return [(word, whole_number(number)) for word, number in words]


def _debian_order(character: str) -> int:
    """A tilde comes first, and letters come before other characters."""
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256


def _rpm_part(text: str) -> list[tuple[Any, ...]]:
    words = re.findall(r"[0-9]+|[A-Za-z]+|[~^]", text)
    return [*map(_rpm_order, words), (1,)]


def _rpm_order(word: str) -> tuple[Any, ...]:
    """From old to new: a tilde, the end of the version, a caret, letters, numbers."""
    if word in "~^":
        return (0,) if word == "~" else (2,)
    return (4, whole_number(word)) if word.isdigit() else (3, word)


def newest(offers: list[str], wanted: str) -> str | None:
    """Return the first of the offered versions that is the wanted one. The offers are sorted, newest first.

    If `wanted` has no epoch or no release, these parts of the offers do not count.
    """
    if wanted in offers:
        return wanted
    request = split(wanted)
    for offer in offers:
        epoch, version, release = split(offer)
        if version == request.version and request.epoch in ("", epoch or "0") and request.release in ("", release):
            return offer
    return None


def satisfies(version: str, minimum: str, manager: str = "apt") -> bool:
    """Return whether a version is at least the minimum, in the order of the package manager.

    If the minimum has no epoch or no release, these parts of the version do not count.
    """
    limit = split(minimum)
    found = split(version)
    counted = Parts(limit.epoch and found.epoch, found.version, limit.release and found.release)
    return key(manager, counted) >= key(manager, limit)
