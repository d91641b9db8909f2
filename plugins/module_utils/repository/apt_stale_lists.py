# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which of apt's package lists are stale after the removal of a repository. Pure functions."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import apt_sources
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.apt_list_names import AptLists
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile


def names(
    names: list[str], removed: list[RepositoryFile], remaining: dict[str, str], lists: AptLists | None = None
) -> list[str]:
    """Select the names of package lists that only removed entries of repositories use.

    The content of a removed file is its text before the removal. `remaining` has the texts of the other sources, and
    `lists` knows the names of the lists of all of them.
    """
    lists = lists or AptLists(None)
    gone = {
        stem
        for file in removed
        if file.content is not None and apt_sources.is_source(file.path)
        for stem in _stems(file.path, file.content.decode("utf-8", "surrogateescape"), lists)
    }
    kept = {stem for path, text in remaining.items() for stem in _stems(path, text, lists)}
    return [name for name in names if _has_stem(name, gone) and not _has_stem(name, kept)]


def _stems(path: str, text: str, lists: AptLists) -> set[str]:
    entries = [entry for entry in apt_sources.parse(path, text) if entry["enabled"]]
    return {lists.stem(uri, suite) for entry in entries for uri in entry["uris"] for suite in entry["suites"]}


def _has_stem(name: str, stems: set[str]) -> bool:
    # A flat repository has no directories, and its stem can begin the names of other repositories.
    return any(name.startswith(stem) and ("_dists_" in stem or "_" not in name[len(stem) :]) for stem in stems)
