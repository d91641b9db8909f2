# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of dnf's configuration that hide packages, and what to tell the user about hidden packages."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from typing import NamedTuple

CONFIGURATION = "/etc/dnf/dnf.conf"
_SETTING = re.compile(r"^(?P<name>exclude|excludepkgs|includepkgs)[ \t]*=(?P<value>.*(?:\n[ \t]+.*)*)", re.MULTILINE)
_FILTERED = re.compile(
    r"package (?P<package>\S+) from \S+ is filtered out by exclude filtering"
    r"|filtered out by exclude filtering for argument: (?P<argument>\S+)"
)


class ExcludeLine(NamedTuple):
    """A line that hides packages."""

    path: str
    name: str
    patterns: tuple[str, ...]

    def __str__(self) -> str:
        """Return the line and its place."""
        return f"{self.name}={' '.join(self.patterns)} in {self.path}"

    def hides(self, package: str) -> bool:
        """Return whether the line hides a package: a name, or a name with a version and an architecture."""
        texts = {package, *(package[: found.start()] for found in re.finditer(r"-(?=\d)", package))}
        matches = any(fnmatch.fnmatchcase(text, pattern) for text in texts for pattern in self.patterns)
        return not matches if self.name == "includepkgs" else matches


def lines(files: Mapping[str, str]) -> list[ExcludeLine]:
    """Return the lines that hide packages in dnf's configuration and repository files, by path."""
    return [
        ExcludeLine(path, found["name"], tuple(re.split(r"[\s,]+", found["value"].strip())))
        for path, text in files.items()
        for found in _SETTING.finditer(text)
        if found["value"].strip()
    ]


def cause(package: str, found: list[ExcludeLine]) -> str:
    """Return the sentence for a package that dnf hides."""
    hiding = " and ".join(str(line) for line in found if line.hides(package)) or "a line that excludes packages"
    return (
        f"The repositories have {package}, but dnf hides it because of {hiding}. Remove the pattern from this line, or "
        "install the package yourself, then run the role again."
    )


def filtered(output: str) -> list[str]:
    """Return the packages that dnf names as hidden in an error of its solver."""
    return list(dict.fromkeys(found["package"] or found["argument"] for found in _FILTERED.finditer(output)))


def explained(errors: list[str], hidden: Mapping[str, str]) -> list[str]:
    """Replace the errors that take hidden packages for missing ones: their advice would not help."""
    causes, others = [], []
    for error in errors:
        named = [text for package, text in hidden.items() if _names(error, package)]
        causes += named
        others += [] if named else [error]
    if errors and hidden and not causes:
        others += hidden.values()
    return list(dict.fromkeys([*causes, *others]))


def _names(text: str, package: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(package)}(?![\w-])", text) is not None
