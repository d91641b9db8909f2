# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which loaded kernel modules are observed, and what uses them."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids


def uses_of_nvidia(root: str) -> int:
    """Count the uses of the driver's modules, except those by other modules. The kernel does not name the users."""
    rows = [line.split() for line in (read_text(root, "/proc/modules") or "").splitlines()]
    return sum(
        int(row[2]) - sum(bool(user.strip("-")) for user in row[3].split(","))
        for row in rows
        if len(row) > 3 and row[0].startswith("nvidia") and row[2].isdigit()
    )


def modules_loaded(root: str) -> list[str]:
    found = set(_modules(root))
    # ib_umad may be built into the kernel.
    return sorted(found | {"ib_umad"} if exists(root, "/sys/class/infiniband_mad") else found)


def module_users(root: str) -> dict[str, list[str]]:
    return {name: users for name, users in _modules(root).items() if users}


def _modules(root: str) -> dict[str, list[str]]:
    """Return the loaded modules for accelerators, each with the modules that use it."""
    found = {}
    names = "|".join(accelerator_pci_ids.MODULES.values())
    for line in (read_text(root, "/proc/modules") or "").splitlines():
        name, _size, _count, users = [*line.split(), "", "", "", ""][:4]
        if re.match(rf"nvidia|nouveau|nova|gdrdrv|ib_core|{names}", name):
            found[name] = sorted(user for user in users.split(",") if user not in ("", "-"))
    return found
