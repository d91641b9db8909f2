# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The repositories in apt's sources, each a URL and a suite, and the sources without some of them."""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import apt_sources

_STANZA = re.compile(r"(?:^(?!\s*$).*(?:\n|$))+", re.MULTILINE)


class Target(NamedTuple):
    """One suite at one URL, as apt names it in its messages."""

    uri: str
    suite: str

    def __str__(self) -> str:
        """Return the text that apt prints."""
        return f"{self.uri} {self.suite}".strip()


def target(uri: str, suite: str, arch: str = "") -> Target:
    """Return the target of an entry. A suite that ends with a slash is a directory."""
    uri, suite = (text.replace("$(ARCH)", arch) for text in (url_logins.without_login(uri), suite))
    return Target(uri.rstrip("/"), suite.rstrip("/"))


def targets(files: dict[str, str], arch: str = "") -> dict[Target, set[str]]:
    """Return the enabled targets of source files, each with the paths of the files that have it."""
    found: dict[Target, set[str]] = {}
    for path, text in files.items():
        for entry in apt_sources.parse(path, text):
            if entry["enabled"]:
                for uri, suite in _pairs(entry):
                    found.setdefault(target(uri, suite, arch), set()).add(path)
    return found


def without(files: dict[str, str], failed: set[Target], arch: str = "") -> dict[str, str]:
    """Return the source files without the targets `failed`."""
    return {
        path: (_without_stanzas if path.endswith(".sources") else _without_lines)(path, text, failed, arch)
        for path, text in files.items()
    }


def _pairs(entry: dict) -> list[tuple[str, str]]:
    return [(uri, suite) for uri in entry["uris"] for suite in entry["suites"]]


def _without_lines(path: str, text: str, failed: set[Target], arch: str) -> str:
    gone = {
        entry["line"]
        for entry in apt_sources.parse(path, text)
        if any(target(uri, suite, arch) in failed for uri, suite in _pairs(entry))
    }
    return "".join(line for number, line in enumerate(text.splitlines(keepends=True), 1) if number not in gone)


def _without_stanzas(path: str, text: str, failed: set[Target], arch: str) -> str:
    stanzas = []
    for stanza in _STANZA.findall(text):
        entries = apt_sources.parse(path, stanza)
        pairs = _pairs(entries[0]) if entries else []
        if not any(target(*pair, arch) in failed for pair in pairs):
            stanzas.append(stanza)
            continue
        for uri in entries[0]["uris"]:
            suites = [suite for suite in entries[0]["suites"] if target(uri, suite, arch) not in failed]
            if suites:
                stanzas.append(_with_field(_with_field(stanza, "URIs", [uri]), "Suites", suites))
    return "\n".join(f"{stanza.rstrip()}\n" for stanza in stanzas)


def _with_field(stanza: str, name: str, words: list[str]) -> str:
    """Replace a field, which can continue on indented lines."""
    line = f"{name}: {' '.join(words)}"
    return re.sub(rf"^{name}[ \t]*:.*(?:\n[ \t#].*)*", lambda _old: line, stanza, flags=re.MULTILINE | re.IGNORECASE)
