# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files containerd imports, and in which order it reads them. Pure functions."""

from __future__ import annotations

import fnmatch
import posixpath
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import engine_file_parsing
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.containerd_versions import ROOT_FILE


def imports(path: str, text: str) -> list[str]:
    """Return the key imports of a file."""
    return list(engine_file_parsing.parsed(path, text).get("imports") or [])


def load_order(trees: t.Mapping[str, dict[str, t.Any]]) -> list[str]:
    """Return the paths in the order in which containerd reads them: the imports of a file after all pending files."""
    found: list[str] = []
    pending = [ROOT_FILE]
    while pending:
        path = pending.pop(0)
        if path not in found:
            found.append(path)
            pending += selected(trees[path].get("imports") or [], path, trees)
    return found


def selected(patterns: t.Iterable[str], path: str, paths: t.Iterable[str]) -> list[str]:
    """Return which paths the imports of a file select.

    A star does not cross a directory, and without a star, nothing is a pattern. The rule is that of resolveImports in
    containerd/containerd, v1.7.27, services/server/config/config.go.
    """
    result = []
    for text in patterns:
        pattern = posixpath.normpath(posixpath.join(posixpath.dirname(path), text)).split("/")
        for parts in sorted(name.split("/") for name in paths):
            is_glob = "*" in text and len(parts) == len(pattern)
            if parts == pattern or (is_glob and all(map(fnmatch.fnmatchcase, parts, pattern))):
                result.append("/".join(parts))
    return result
