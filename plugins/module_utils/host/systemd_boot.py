# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd-boot boots next: the answer of bootctl, else the files and UEFI variables that systemd-boot reads."""

from __future__ import annotations

import fnmatch
import json

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists, read_bytes, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import boot_loader_entries

_DIRECTORIES = ("/boot", "/efi", "/boot/efi")
_VARIABLE = "/sys/firmware/efi/efivars/{0}-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
_PROGRAMS = ("/usr/bin/bootctl", "/bin/bootctl")


def is_used(root: str, has_grub: bool) -> bool:
    """Return whether systemd-boot started the host. It names itself in a variable, other boot loaders may, too."""
    loader = _variable(root, "LoaderInfo")
    if loader:
        return loader.startswith("systemd-boot")
    return not has_grub and any(exists(root, f"{name}/loader/loader.conf") for name in _DIRECTORIES)


def default_of_bootctl(root: str, run) -> dict | None:
    """Return the entry that bootctl calls the default, or None without an answer."""
    program = next((path for path in _PROGRAMS if exists(root, path)), None)
    if program is None or run is None:
        return None
    rc, out, _err = run([program, "list", "--json=short", "--no-pager"])
    try:
        entries = json.loads(out) if rc == 0 else None
    except ValueError:
        return None
    if not isinstance(entries, list):
        return None
    return next((entry for entry in entries if isinstance(entry, dict) and entry.get("isDefault")), None)


def default(root: str) -> dict | None:
    """Return the entry that systemd-boot boots by its files and variables."""
    entries = [entry for name in _DIRECTORIES for entry in boot_loader_entries.read(root, f"{name}/loader/entries")]
    entries = boot_loader_entries.in_order_of_systemd_boot(entries)
    for pattern in (_variable(root, "LoaderEntryOneShot"), _variable(root, "LoaderEntryDefault"), _configured(root)):
        wanted = _variable(root, "LoaderEntryLastBooted") if pattern == "@saved" else pattern
        if wanted:
            # The ID of an entry is its file name. Its attempts are counted in the name.
            found = (entry for entry in entries if _matches(entry["id"], wanted))
            entry = next(found, None)
            if entry is not None:
                return entry
    return next(iter(entries), None)


def once(root: str) -> str | None:
    """Return the ID of the entry for the next boot only."""
    return _variable(root, "LoaderEntryOneShot")


def _matches(name: str, pattern: str) -> bool:
    names = {name, f"{name}.conf", f"{name.partition('+')[0]}.conf"}
    return any(fnmatch.fnmatchcase(candidate.lower(), pattern.lower()) for candidate in names)


def _configured(root: str) -> str | None:
    for directory in _DIRECTORIES:
        for line in (read_text(root, f"{directory}/loader/loader.conf") or "").splitlines():
            pair = line.split(None, 1)
            if len(pair) == 2 and pair[0] == "default":
                return pair[1].strip()
    return None


def _variable(root: str, name: str) -> str | None:
    """Return the text of a UEFI variable: four bytes of attributes, then UTF-16 that ends with a zero."""
    content = read_bytes(root, _VARIABLE.format(name), 4096)
    return content[4:].decode("utf-16-le", "replace").rstrip("\0") or None if content else None
