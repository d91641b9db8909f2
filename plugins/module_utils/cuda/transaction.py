# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the changes in a simulated transaction of a package manager that role cuda_toolkit does not allow."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import simulation
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.simulation import REMOVE

# The driver's packages in NVIDIA's repository and in distributions. Development packages (-dev) and packages for
# containers do not belong to the driver.
_DRIVER = re.compile(
    r"cuda-drivers(-.+)?"
    r"|libnvidia-(?!container).+(?<!-dev)"
    r"|nvidia-(tesla-)?(\d+-)?(alternative|compute|dkms|driver|fabric-?manager|firmware|gl|headless|imex|kernel|kmod|"
    r"legacy|modprobe|open|opencl|persistenced|smi|utils|video)(-.+)?(?<!-dev)"
    r"|(nvidia-)?kmod-nvidia.*|linux-(modules|objects|signatures)-nvidia-.*|dkms-nvidia|akmod-nvidia.*"
    r"|lib(nvidia-tesla-(\d+-)?)?cuda1|libcudadebugger1|libnvcuvid1|libnvoptix1|libnvsdm"
    r"|firmware-nvidia.*|xorg-x11-(drv-)?nvidia.*|xserver-xorg-video-nvidia.*|nv-prefer-signed-open-driver"
)


def is_driver_package(name: str) -> bool:
    """Return whether a package belongs to the NVIDIA driver."""
    return _DRIVER.fullmatch(name) is not None


def forbidden_changes(text: str) -> list[str]:
    """Return the driver packages that an installation would install or change, and all packages that it would remove.

    `text` is the output of `apt-get --simulate` or `zypper --xmlout`, or the lines of `results` of ansible.builtin.dnf.
    """
    changes = simulation.of(text)
    return sorted({change.name for change in changes if change.action == REMOVE or is_driver_package(change.name)})


def unrelated_removals(text: str, allowed: list[str]) -> list[str]:
    """Return the packages that a simulated removal would remove or break, except the allowed packages."""
    return sorted((simulation.removed(simulation.of(text)) | simulation.rpm_dependents(text)) - set(allowed))


def unneeded(text: str, names: list[str]) -> list[str]:
    """Return the names that no package needs.

    `text` is the output of `apt-get --simulate autoremove`, `dnf repoquery --unneeded` with one name per line, or
    `zypper packages --unneeded`.
    """
    rows = ([cell.strip() for cell in line.split("|")] for line in text.splitlines())
    listed = {row[2] if len(row) > 4 else row[0] for row in rows} | simulation.removed(simulation.apt(text))
    return [name for name in names if name in listed]
