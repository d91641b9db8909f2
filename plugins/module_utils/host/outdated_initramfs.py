# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When an initramfs with an older NVIDIA driver than the one on disk is looked for, rebuilt, or a reason for a reboot.

A listing takes a second. It is only read if the loaded driver differs from the one on disk, although that one was
installed before the boot.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver_versions as host_driver

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host, Initramfs

Run = Callable[["list[str]"], "tuple[int, str, str]"]

# The first is Debian's, the others are the default paths of dracut (its option --kver). {0}: release, {1}: machine ID.
_IMAGES = (
    "/boot/initrd.img-{0}",
    "/efi/{1}/{0}/initrd",
    "/boot/{1}/{0}/initrd",
    "/boot/efi/{1}/{0}/initrd",
    "/lib/modules/{0}/initrd",
    "/boot/initramfs-{0}.img",
    "/boot/initrd-{0}",
)
# The program of initramfs-tools, and that of dracut.
_PROGRAMS = ("lsinitramfs", "lsinitrd")


def read(root: str, kernels: dict, driver: dict, run: Run, boot_time: Callable[[], int | None]) -> list[dict]:
    """Return the images of the running and of the next kernel if the boot may have loaded the driver from one of them.

    Each has the `kernel`, the `path`, whether it has the driver's module (`has_driver`, None: unknown), and whether it
    was built before the boot (`before_boot`). `boot_time` returns the time of the boot.
    """
    booted = boot_time() if differs(driver) else None
    if booted is None:
        return []
    installed = changed_at(host_driver.module_file(root, kernels["running"]))
    if installed is None or installed >= booted:
        return []  # The boot could not load this module.
    found = []
    for release in dict.fromkeys((kernels["running"], kernels["next_boot"])):
        path = image(root, release)
        built = changed_at(path and os.path.join(root, path.lstrip("/")))
        if path and built is not None:
            listed = contains_driver(root, path, run)
            found.append({"kernel": release, "path": path, "has_driver": listed, "before_boot": built < booted})
    return found


def differs(driver: dict) -> bool:
    """Return whether the loaded driver has another version or flavor than the one on disk for the running kernel."""
    if not driver["loaded"] or not driver["on_disk"]:
        return False
    flavors = {driver["kernel_module_flavor"], driver["on_disk_flavor"]} - {None}
    return driver["loaded"] != driver["on_disk"] or len(flavors) > 1


def changed_at(path: str | None) -> float | None:
    """Return when a file came to its path. Packages preserve mtime; a link can be newer than the file."""
    try:
        return max(os.stat(path).st_ctime, os.lstat(path).st_ctime) if path else None
    except OSError:
        return None


def image(root: str, release: str) -> str | None:
    """Return the path of a kernel's initramfs."""
    machine = (read_text(root, "/etc/machine-id") or "").strip() or "none"
    paths = [path.format(release, machine) for path in _IMAGES]
    return next((path for path in paths if os.path.isfile(os.path.join(root, path.lstrip("/")))), None)


def contains_driver(root: str, path: str, run: Run) -> bool | None:
    """Return whether an initramfs contains the driver's module, or None if no program can list it."""
    for program in _PROGRAMS:
        rc, out, _err = run([program, os.path.join(root, path.lstrip("/"))])
        if rc == 0:
            return lists_driver(out)
    return None


def lists_driver(listing: str) -> bool:
    """Return whether the listing of an initramfs has the driver's module. lsinitrd prints more than the files."""
    words = [line.partition(" -> ")[0].split() for line in listing.splitlines()]
    return any(host_driver.is_module_file(found[-1]) for found in words if found and "/" in found[-1])


def outdated(host: Host) -> list[Initramfs]:
    """Return the images to rebuild: those with the driver's module that were built before the boot."""
    return [entry for entry in host.get("initramfs") or () if entry["has_driver"] and entry["before_boot"]]


def reboot_reasons(host: Mapping[str, Any], loaded: str) -> list[str]:
    """Return why the next boot may load the driver from an initramfs again. `loaded`: the version of this boot."""
    found = []
    for entry in host.get("initramfs") or ():
        if entry["has_driver"] and entry["kernel"] == host["kernel"]["next_boot"]:
            state = "was built before this boot" if entry["before_boot"] else "has been rebuilt since"
            found.append(
                f"the initramfs of kernel {entry['kernel']} ({entry['path']}) contains the driver's module, so the "
                f"host loaded {loaded} from it at this boot; it {state}"
            )
    return found
