# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel that boots next: the boot loader's default, or the newest bootable kernel."""

from __future__ import annotations

import os
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.assignments import shell_assignments
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import exists, listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key, whole_number

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
_ENTRY = re.compile(r"^\s*(menuentry|submenu)\s+(?:'([^']*)'|\"([^\"]*)\")(.*)\{\s*$")
_ID = re.compile(r"(?:\$menuentry_id_option|--id)[ =]+(?:'([^']*)'|\"([^\"]*)\"|(\S+))")
_KERNEL = re.compile(r"^\s*linux(?:efi|16)?\s+(\S+)")


def bootable(root: str) -> list[str]:
    """Return the kernel releases that have an image and modules."""
    return [name for name in listing(root, "/lib/modules") if any(exists(root, path.format(name)) for path in _IMAGES)]


def next_boot(root: str, releases: list[str]) -> str | None:
    """Return the release that boots next, or None if `releases` is empty."""
    if not releases:
        return None
    environment: dict[str, str] = {}
    for path in _GRUB_ENVIRONMENTS:
        environment = shell_assignments(read_text(root, path))
        if environment:
            break
    settings = _grub_settings(root)
    default = settings.get("GRUB_DEFAULT", "0")
    entries = [environment.get("next_entry", "")]
    if exists(root, _LOADER_ENTRIES) or default == "saved":
        entries.append(environment.get("saved_entry", ""))
    if default not in ("0", "saved"):
        entries.append(default)
    menu = next((_grub_menu(text) for text in (read_text(root, path) for path in _GRUB_MENUS) if text), [])
    # GRUB boots the first entry by default, or if it does not find the configured one.
    for entry in [*entries, "0"]:
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
    if entry.isdecimal() and exists(root, _LOADER_ENTRIES):
        return _numbered_loader_entry(root, whole_number(entry), releases)
    loader = _fields(read_text(root, f"{_LOADER_ENTRIES}/{entry}.conf"))
    if loader.get("version") in releases:
        return loader["version"]
    named = [release for release in releases if re.search(rf"(?<![\w.]){re.escape(release)}(?![\w.])", entry)]
    return max(named, key=len) if named else None


def _numbered_loader_entry(root: str, number: int, releases: list[str]) -> str | None:
    """Return the release of a boot loader entry by its number. GRUB lists the newest version first."""
    files = [name for name in listing(root, _LOADER_ENTRIES) if name.endswith(".conf")]
    versions = [_fields(read_text(root, f"{_LOADER_ENTRIES}/{name}")).get("version", "") for name in files]
    listed = sorted(versions, key=natural_key, reverse=True)
    return listed[number] if number < len(listed) and listed[number] in releases else None


def _release_in_menu(menu: list[dict], entry: str, releases: list[str]) -> str | None:
    kernel = _menu_kernel(menu, entry) if entry else None
    return next((release for release in releases if kernel and kernel.endswith(f"-{release}")), None)


def _grub_menu(text: str) -> list[dict]:
    """Return the entries of grub.cfg in order: `title`, `id`, `kernel` (file name) and `entries` of a submenu."""
    top: list[dict] = []
    stack: list[dict | None] = []
    for line in text.splitlines():
        match = _ENTRY.match(line)
        parent = next((entry for entry in reversed(stack) if entry is not None), None)
        if match:
            identity = _ID.search(match.group(4))
            entry: dict = {
                "title": match.group(2) or match.group(3) or "",
                "id": next(filter(None, identity.groups()), None) if identity else None,
                "kernel": None,
                "entries": [],
            }
            (parent["entries"] if parent else top).append(entry)
            stack.append(entry)
        elif line.rstrip().endswith("{"):
            stack.append(None)  # a function
        elif line.strip() == "}" and stack:
            stack.pop()
        elif parent is not None and _KERNEL.match(line):
            parent["kernel"] = os.path.basename(_KERNEL.match(line).group(1))  # type: ignore[union-attr]
    return top


def _menu_kernel(menu: list[dict], path: str) -> str | None:
    """Return the kernel file of the entry at `path`: numbers, titles or IDs joined by `>`, such as 0 or 1>2."""
    entries, selected = menu, None
    for step in path.split(">"):
        if step.isdecimal():
            selected = entries[whole_number(step)] if whole_number(step) < len(entries) else None
        else:
            selected = next((entry for entry in entries if step in (entry["title"], entry["id"])), None)
        if selected is None:
            return None
        entries = selected["entries"]
    # The default of a submenu is its first entry.
    while selected is not None and selected["entries"]:
        selected = selected["entries"][0]
    return selected["kernel"] if selected else None


def _fields(text: str | None) -> dict[str, str]:
    """Read the `name value` lines of a boot loader entry."""
    pairs = (line.split(None, 1) for line in (text or "").splitlines() if not line.startswith("#"))
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}
