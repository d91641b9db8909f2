# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files of the driver a container with isolation=volume gets, and where it finds them."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection
from dataclasses import dataclass

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import VOLUME, IsolationError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files, driver_volume, file_mounts
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume.complete_graphics import CAPABILITIES as GRAPHICS

# Values of the option `libraries`. The other one is VOLUME.
FILES = "files"


# Where a container finds the files of the driver volume, after the directories of the image.
SEARCH_PATHS = {
    "LD_LIBRARY_PATH": tuple(f"{driver_volume.MOUNT_POINT}/{name}" for name in ("lib64", "lib")),
    "PATH": (f"{driver_volume.MOUNT_POINT}/bin",),
}


@dataclass(frozen=True)
class Libraries:
    """How a container with isolation=volume gets the driver's libraries."""

    # The option `libraries`: FILES or VOLUME.
    mode: str
    # The directory of the driver volume on the host.
    directory: str
    # The volumes of the user, as written.
    user_volumes: tuple[str, ...] = ()
    # Whether an existing volume has all files that the container needs.
    is_complete: bool = True


def mounted_files(
    host: IsolationHost, libraries: Libraries, capabilities: Collection[str]
) -> tuple[list[file_mounts.FileMount], list[str]]:
    """Return the mounts of the driver's files, and the volumes of the user that cover some of their directories.

    The engine would create a missing file in the user's volume, or fail if that volume is read-only.
    """
    if libraries.mode == VOLUME and not {*GRAPHICS} & {*capabilities}:
        return [], []
    targets = {_target(volume): volume for volume in libraries.user_volumes}
    mounts, covering = [], []
    files = file_mounts.files_for(_files(host, libraries), capabilities)
    # LD_LIBRARY_PATH is only for libraries.
    mounts_of = file_mounts.configuration_mounts if libraries.mode == VOLUME else file_mounts.mounts_of
    for mount in mounts_of(files, driver_files.normal_machine(platform.machine())):
        parents = [target for target in targets if (mount.target + "/").startswith(target.rstrip("/") + "/")]
        covering += [targets[target] for target in parents if target != mount.target]
        mounts += [] if parents else [mount]
    return mounts, list(dict.fromkeys(covering))


def _files(host: IsolationHost, libraries: Libraries) -> list[driver_files.DriverFile]:
    """Return the files of the driver volume, which may not exist or not be complete yet."""
    version, directory = host.driver_version or "", libraries.directory
    found = file_mounts.files_of_volume(directory, host.root)
    core = {f"{base}.so.{version}" for base in driver_files.CORE_LIBRARIES}
    if libraries.is_complete and any(file.name in core for file in found):
        return found
    try:
        files = driver_files.find(
            version,
            platform.machine(),
            host.path(host.driver_root),
            search_path=os.environ.get("PATH", "").split(":") if host.driver_root == "/" else (),
            ignore=[host.path(directory)],
        )
    except driver_files.DriverFilesError as error:
        raise IsolationError(f"The driver volume cannot be created: {error}") from error
    return file_mounts.as_in_volume(files, directory)


def unmet_capabilities(access: Access, capabilities: Collection[str]) -> list[str]:
    """Return a warning about the requested capabilities for which the driver volume has no file."""
    paths = [mount.split(":")[0].rsplit("/", 2) for mount in access.file_mounts]
    files = [driver_files.DriverFile("", subdirectory, name) for _parent, subdirectory, name in paths]
    unmet = [
        name
        for name in sorted({"ngx", "video"} & {*capabilities})
        if files and not any(driver_files.is_in_sets(file, [name]) for file in files)
    ]
    if "compat32" in capabilities and files and not any(file.subdirectory == "lib" for file in files):
        unmet.insert(0, "compat32")
    if not unmet:
        return []
    return [
        f"capabilities: the driver volume has no files for {', '.join(unmet)}. Install the driver's packages that "
        "contain them, and if nvidia_driver_volume limits sets, add them to sets."
    ]


def _target(volume: str) -> str:
    """Return the path in the container of a volume `source:target:options` or `target`."""
    parts = volume.split(":")
    return parts[1] if len(parts) > 1 and parts[1].startswith("/") else parts[0]
