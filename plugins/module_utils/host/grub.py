# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What GRUB boots next, from the files that GRUB itself reads: grub.cfg, its environment, the boot loader entries.

/etc/default/grub is the source of grub.cfg. A change to it has no effect before grub.cfg is generated again, so it
counts only where grub.cfg says nothing.
"""

from __future__ import annotations

import os
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.name_value_lines import shell_assignments
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import whole_number
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import boot_loader_entries

ENTRIES = "/boot/loader/entries"
_FIRMWARE = "/boot/efi/EFI"
_MENUS = ("/boot/grub2/grub.cfg", "/boot/grub/grub.cfg")
_ENVIRONMENTS = ("/boot/grub2/grubenv", "/boot/grub/grubenv")
_ENTRY = re.compile(r"^\s*(menuentry|submenu)\s+(?:'([^']*)'|\"([^\"]*)\")(.*)\{\s*$")
_ID = re.compile(r"(?:\$menuentry_id_option|--id)[ =]+(?:'([^']*)'|\"([^\"]*)\"|(\S+))")
_KERNEL = re.compile(r"^\s*linux(?:efi|16)?\s+(\S+)")
_DEFAULT = re.compile(r"^\s*set\s+default=(?:'([^']*)'|\"([^\"]*)\"|(\S*))\s*$")
_SAVED = re.compile(r"\$\{?saved_entry\}?")
_NEXT = re.compile(r"\$\{?next_entry\}?")


class Grub:
    """The configuration of GRUB on a host."""

    def __init__(self, root: str) -> None:
        directories = [f"{_FIRMWARE}/{name}" for name in listing(root, _FIRMWARE)]
        texts = (read_text(root, path) for path in (*_MENUS, *(f"{name}/grub.cfg" for name in directories)))
        # On UEFI, a short file may load the file in /boot.
        self.text = next((text for text in texts if text and ("menuentry" in text or "blscfg" in text)), "")
        environments = (*_ENVIRONMENTS, *(f"{name}/grubenv" for name in directories))
        found = (shell_assignments(read_text(root, path)) for path in environments)
        self.environment: dict[str, str] = next(filter(None, found), {})
        self.settings = _settings(root)
        entries = boot_loader_entries.read(root, ENTRIES)
        # Without grub.cfg, only the directory shows that GRUB loads entries.
        loads_entries = bool(re.search(r"^\s*blscfg\b", self.text, re.MULTILINE))
        self.uses_entries = loads_entries if self.text else bool(listing(root, ENTRIES))
        listed = boot_loader_entries.in_order_of_grub(entries) if self.uses_entries else []
        loaded = [{**entry, "title": entry.get("title", ""), "entries": [], "kernel": None} for entry in listed]
        self.menu: list[dict] = _menu(self.text, loaded) if self.text else loaded

    @property
    def exists(self) -> bool:
        """Return whether the host has a configuration of GRUB."""
        return bool(self.text or self.menu or self.environment or self.settings)

    def defaults(self) -> list[str]:
        """Return the entries that GRUB tries, the first one first. GRUB boots entry 0 if it does not find an entry."""
        once = self.environment.get("next_entry", "")
        return list(filter(None, [once, self._default()]))

    def obstacle(self) -> str | None:
        """Return why the default cannot be predicted, if GRUB's scripts decide while they run."""
        if self.environment.get("boot_counter") and self.environment.get("boot_success") == "0":
            return "GRUB counts failed boots (boot_counter in its environment) and may boot another entry"
        if "$" in self._default():
            return f"grub.cfg computes the default entry from {self._default()}"
        return None

    def _default(self) -> str:
        saved = self.environment.get("saved_entry", "")
        values = _values(self.text)
        if values:
            return _SAVED.sub(lambda _match: saved, values[-1])
        default = self.settings.get("GRUB_DEFAULT", "saved" if self.uses_entries else "0")
        if default == "saved" or (self.uses_entries and saved and default == "0"):
            return saved
        return default

    def selected(self, path: str) -> dict | None:
        """Return the entry at `path`: numbers, titles or IDs joined by `>`, such as 0 or 1>2. Names match exactly."""
        entries, found = self.menu, None
        for step in path.split(">"):
            if step.isdecimal():
                found = entries[whole_number(step)] if whole_number(step) < len(entries) else None
            else:
                found = next((entry for entry in entries if step in (entry["title"], entry["id"])), None)
            if found is None:
                return None
            entries = found["entries"]
        # The default of a submenu is its first entry.
        while found is not None and found["entries"]:
            found = found["entries"][0]
        return found


def _settings(root: str) -> dict[str, str]:
    settings = shell_assignments(read_text(root, "/etc/default/grub"))
    for name in listing(root, "/etc/default/grub.d"):
        if name.endswith(".cfg"):
            settings.update(shell_assignments(read_text(root, f"/etc/default/grub.d/{name}")))
    return settings


def _values(text: str) -> list[str]:
    """Return the values of `default` that grub.cfg sets, without those for one boot and for failed boots."""
    values, depth, skipped = [], 0, None
    for line in text.splitlines():
        word = line.split(None, 1)[0] if line.strip() else ""
        if word == "if":
            depth += 1
            skipped = depth if skipped is None and "boot_counter" in line else skipped
        elif word == "fi":
            skipped = None if skipped == depth else skipped
            depth -= 1
        match = _DEFAULT.match(line)
        if match and skipped is None:
            value = next((group for group in match.groups() if group is not None), "")
            values += [] if _NEXT.search(value) else [value]
    return values


def _menu(text: str, loaded: list[dict]) -> list[dict]:
    """Return the entries of grub.cfg in order: `title`, `id`, `kernel` (its path) and `entries` of a submenu.

    `loaded`: the boot loader entries, which command blscfg inserts.
    """
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
        elif parent is None and line.split(None, 1)[:1] == ["blscfg"]:
            top += [entry for entry in loaded if entry not in top]
        elif parent is not None and _KERNEL.match(line):
            parent["kernel"] = _KERNEL.match(line).group(1)  # type: ignore[union-attr]
    return top


def kernel_names(root: str, entry: dict) -> list[str]:
    """Return the texts that can name the kernel of an entry. A symlink to the image counts as its target."""
    if entry["kernel"] is None:
        return boot_loader_entries.releases(entry)
    name = os.path.basename(entry["kernel"])
    targets = []
    for directory in ("boot", ""):
        path = os.path.join(root, directory, name)
        if os.path.islink(path):
            targets.append(os.path.basename(os.readlink(path)))
    return [*targets, name]
