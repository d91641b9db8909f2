# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel that the next boot takes: what the boot loader was told, else the newest that can be booted."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import (
    exists,
    listing,
    natural_key,
    read_text,
    shell_assignments,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import grub_menu

_IMAGES = (
    "boot/vmlinuz-{0}",
    "boot/vmlinux-{0}",
    "boot/Image-{0}",
    "lib/modules/{0}/vmlinuz",
    "usr/lib/modules/{0}/vmlinuz",
)
_GRUB_MENUS = ("/boot/grub2/grub.cfg", "/boot/grub/grub.cfg")
_LOADER_ENTRIES = "/boot/loader/entries"
_GRUB_ENVIRONMENTS = ("/boot/grub2/grubenv", "/boot/grub/grubenv")


def bootable(root: str) -> list[str]:
    """Return the releases that have both an image and modules."""
    return [name for name in listing(root, "/lib/modules") if any(exists(root, path.format(name)) for path in _IMAGES)]


def next_boot(root: str, releases: list[str]) -> str | None:
    """Return the one of the bootable releases that the boot loader takes next; nothing where there is none."""
    if not releases:
        return None
    environment: dict[str, str] = {}
    for path in _GRUB_ENVIRONMENTS:
        environment = shell_assignments(read_text(root, path))
        if environment:
            break
    settings = _grub_settings(root)
    default = settings.get("GRUB_DEFAULT", "0")
    asked = [environment.get("next_entry", "")]
    if exists(root, _LOADER_ENTRIES) or default == "saved":
        asked.append(environment.get("saved_entry", ""))
    if default not in ("0", "saved"):
        asked.append(default)
    menu = next((grub_menu.parse(text) for text in (read_text(root, path) for path in _GRUB_MENUS) if text), [])
    # The first entry is what GRUB takes where nothing else is asked for, or cannot be found.
    for entry in [*asked, "0"]:
        release = _release_of(root, entry, releases) or _release_in_menu(menu, entry, releases)
        if release:
            return release
    return max(releases, key=natural_key)


def _grub_settings(root: str) -> dict[str, str]:
    settings = shell_assignments(read_text(root, "/etc/default/grub"))
    for name in listing(root, "/etc/default/grub.d"):
        if name.endswith(".cfg"):
            settings.update(shell_assignments(read_text(root, f"/etc/default/grub.d/{name}")))
    return settings


def _release_of(root: str, entry: str, releases: list[str]) -> str | None:
    if not entry:
        return None
    if entry.isdigit() and exists(root, _LOADER_ENTRIES):
        return _numbered_loader_entry(root, int(entry), releases)
    loader = _fields(read_text(root, f"{_LOADER_ENTRIES}/{entry}.conf"))
    if loader.get("version") in releases:
        return loader["version"]
    named = [release for release in releases if re.search(rf"(?<![\w.]){re.escape(release)}(?![\w.])", entry)]
    return max(named, key=len) if named else None


def _numbered_loader_entry(root: str, number: int, releases: list[str]) -> str | None:
    """Count entries of the boot loader specification as GRUB shows them, the newest version first."""
    files = [name for name in listing(root, _LOADER_ENTRIES) if name.endswith(".conf")]
    versions = [_fields(read_text(root, f"{_LOADER_ENTRIES}/{name}")).get("version", "") for name in files]
    shown = sorted(versions, key=natural_key, reverse=True)
    return shown[number] if number < len(shown) and shown[number] in releases else None


def _release_in_menu(menu: list[dict], entry: str, releases: list[str]) -> str | None:
    kernel = grub_menu.kernel_of(menu, entry) if entry else None
    return next((release for release in releases if kernel and kernel.endswith(f"-{release}")), None)


def _fields(text: str | None) -> dict[str, str]:
    """Read the `name value` lines of a boot loader entry."""
    pairs = (line.split(None, 1) for line in (text or "").splitlines() if not line.startswith("#"))
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}
