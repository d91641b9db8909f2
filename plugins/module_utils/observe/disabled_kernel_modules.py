# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a kernel module from being loaded: lines of modprobe.d, and the kernel's command line."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text


def blacklisted_by(root: str, name: str) -> list[str]:
    """Return the files of modprobe that keep a module from being loaded for its hardware."""
    # modprobe ignores further words in the line.
    line = re.compile(rf"^\s*blacklist\s+{name.replace('_', '[-_]')}(?:\s.*)?$", re.MULTILINE)
    return [path for path in _modprobe_files(root) if line.search(read_text(root, path) or "")]


def _modprobe_files(root: str) -> list[str]:
    return [
        f"{directory}/{file}"
        for directory in ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d")
        for file in listing(root, directory)
        if file.endswith(".conf")
    ]


def otherwise_disabled_by(root: str, module: str) -> list[str]:
    """Return what else keeps a module from being loaded: commands of modprobe, and the kernel's command line."""
    name = module.replace("_", "[-_]")
    command = re.compile(rf"^\s*install\s+{name}\s+(?:/usr)?/bin/(?:true|false)\b", re.MULTILINE)
    found = [path for path in _modprobe_files(root) if command.search(read_text(root, path) or "")]
    words = (read_text(root, "/proc/cmdline") or "").split()
    lists = [word.partition("=")[2] for word in words if re.match(r"(?:modprobe\.|module_)blacklist=", word)]
    names = {one.replace("-", "_") for text in lists for one in text.split(",")}
    return [*found, *(["/proc/cmdline"] if module in names else [])]
