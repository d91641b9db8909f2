# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Overrides the udev rule of some distributions that brings hot-added memory online.

If a GPU shares the CPU's address space, its memory appears as a NUMA node of the system. The driver brings this memory
online itself, in a zone from which it can remove it again. The distribution's rule would bring it online first. On
other hosts, the rule is for the memory of virtual machines and does not affect the driver.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_group

# A file of the same name in /etc overrides the distribution's file.
_DISTRIBUTION, _OURS, _NAMES = "/usr/lib/udev/rules.d", owned.UDEV_RULES_DIRECTORY, owned.UDEV_RULES
# The files that this module needs to know.
FILES = tuple(f"{directory}/{name}" for name in _NAMES for directory in (_DISTRIBUTION, _OURS))
# Device IDs of the GPUs in Grace Hopper and Grace Blackwell.
_SHARED_ADDRESS_SPACE = ("0x2342", "0x2345", "0x2348", "0x2941", "0x31c2")
_MARK = "# Written by Ansible role gpufleet.hosts.nvidia_driver"
# A rule that assigns the state of a memory block (`=`, not `==`), including lines continued with a backslash.
_ONLINE = re.compile(r"(?m)^(?![ \t]*#)(?:[^\n]*\\\n)*?[^\n]*\bATTR\{state\}\s*=(?!=)(?:[^\n]*\\\n)*[^\n]*(?:\n|\Z)")
_SETTING = "nvidia_driver_memory_hotadd_override"


def has_system_memory(host: dict) -> bool:
    """Return whether the memory of a GPU on this host is also system memory."""
    arch, ids = host["os"]["arch"], nvidia_group(host)["device_ids"]
    # On POWER9, this applies to every supported GPU.
    return arch == "ppc64le" or (arch == "aarch64" and any(device in _SHARED_ADDRESS_SPACE for device in ids))


def wanted(host: dict, requested: bool) -> tuple[dict[str, str | None], list[str]]:
    """Return the content of the files in /etc (None to remove one), and the reasons why the setting has no effect.

    Files that this role did not write belong to the user and stay unchanged.
    """
    files: dict[str, str | None] = {}
    reasons = []
    matters = requested and has_system_memory(host)
    if requested and not matters:
        reasons.append(
            f"{_SETTING} is ignored: no GPU of this host has memory that is a NUMA node of the system (POWER9, Grace "
            "Hopper, Grace Blackwell), so the udev rule does not affect the driver"
        )
    for name in _NAMES:
        path, original = f"{_OURS}/{name}", observed_files.content(host, f"{_DISTRIBUTION}/{name}")
        exists = host["files"].get(path, {}).get("exists", False)
        text = override(name, original) if matters and original else None
        if text and exists and not is_own(host, path):
            reasons.append(f"{_SETTING} is ignored: this role did not write {path} and does not change it")
        elif text or is_own(host, path):
            files[path] = text
    if matters and not any(override(name, observed_files.content(host, f"{_DISTRIBUTION}/{name}")) for name in _NAMES):
        reasons.append(f"{_SETTING} is ignored: the distribution has no rule that brings added memory online")
    return files, reasons


def written_files(host: dict) -> list[str]:
    """Name the files in /etc that this role wrote."""
    return [path for path in FILES if is_own(host, path)]


def is_own(host: dict, path: str) -> bool:
    """Return whether this role wrote a file."""
    return (observed_files.content(host, path) or "").startswith(_MARK)


def override(name: str, original: str | None) -> str | None:
    """Return the distribution's file without the rules that bring memory online, or None if it has no such rule."""
    rest = _ONLINE.sub("", original or "")
    if not original or rest == original:
        return None
    return (
        f"{_MARK}, which overwrites changes.\n# {_DISTRIBUTION}/{name} without the rules that bring added memory "
        f"online. The driver brings the memory of GPUs online.\n{rest}"
    )


def needs_reload(paths: list[str]) -> bool:
    """Return whether udev must reload its rules after a change to these files."""
    return any(path in FILES for path in paths)
