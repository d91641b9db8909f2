# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that belong to one kernel: headers to build modules with, and modules that the distribution built.

An archive drops those of older kernels. The kernel that boots next needs them; one that is about to go may do without.
"""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.choice import NoVersion
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.installed import is_there


def leave_the_running_kernel(host: dict, result: dict) -> None:
    """Ask for nothing of a kernel that is about to go, once the next one has its module.

    Its archive may have dropped it; asking again on every run would never end.
    """
    left = _of_the_kernel_that_goes(host, result)
    rest = [name for name in result["packages"] if name not in left]
    if all(is_there(host, name) for name in rest) and host["driver"]["on_disk_next"]:
        _forget(result, [name for name in left if not is_there(host, name)])


def leave_what_is_gone(host: dict, result: dict, available: dict) -> None:
    """Drop what the repositories no longer have, as long as the kernel that boots next gets its module."""
    running, upcoming = host["kernel"]["running"], host["kernel"]["next_boot"]
    absent = [name for name in _of_kernels(host, result) if not is_there(host, name)]
    gone = [name for name in absent if not available.get(name)]
    needed = [name for name in gone if name not in _of_the_kernel_that_goes(host, result)]
    headers = [name for name in needed if name in result["kernel_packages"]]
    if headers:
        raise NoVersion(
            f"the repositories of this host have no {', '.join(headers)}, so no module can be built for kernel "
            f"{upcoming}, which the next boot takes. Upgrade the kernel and reboot first, add a repository that has "
            "these headers, or name packages that bring them in nvidia_driver_kernel_packages."
        )
    if needed:
        raise NoVersion(
            f"the repositories of this host have no {', '.join(needed)}, so there is no prebuilt module for kernel "
            f"{upcoming}, which the next boot takes. Upgrade the kernel and reboot first, add a repository that has "
            "it, or set nvidia_driver_module_build to auto or dkms, so that it is built here."
        )
    if gone:
        result["reasons"].append(
            f"no module for the running kernel {running}: the repositories have no {', '.join(gone)} any more; the "
            f"driver is there after a reboot into {upcoming}"
        )
    _forget(result, gone)


def lacking_prebuilt(host: dict, result: dict, available: dict) -> list[str]:
    """Name the next kernel's prebuilt modules that the repositories do not have."""
    upcoming = _prebuilt_for(result, host["kernel"]["next_boot"])
    return [name for name in upcoming if name not in host["packages"] and not available.get(name)]


def _prebuilt_for(result: dict, release: str) -> list[str]:
    return [name for name in result["prebuilt"] if name.endswith(f"-{release}")]


def _of_kernels(host: dict, result: dict) -> list[str]:
    releases = dict.fromkeys([host["kernel"]["running"], host["kernel"]["next_boot"]])
    return [*result["kernel_packages"], *(name for release in releases for name in _prebuilt_for(result, release))]


def _of_the_kernel_that_goes(host: dict, result: dict) -> list[str]:
    running = host["kernel"]["running"]
    if running == host["kernel"]["next_boot"]:
        return []
    return [*result["headers"].get(running, []), *_prebuilt_for(result, running)]


def _forget(result: dict, names: list[str]) -> None:
    for key in ("kernel_packages", "packages", "prebuilt"):
        result[key] = [name for name in result[key] if name not in names]
