# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find old entries of NVIDIA's package repositories for containers. Pure functions of the observation.

Today, one repository has the packages for all distributions: libnvidia-container/stable/deb or rpm. The older ones had
a directory for each distribution: NVIDIA/nvidia-docker, branch gh-pages (d581f95).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import role_file_paths

_OLD = re.compile(
    r"//nvidia\.github\.io/(?:nvidia-docker/|nvidia-container-runtime/|libnvidia-container/"
    r"(?!(?:stable|experimental)/(?:deb|rpm)(?:/|$)))"
)
_NEW = re.compile(r"//nvidia\.github\.io/libnvidia-container/(?:stable|experimental)/(?:deb|rpm)(?:/|$)")
_OWN = role_file_paths.repository_entry(owned.CONTAINER_TOOLKIT_REPOSITORY_ID, "apt")


OLD, CLASH, EXPIRED = "old", "clash", "expired"


class Source(NamedTuple):
    """An entry to remove: its file, its place in the file, its address, and why."""

    file: str
    # The line of apt's entry, or the section of dnf's and zypper's.
    place: int | str
    url: str
    why: str = OLD


def is_old(url: str | None) -> bool:
    """Return whether a URL is that of an old repository."""
    return bool(_OLD.search(url or ""))


def of_host(host: Any) -> list[Source]:
    """Return the old entries, and entries of today's repository that apt rejects: they clash, or their key expired."""
    entries = (host.get("apt") or {}).get("sources", [])
    clashing = _clashing(entries)
    expired = {key["path"] for key in (host.get("nvidia_docker") or {}).get("keys", [])}
    has_trusted = any(path.startswith("/etc/apt/trusted.gpg") for path in expired)
    found = []
    for entry in entries:
        urls = [url for url in entry["uris"] if is_old(url)]
        if urls:
            found.append(Source(entry["file"], entry["line"], urls[0]))
        elif entry["file"] == _OWN or not entry["enabled"] or not any(map(_NEW.search, entry["uris"])):
            continue
        elif any((url.rstrip("/"), suite) in clashing for url, suite in _targets(entry)):
            found.append(Source(entry["file"], entry["line"], entry["uris"][0], CLASH))
        elif entry["signed_by"] in expired or (has_trusted and not entry["signed_by"]):
            found.append(Source(entry["file"], entry["line"], entry["uris"][0], EXPIRED))
    rpm = [entry for entry in host.get("repositories") or [] if is_old(entry["url"])]
    return found + [Source(entry["file"], entry["id"], entry["url"]) for entry in rpm]


def whole_files(host: Any, sources: list[Source]) -> list[str]:
    """Return the files that have no other entries."""
    places = {(source.file, source.place) for source in sources}
    others = {
        *(
            entry["file"]
            for entry in (host.get("apt") or {}).get("sources", [])
            if (entry["file"], entry["line"]) not in places
        ),
        *(entry["file"] for entry in host.get("repositories") or [] if (entry["file"], entry["id"]) not in places),
    }
    return sorted({source.file for source in sources} - others)


def without(host: Any, sources: list[Source]) -> Any:
    """Return the observation without these entries."""
    places = {(source.file, source.place) for source in sources}
    found = dict(host)
    if host.get("apt"):
        rest = [entry for entry in host["apt"]["sources"] if (entry["file"], entry["line"]) not in places]
        found["apt"] = {**host["apt"], "sources": rest}
    found["repositories"] = [
        entry for entry in host.get("repositories") or [] if (entry["file"], entry["id"]) not in places
    ]
    return found


def text_without(path: str, text: str, places: list[Any]) -> str:
    """Return the text of a file without these entries, and without the comments directly above an entry of dnf."""
    lines = text.splitlines(keepends=True)
    if path.endswith(".list"):
        return "".join(line for number, line in enumerate(lines, start=1) if number not in places)
    kept, is_kept = [], True
    for number, line in enumerate(lines, start=1):
        if path.endswith(".sources"):
            # An entry ends at an empty line.
            is_kept = number not in places and (is_kept or not line.strip())
            if not line.strip() and not (kept and kept[-1].strip()):
                continue
        elif line.strip().startswith("[") and line.strip().endswith("]"):
            is_kept = line.strip()[1:-1] not in places
        kept += [line] if is_kept else []
    return "".join(kept)


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
