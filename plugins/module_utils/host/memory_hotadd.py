# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The udev rule by which some distributions put memory online as soon as it is there.

The memory of a GPU that shares the CPU's address space comes as a NUMA node of the system's. The driver puts it online
itself, in a way that lets go of it again; a rule that is faster takes that from it. Anywhere else the rule is about the
memory of virtual machines, and no business of the driver's.
"""

from __future__ import annotations

import re

_DISTRIBUTION, _OURS = "/usr/lib/udev/rules.d", "/etc/udev/rules.d"
# Of Ubuntu, Enterprise Linux and its kin, SUSE. A file of the same name in /etc stands for the distribution's.
_NAMES = ("40-vm-hotadd.rules", "40-redhat.rules", "80-hotplug-cpu-mem.rules")
# All that has to be looked at.
FILES = tuple(f"{directory}/{name}" for name in _NAMES for directory in (_DISTRIBUTION, _OURS))
# GPUs of Grace Hopper and of Grace Blackwell.
_WITH_THE_CPUS = ("0x2342", "0x2345", "0x2348", "0x2941", "0x31c2")
_MARK = "# Written by Ansible role gpufleet.hosts.nvidia_driver"
# An assignment to a block's state, and no comparison. A rule goes on in the next line after a backslash.
_ONLINE = re.compile(r"(?m)^(?![ \t]*#)(?:[^\n]*\\\n)*?[^\n]*\bATTR\{state\}\s*=(?!=)(?:[^\n]*\\\n)*[^\n]*(?:\n|\Z)")
_WISH = "nvidia_driver_memory_hotadd_override"


def of_the_system(host: dict) -> bool:
    """Tell whether the memory of some GPU here is memory of the system's, too."""
    arch, ids = host["os"]["arch"], host["nvidia"]["device_ids"]
    # On POWER9 that is any GPU that NVIDIA's drivers for it serve.
    return arch == "ppc64le" or (arch == "aarch64" and any(device in _WITH_THE_CPUS for device in ids))


def wanted(host: dict, asked: bool) -> tuple[dict[str, str | None], list[str]]:
    """Return the files in /etc as they are to be, None where one of ours has to go, and why not what was asked for.

    A file there that is not ours is the user's own, and is not touched.
    """
    files: dict[str, str | None] = {}
    reasons = []
    matters = asked and of_the_system(host)
    if asked and not matters:
        reasons.append(
            f"{_WISH} is not carried out: no GPU here has memory that is a NUMA node of the system's (POWER9, Grace "
            "Hopper, Grace Blackwell), so the rule has nothing to do with the driver"
        )
    for name in _NAMES:
        path, original = f"{_OURS}/{name}", _content(host, f"{_DISTRIBUTION}/{name}")
        there = host["files"].get(path, {}).get("exists", False)
        text = override(name, original) if matters and original else None
        if text and there and not is_ours(host, path):
            reasons.append(f"{_WISH}: {path} is there and was not written by this role; it is left as it is")
        elif text or is_ours(host, path):
            files[path] = text
    if matters and not any(override(name, _content(host, f"{_DISTRIBUTION}/{name}")) for name in _NAMES):
        reasons.append(f"{_WISH}: nothing to do, no rule of the distribution's puts added memory online")
    return files, reasons


def ours(host: dict) -> list[str]:
    """Name the files in /etc that this role wrote."""
    return [path for path in FILES if is_ours(host, path)]


def is_ours(host: dict, path: str) -> bool:
    """Tell whether this role wrote a file."""
    return (_content(host, path) or "").startswith(_MARK)


def override(name: str, original: str | None) -> str | None:
    """Return the distribution's file without what puts memory online; nothing where it has no such rule."""
    rest = _ONLINE.sub("", original or "")
    if not original or rest == original:
        return None
    return (
        f"{_MARK}, which writes it anew:\n# {_DISTRIBUTION}/{name} without what puts added memory online. That of the "
        f"GPUs is the driver's.\n{rest}"
    )


def needs_reload(paths: list[str]) -> bool:
    """Tell whether udev has to read its rules again, once these files have changed."""
    return any(path in FILES for path in paths)


def _content(host: dict, path: str) -> str | None:
    return (host["files"].get(path) or {}).get("content")
