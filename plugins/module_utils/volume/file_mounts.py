# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mounts of single driver files at the paths where every process of a container finds them.

The dynamic loader searches its default directories after LD_LIBRARY_PATH and its cache, so no variable and no update of
the cache is necessary. docs/gpu-container.md compares the alternatives.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import (
    driver_files,
    driver_volume,
    graphics_configuration,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume.driver_files import DriverFile

# Default directories of the loaders of the Debian and Red Hat families.
LOADER_DIRECTORIES = {
    ("x86_64", "lib64"): ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"),
    ("x86_64", "lib"): ("/usr/lib/i386-linux-gnu", "/usr/lib"),
    ("aarch64", "lib64"): ("/usr/lib/aarch64-linux-gnu", "/usr/lib64"),
    ("aarch64", "lib"): ("/usr/lib/arm-linux-gnueabihf", "/usr/lib"),
}
BINARY_DIRECTORY = "/usr/bin"
# In some images, /usr/lib64 is a link to /usr/lib. A later mount hides an earlier one, so 64-bit libraries come last.
_ORDER = ("lib", "lib64", "bin", "share")
# CUDA programs also use NVML, so these sets are mounted for all driver capabilities.
_ALWAYS = ("utility", "compute")


class FileMount(NamedTuple):
    """A file of the host and its path in a container."""

    source: str
    target: str

    def option(self) -> str:
        """Return the value of an engine's option `--volume`."""
        return f"{self.source}:{self.target}:ro"


def mounts_of(files: Iterable[DriverFile], machine: str) -> list[FileMount]:
    """Return the mounts of the files: each library under each of its names, each program in /usr/bin."""
    found = []
    for file in sorted(files, key=lambda file: _ORDER.index(file.subdirectory)):
        if file.subdirectory == "bin":
            found.append(FileMount(file.source, f"{BINARY_DIRECTORY}/{file.name}"))
            continue
        found += configuration_mounts([file], machine)
        if file.subdirectory == "share":
            continue
        names = [name for name in (file.name, *file.links) if name != graphics_configuration.GBM_BACKEND]
        for directory in LOADER_DIRECTORIES.get((machine, file.subdirectory), (f"/usr/{file.subdirectory}",)):
            found += [FileMount(file.source, f"{directory}/{name}") for name in names]
    return found


def configuration_mounts(files: Iterable[DriverFile], machine: str) -> list[FileMount]:
    """Return the mounts with which vendor-neutral libraries find the driver's libraries."""
    return [
        FileMount(file.source, target)
        for file in files
        for _name, target in graphics_configuration.mounts(
            [f"{file.subdirectory}/{name}" for name in (file.name, *file.links)], machine
        )
    ]


def files_for(files: Iterable[DriverFile], capabilities: Collection[str]) -> list[DriverFile]:
    """Return the files that the driver capabilities of a container require."""
    sets = {*_ALWAYS, *capabilities}
    if "display" in sets:
        sets.add("graphics")
    return [file for file in files if driver_files.is_in_sets(file, sets)]


def files_of_volume(directory: str, root: str = "/") -> list[DriverFile]:
    """List the files of the driver volume at `directory` of the host, with the names of the links to them."""
    found = []
    for name in driver_volume.SUBDIRECTORIES:
        base = os.path.join(root, directory.lstrip("/"), name)
        files, links = [], {}
        for item in sorted(os.scandir(base), key=lambda item: item.name) if os.path.isdir(base) else ():
            if item.is_symlink():
                links.setdefault(os.readlink(item.path), []).append(item.name)
            elif item.is_file():
                files.append(item.name)
        found += [DriverFile("", name, file, tuple(links.get(file, ()))) for file in files]
    return as_in_volume(found, directory)


def as_in_volume(files: Iterable[DriverFile], directory: str) -> list[DriverFile]:
    """Return the driver's files with the paths that they will have in the volume at `directory`."""
    return [file._replace(source=os.path.join(directory, file.subdirectory, file.name)) for file in files]
