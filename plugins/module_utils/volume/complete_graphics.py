# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's files for OpenGL, EGL and Vulkan on this host: where containers need them, and what is missing."""

from __future__ import annotations

import os
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import (
    driver_files,
    driver_volume,
    graphics_configuration,
)

CAPABILITIES = ("graphics", "display")


class Graphics(NamedTuple):
    """Paths in the driver volume with their paths in a container, and why the driver has no complete graphics."""

    mounts: tuple[tuple[str, str], ...] = ()
    fault: str | None = None


def of_driver(version: str | None, machine: str, root: str = "/") -> Graphics:
    """Return the graphics of the driver that is installed on the host."""
    if not version:
        return Graphics(fault="the driver version is unknown")
    try:
        files = driver_files.find(version, machine, root, sets=("graphics",))
    except driver_files.DriverFilesError as error:
        return Graphics(fault=str(error))
    layout = driver_volume.layout_of(version, files)
    names = {*layout.files, *layout.links}
    missing = graphics_configuration.missing_graphics({os.path.basename(name) for name in names}, version)
    fault = (
        f"the driver of this host has no complete graphics, because these files are missing: {', '.join(missing)} "
        "(install the driver's packages for OpenGL and Vulkan)"
        if missing
        else None
    )
    return Graphics(tuple(graphics_configuration.mounts(names, machine)), fault)
