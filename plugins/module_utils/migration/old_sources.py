# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find old entries of NVIDIA's package repositories for containers. Pure functions of the observation.

Today, one repository has the packages for all distributions: libnvidia-container/stable/deb or rpm. The older ones had
a directory for each distribution: NVIDIA/nvidia-docker, branch gh-pages (d581f95).

This file is private to the collection: it may change in any release.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned

_OLD = re.compile(
    r"//nvidia\.github\.io/(?:nvidia-docker/|nvidia-container-runtime/|libnvidia-container/"
    r"(?!(?:stable|experimental)/(?:deb|rpm)(?:/|$)))"
)
_NEW = re.compile(r"//nvidia\.github\.io/libnvidia-container/(?:stable|experimental)/(?:deb|rpm)(?:/|$)")
_OWN = owned.repository_entry(owned.CONTAINER_TOOLKIT_REPOSITORY_ID, "apt")


class Source(NamedTuple):
    """An entry to remove: its file, its place in the file, its address, and whether it only clashes with another."""

    file: str
    # The line of apt's entry, or the section of dnf's and zypper's.
    place: int | str
    url: str
    clashes: bool = False


def is_old(url: str | None) -> bool:
    """Return whether a URL is that of an old repository."""
    return bool(_OLD.search(url or ""))


def of_host(host: Any) -> list[Source]:
    """Return the old entries, and all entries of today's repository if apt rejects them together."""
    entries = (host.get("apt") or {}).get("sources", [])
    clashing = _clashing(entries)
    found = []
    for entry in entries:
        urls = [url for url in entry["uris"] if is_old(url)]
        if urls:
            found.append(Source(entry["file"], entry["line"], urls[0]))
        elif entry["file"] != _OWN and any((url.rstrip("/"), suite) in clashing for url, suite in _targets(entry)):
            found.append(Source(entry["file"], entry["line"], entry["uris"][0], clashes=True))
    rpm = [entry for entry in host.get("repositories") or [] if is_old(entry["url"])]
    return found + [Source(entry["file"], entry["id"], entry["url"]) for entry in rpm]


def _targets(entry: dict[str, Any]) -> list[tuple[str, str]]:
    return [(url, suite) for url in entry["uris"] for suite in entry["suites"]]


def _clashing(entries: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Return address and suite of the repositories for which apt finds different values of Signed-By."""
    keys: dict[tuple[str, str], set[str]] = {}
    for entry in entries:
        if entry["enabled"]:
            for url, suite in _targets(entry):
                if _NEW.search(url):
                    keys.setdefault((url.rstrip("/"), suite), set()).add(entry["signed_by"])
    return {target for target, values in keys.items() if len(values) > 1}
