# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether module nvidia_uvm is loaded when a GPU appears, and the udev rule for hosts where no package does it.

At boot, systemd-modules-load can run before the GPU exists, for example on Azure. The GPU's own event later loads only
module nvidia, and CUDA programs fail.
"""

from __future__ import annotations

import os
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text

MODULE = "nvidia_uvm"
# A file overrides files of the same name in later directories.
_DIRECTORIES = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
_RULE = re.compile(
    r'\bRUN(?:\{\w+\})?\s*\+?=\s*"[^"]*(?:modprobe\b(?!\s+-r)[^"]*nvidia[-_]uvm|kmod load[^"]*nvidia[-_]uvm|'
    r'nvidia-modprobe\b[^"]*\s-\w*u)'
)
_REMOVES = re.compile(r'\bACTION\s*==\s*"(?:remove|unbind)"')
_MODPROBE = re.compile(r"^\s*(?:softdep\s+nvidia\S*\s.*\bpost:.*|install\s+nvidia\s.*)\bnvidia[-_]uvm\b")
TEXT = (
    "# Written by Ansible role gpufleet.hosts.nvidia_driver, which overwrites changes.\n"
    "# A GPU can appear after systemd-modules-load has finished. CUDA needs this module, too.\n"
    'ACTION=="add|bind", SUBSYSTEM=="pci", ATTR{vendor}=="0x10de", DRIVER=="nvidia", '
    'RUN{builtin}+="kmod load nvidia-uvm"\n'
)


def loaders(root: str) -> list[str]:
    """Return the files, except this collection's, that load the module when the driver takes a GPU."""
    rules = [path for path in _effective(root, "udev/rules.d", ".rules") if _loads(root, path, _is_loading_rule)]
    options = [path for path in _effective(root, "modprobe.d", ".conf") if _loads(root, path, _MODPROBE.search)]
    return [path for path in [*rules, *options] if path != owned.UVM_RULE]


def _effective(root: str, name: str, suffix: str) -> list[str]:
    """Return the files that udev or modprobe reads, without those that another file overrides."""
    found: dict[str, str] = {}
    for directory in _DIRECTORIES:
        for file in listing(root, f"{directory}/{name}"):
            if file.endswith(suffix):
                found.setdefault(file, f"{directory}/{name}/{file}")
    return sorted(found.values())


def _loads(root: str, path: str, test) -> bool:
    # Most of the rules come from systemd and other packages.
    if path.startswith(("/usr/lib/udev/", "/lib/udev/")) and "nvidia" not in os.path.basename(path):
        return False
    text = re.sub(r"\\\n", " ", read_text(root, path) or "")
    return any(test(line) for line in text.splitlines() if not line.lstrip().startswith("#"))


def _is_loading_rule(line: str) -> bool:
    return bool(_RULE.search(line)) and not _REMOVES.search(line)


def is_missing(host: dict) -> bool:
    """Return whether the driver is loaded without the module that CUDA needs."""
    loaded = host.get("modules_loaded", [])
    return "nvidia" in loaded and MODULE not in loaded
