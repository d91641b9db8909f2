# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a package manager and DKMS do, from what they print. Only names and versions of known lines are used."""

from __future__ import annotations

import re

_NAME = r"([A-Za-z0-9][\w.+~-]*)"
_KERNEL = r"(\d[\w.+~-]*)"
_VERBS = {
    "unpacking": "unpacking",
    "setting up": "configuring",
    "removing": "removing",
    "erasing": "removing",
    "purging configuration files for": "purging",
    "processing triggers for": "processing triggers of",
    "installing": "installing",
    "upgrading": "upgrading",
    "running scriptlet": "running the scripts of",
}
# dpkg, then dnf and zypper.
_PACKAGES = (
    re.compile(
        rf"^(Unpacking|Setting up|Removing|Purging configuration files for|Processing triggers for) {_NAME}(?::\w+)?"
        r"(?: \([^()\s]+\))?[ .]"
    ),
    re.compile(rf"^ *(?:\( *\d+/\d+\) )?(Installing|Upgrading|Removing|Erasing|Running scriptlet) *: {_NAME}"),
)
# DKMS names the module when it adds its sources, and the kernel when it builds.
_SOURCES = re.compile(rf"^Loading new {_NAME} DKMS files")
_AUTOMATIC = re.compile(rf"^Autoinstall of module {_NAME}/{_NAME} for kernel {_KERNEL}")
_BUILD = re.compile(rf"^Building (?:initial module )?(?:{_NAME}/{_NAME} )?for {_KERNEL}")
_INITRAMFS = re.compile(r"^update-initramfs: Generating \S*/initrd\.img-" + _NAME)
# A line that is longer is no line of these programs.
_LONGEST = 4096


class ProgressReader:
    """Read the output of a package manager in pieces. `text` says what it does, as in "configuring nvidia-open"."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._rest = b""
        self._module = ""

    def feed(self, data: bytes) -> bool:
        """Read a piece of output. Return whether `text` has changed."""
        before = self.text
        *lines, rest = re.split(rb"[\r\n]", self._rest + data)
        self._rest = rest[:_LONGEST]
        for line in lines:
            self.text = self._describe(line.decode("utf-8", "replace")) or self.text
        return self.text != before

    def _describe(self, line: str) -> str | None:
        for pattern in _PACKAGES:
            match = pattern.match(line)
            if match:
                return f"{_VERBS[match[1].lower()]} {match[2]}"
        match = _SOURCES.match(line)
        if match:
            self._module = re.sub(r"-(?=\d[^-]*$)", " ", match[1])
            return f"adding the sources of {self._module}"
        match = _AUTOMATIC.match(line)
        if match:
            return f"building {match[1]} {match[2]} for kernel {match[3]}"
        match = _BUILD.match(line)
        if match:
            module = f"{match[1]} {match[2]}" if match[1] else self._module or "kernel modules"
            return f"building {module} for kernel {match[3]}"
        match = _INITRAMFS.match(line)
        return f"writing the initramfs of kernel {match[1]}" if match else None
