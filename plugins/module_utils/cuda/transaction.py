# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a package manager says that it would do, and what of that a CUDA toolkit must not bring about."""

from __future__ import annotations

import re

# Packages of the driver, by the names of NVIDIA's repository and of the distributions. What programs are compiled with
# (-dev) and what is for containers is none of it.
_DRIVER = re.compile(
    r"cuda-drivers(-.+)?"
    r"|libnvidia-(?!container).+(?<!-dev)"
    r"|nvidia-(tesla-)?(\d+-)?(alternative|compute|dkms|driver|fabric-?manager|firmware|gl|headless|imex|kernel|kmod|"
    r"legacy|modprobe|open|opencl|persistenced|smi|utils|video)(-.+)?(?<!-dev)"
    r"|(nvidia-)?kmod-nvidia.*|linux-(modules|objects|signatures)-nvidia-.*|dkms-nvidia|akmod-nvidia.*"
    r"|lib(nvidia-tesla-(\d+-)?)?cuda1|libcudadebugger1|libnvcuvid1|libnvoptix1|libnvsdm"
    r"|firmware-nvidia.*|xorg-x11-(drv-)?nvidia.*|xserver-xorg-video-nvidia.*|nv-prefer-signed-open-driver"
)


def is_of_the_driver(name: str) -> bool:
    """Tell whether a package is one of the NVIDIA driver's."""
    return _DRIVER.fullmatch(name) is not None


def intrusions(text: str) -> list[str]:
    """Name what a simulated installation would bring or change of the driver, or remove at all.

    `text`: of `apt-get --simulate`, the `results` of Ansible's module for dnf, one a line, or of `zypper --xmlout`.
    """
    comes, goes = _apt(text) if re.search(r"^(Inst|Remv|Purg) ", text, re.MULTILINE) else _rpm(text)
    return sorted({*(name for name in comes if is_of_the_driver(name)), *(goes - comes)})


def strangers(text: str, ours: list[str]) -> list[str]:
    """Name what a simulated removal would take along that is not ours."""
    _comes, goes = _apt(text)
    goes |= set(re.findall(r" is needed by \(installed\) (\S+?)-(?:\d+:)?[^-\s]+-[^-\s]+$", text, re.MULTILINE))
    return sorted(goes - set(ours))


def unneeded(text: str, names: list[str]) -> list[str]:
    """Pick those of the names that nothing needs.

    `text`: of `apt-get --simulate autoremove`, `dnf repoquery --unneeded` (one a line) or `zypper packages --unneeded`.
    """
    _comes, goes = _apt(text)
    goes |= {line.strip() for line in text.splitlines()}
    rows = ([cell.strip() for cell in line.split("|")] for line in text.splitlines())
    goes |= {row[2] for row in rows if len(row) > 4}
    return [name for name in names if name in goes]


def _apt(text: str) -> tuple[set[str], set[str]]:
    comes = re.findall(r"^Inst ([^\s:]+)", text, re.MULTILINE)
    goes = re.findall(r"^(?:Remv|Purg) ([^\s:]+)", text, re.MULTILINE)
    return set(comes), set(goes)


def _rpm(text: str) -> tuple[set[str], set[str]]:
    name = r"(\S+?)-(?:\d+:)?[^-\s]+-[^-\s]+$"
    comes = set(re.findall(rf"^Installed: {name}", text, re.MULTILINE))
    goes = set(re.findall(rf"^Removed: {name}", text, re.MULTILINE))
    for group, solvables in re.findall(r"<(to-[\w-]+)[^>]*>(.*?)</\1>", text, re.DOTALL):
        names = set(re.findall(r'<solvable [^>]*\bname="([^"]+)"', solvables))
        if group == "to-remove":
            goes |= names
        else:
            comes |= names
    return comes, goes
