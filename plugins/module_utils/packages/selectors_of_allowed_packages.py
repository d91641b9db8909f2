# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages the entries of the options `may_change`, `keep` and `hold` select. Pure functions."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Iterable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import upstream_version


class SelectorError(Exception):
    """The text is not a valid package selector."""


@dataclasses.dataclass(frozen=True)
class Selector:
    """Selects packages by name, and optionally by their full or upstream version.

    Both may have wildcards (`nvidia-*`). After a tilde, they are regular expressions that match a part of the name
    (`~^libnvidia-`) or the whole upstream version.
    """

    name: str
    version: str = ""

    def selects(self, name: str, version: str | None = None) -> bool:
        """Return whether a package is selected. The selector's version matches no package without a version."""
        if not _matches(self.name, name, re.search):
            return False
        upstream = upstream_version(version)
        return not self.version or any(
            bool(text) and _matches(self.version, text, re.fullmatch) for text in (version or "", upstream)
        )


def _matches(pattern: str, text: str, search: object) -> bool:
    if pattern.startswith("~"):
        return bool(search(pattern[1:], text))  # type: ignore[operator]
    return fnmatch.fnmatchcase(text, pattern)


def parse(text: str) -> Selector:
    """Parse `name` or `name=version`."""
    name, _sign, version = text.partition("=")
    if not name.startswith("~"):
        # All architectures of a package change together.
        name = name.partition(":")[0]
    if not name.lstrip("~") or any(sign in name for sign in " \t\n"):
        raise SelectorError(
            f"{text!r} is not a valid package selector. Write name or name=version, with or without wildcards."
        )
    for part in (name, version):
        if part.startswith("~"):
            try:
                re.compile(part[1:])
            except re.error as error:
                raise SelectorError(
                    f"{text!r} is not a valid package selector: its regular expression is invalid: {error}."
                ) from error
    return Selector(name, version)


def is_selected(selectors: Iterable[Selector], name: str, *versions: str | None) -> bool:
    """Return whether one of the selectors selects a package in one of the versions."""
    return any(item.selects(name, version) for item in selectors for version in versions or (None,))
