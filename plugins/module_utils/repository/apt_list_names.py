# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of the files that apt downloads for a suite: apt's own answer, or computed for web servers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Callable
from urllib.parse import unquote

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins

Run = Callable[["list[str]"], "tuple[int, str, str]"]

_FORMAT = "$(SITE)|$(RELEASE)|$(METAKEY)|$(FILENAME)"
# apt writes these characters of a URL as codes in the names of package lists.
_QUOTED = re.compile(r"[\\|{}\[\]<>\"^~_=!@#$%&*\x00-\x20\x7f]")


class AptLists:
    """Finds the beginning of the names of a suite's lists. Asks apt at most once, and only if it is necessary."""

    def __init__(self, run: Run | None, options: Iterable[str] = ()) -> None:
        """`options` select the sources that apt reads. Without `run`, or if apt fails, all names are computed."""
        self._run = run
        self._options = list(options)
        self._answer: dict[tuple[str, str], str] | None = None

    def stem(self, uri: str, suite: str) -> str:
        """Return the beginning of the names of the lists of a suite."""
        if is_web(uri):
            return list_stem(uri, suite)
        return self._known().get(_key(uri, suite)) or list_stem(uri, suite)

    def _known(self) -> dict[tuple[str, str], str]:
        if self._answer is None:
            argv = ["apt-get", *self._options, "indextargets", "--no-release-info", "--format", _FORMAT]
            rc, out, _err = self._run(argv) if self._run else (127, "", "")
            self._answer = parse(out) if rc == 0 else {}
        return self._answer


def is_web(uri: str) -> bool:
    """Return whether a source is on a web server. The names of its lists are known without apt."""
    return uri.startswith(("http://", "https://"))


def parse(out: str) -> dict[tuple[str, str], str]:
    """Return the beginning of the names of lists by URL and suite, from the output of `apt-get indextargets`."""
    found = {}
    for site, suite, key, path in (line.split("|") for line in out.splitlines() if line.count("|") == 3):
        name, end = os.path.basename(path), _quoted(key)
        if name.endswith(end):
            found[_key(site, suite)] = name[: len(name) - len(end)]
    return found


def list_stem(uri: str, suite: str) -> str:
    """Compute the beginning of the names of the lists of a suite. A source without a server keeps one slash."""
    bare = re.sub(r"^[a-z+-]+:(?://(?:[^/@]*@)?)?(?:/+(?=/))?", "", uri).rstrip("/")
    # A suite that ends with a slash is a path below the URL.
    return _quoted(f"{bare}/{suite.lstrip('/')}" if suite.endswith("/") else f"{bare}/dists/{suite}/")


def _quoted(path: str) -> str:
    return _QUOTED.sub(lambda found: f"%{ord(found.group()):02x}", path).replace("/", "_")


def _key(uri: str, suite: str) -> tuple[str, str]:
    scheme, _colon, rest = unquote(url_logins.without_login(uri)).partition(":")
    # apt removes the empty server from file:///path.
    return f"{scheme}:{re.sub('^/{2,}(?=/)', '', rest).rstrip('/')}", suite.rstrip("/")
