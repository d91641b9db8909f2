# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the changes in a simulated transaction of a package manager that role cuda_toolkit does not allow."""

from __future__ import annotations

import re

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
    installed, removed = _apt(text) if re.search(r"^(Inst|Remv|Purg) ", text, re.MULTILINE) else _rpm(text)
    return sorted({*(name for name in installed if is_driver_package(name)), *(removed - installed)})


def unrelated_removals(text: str, allowed: list[str]) -> list[str]:
    """Return the packages that a simulated removal would remove or break, except the allowed packages."""
    _installed, removed = _apt(text)
    removed |= set(re.findall(r" is needed by \(installed\) (\S+?)-(?:\d+:)?[^-\s]+-[^-\s]+$", text, re.MULTILINE))
    return sorted(removed - set(allowed))


def unneeded(text: str, names: list[str]) -> list[str]:
    """Return the names that no package needs.

    `text` is the output of `apt-get --simulate autoremove`, `dnf repoquery --unneeded` with one name per line, or
    `zypper packages --unneeded`.
    """
    _installed, removed = _apt(text)
    removed |= {line.strip() for line in text.splitlines()}
    rows = ([cell.strip() for cell in line.split("|")] for line in text.splitlines())
    removed |= {row[2] for row in rows if len(row) > 4}
    return [name for name in names if name in removed]


def _apt(text: str) -> tuple[set[str], set[str]]:
    installed = re.findall(r"^Inst ([^\s:]+)", text, re.MULTILINE)
    removed = re.findall(r"^(?:Remv|Purg) ([^\s:]+)", text, re.MULTILINE)
    return set(installed), set(removed)


def _rpm(text: str) -> tuple[set[str], set[str]]:
    name = r"(\S+?)-(?:\d+:)?[^-\s]+-[^-\s]+$"
    installed = set(re.findall(rf"^Installed: {name}", text, re.MULTILINE))
    removed = set(re.findall(rf"^Removed: {name}", text, re.MULTILINE))
    for group, solvables in re.findall(r"<(to-[\w-]+)[^>]*>(.*?)</\1>", text, re.DOTALL):
        names = set(re.findall(r'<solvable [^>]*\bname="([^"]+)"', solvables))
        if group == "to-remove":
            removed |= names
        else:
            installed |= names
    return installed, removed
