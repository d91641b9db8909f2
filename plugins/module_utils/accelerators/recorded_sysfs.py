# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tree of another host: what the observation recorded of its sysfs and of its device nodes.

observe/amd_gaudi_neuron/accelerator_records.py writes the record. What it does not contain looks as if the host did
not have it, so the measurements of a device are null.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import sysfs_refusals


class AcceleratorRecordedTree(sysfs_refusals.SysfsTree):
    """A tree in the place of the host's. `kernels`: the releases that the module of the vendor is installed for."""

    def __init__(self, record: Mapping[str, Any], kernels: Mapping[str, list[str]] | None = None) -> None:
        super().__init__("")
        self._texts: Mapping[str, str] = record.get("texts") or {}
        self._refused: Mapping[str, int] = record.get("refused") or {}
        self._nodes: Mapping[str, Mapping[str, int]] = record.get("nodes") or {}
        self._kernels = kernels or {}
        self._entries: dict[str, set[str]] = {}
        for path in (*self._texts, *self._refused, *self._nodes, *(record.get("names") or ())):
            entry = path
            while entry not in ("", "/"):
                parent, name = posixpath.split(entry)
                self._entries.setdefault(parent, set()).add(name)
                entry = parent

    def read_bytes(self, path: str, limit: int = sysfs_refusals.MOST_BYTES) -> bytes:
        if path in self._refused:
            raise OSError(self._refused[path], os.strerror(self._refused[path]))
        if path not in self._texts:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._texts[path].encode("latin-1", "replace")[:limit]

    def names(self, path: str, pattern: str) -> list[str]:
        found = (name for name in self._entries.get(path, ()) if re.fullmatch(pattern, name, re.ASCII))
        return sorted(found, key=sysfs_refusals.natural)

    def exists(self, path: str) -> bool:
        parent, name = posixpath.split(path)
        return name in self._entries.get(parent, ())

    def gid(self, path: str) -> int | None:
        return (self._nodes.get(path) or {}).get("gid")

    def has_module(self, kernel: str, name: str) -> bool:
        return kernel in self._kernels.get(name, ())
