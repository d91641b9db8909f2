# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CDI specifications describe the same GPUs, so that engines reject or override one. Pure functions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories as cdi_directories


def duplicates(specs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each pair of specifications with the same devices.

    In one directory, engines reject both. Otherwise, the one in /var/run/cdi overrides the other.
    """
    found = []
    ordered = sorted(specs, key=lambda spec: (not _is_of_boot(spec["path"]), cdi_directories.real(spec["path"])))
    for number, first in enumerate(ordered):
        for second in ordered[number + 1 :]:
            one, other = first["path"], second["path"]
            known = set(first["uuids"]), set(second["uuids"])
            if all(known) and not known[0] & known[1]:
                continue
            if os.path.dirname(cdi_directories.real(one)) == os.path.dirname(cdi_directories.real(other)):
                found.append(
                    f"the CDI specifications {one} and {other} describe the same GPUs, so engines reject these "
                    "devices; remove one of the files"
                )
            elif _is_of_boot(one):
                found.append(
                    f"the CDI specification {one} overrides {other}, which engines use as soon as the first file is "
                    f"missing, for example after a reboot; remove {other}"
                )
    return found


def _is_of_boot(path: str) -> bool:
    return cdi_directories.real(path).startswith("/run/cdi/")
