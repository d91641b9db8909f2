# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether two CDI specifications with the same device conflict, or the one in a later directory overrides the other.

Pure functions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.specification_reader import CdiDevice


def distinguish(found: Iterable[CdiDevice]) -> tuple[dict[str, CdiDevice], dict[str, tuple[str, str]]]:
    """Return the devices that are valid by qualified name, and the two files of each conflict.

    `found` has the order in which engines read the directories. A conflict is two files of one directory with the same
    device. It remains one even if a later directory overrides the device.
    """
    devices: dict[str, CdiDevice] = {}
    conflicts: dict[str, tuple[str, str]] = {}
    for device in found:
        other = devices.get(device.qualified)
        is_same_directory = other is not None and os.path.dirname(other.path) == os.path.dirname(device.path)
        if other is not None and is_same_directory and other.path != device.path:
            conflicts[device.qualified] = (other.path, device.path)
        devices[device.qualified] = device
    return devices, conflicts
