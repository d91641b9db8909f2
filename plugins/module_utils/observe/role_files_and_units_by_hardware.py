# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files and units that the roles own are read on a host, whether or not it has the accelerators of a vendor.

The controller sends what the parts declare to own as an option, because parts are planned there, and the host gets no
code of them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import role_file_paths


class DeclaredPlaces:
    """`declared`: `observed` of site/registry.py.

    Places of some vendors are only observed on hosts with their accelerators, or if something of theirs is there.
    """

    def __init__(self, declared: Mapping[str, Any]) -> None:
        self._common = declared
        self._vendors: Mapping[str, Any] = declared.get("vendors", {})
        self.patterns = [*declared.get("package_patterns", ())]
        every = [declared, *self._vendors.values()]
        self.repositories = [name for one in every for name in one.get("repositories", ())]

    def files(self, root: str, vendors: Collection[str]) -> list[str]:
        """Return the files to read. `vendors`: those whose accelerators the host has."""
        found = _files(self._common)
        for vendor, places in self._vendors.items():
            found += [path for path in _files(places) if vendor in vendors or _is_there(root, path)]
        return found

    def units(self, root: str, vendors: Collection[str]) -> list[str]:
        """Return the units to read."""
        found = [*self._common.get("services", ())]
        for vendor, places in self._vendors.items():
            units = places.get("services", ())
            found += [one for one in units if vendor in vendors or _is_there(root, f"/etc/systemd/system/{one}")]
        return found


def _files(places: Mapping[str, Any]) -> list[str]:
    names = places.get("repositories", ())
    return [*places.get("files", ()), *(path for name in names for path in role_file_paths.paths(name))]


def _is_there(root: str, path: str) -> bool:
    return os.path.lexists(os.path.join(root, path.lstrip("/")))
