# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read attributes of sysfs. An attribute that the kernel refuses to read is None, with the reason beside it.

Nothing here writes: in sysfs a write can reset or repartition a device. Every content is untrusted, because firmware,
boards and hypervisors choose it.
"""

from __future__ import annotations

import errno
import os
import re
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import untrusted_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids

MOST_BYTES = 1 << 20
_NUMBER = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_CAUSES = {
    errno.EPERM: "the kernel does not permit it (EPERM)",
    errno.EACCES: "no permission (EACCES). Set become: true",
    errno.EINVAL: "the device does not support it (EINVAL)",
    errno.ENODATA: "the device has no data (ENODATA)",
    errno.EOPNOTSUPP: "the device does not support it (EOPNOTSUPP)",
    errno.ENODEV: "the device does not respond (ENODEV)",
    errno.EIO: "the device does not respond (EIO)",
    errno.EBUSY: "the device is busy (EBUSY)",
}


class SysfsReading(NamedTuple):
    """The text of an attribute without white space at its ends, or why it has none. A missing one has neither."""

    text: str | None = None
    refusal: str | None = None


class SysfsTree:
    """The sysfs and procfs of a host, below `root`."""

    def __init__(self, root: str = "/") -> None:
        self.root = root

    def path(self, path: str) -> str:
        return os.path.join(self.root, path.lstrip("/"))

    def read_bytes(self, path: str, limit: int = MOST_BYTES) -> bytes:
        """Return the first bytes of a file. Raises OSError."""
        # Without O_NONBLOCK, a named pipe in the place of an attribute would block for ever.
        handle = os.open(self.path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            parts, size = [], 0
            while size < limit:
                part = os.read(handle, limit - size)
                if not part:
                    break
                parts.append(part)
                size += len(part)
            return b"".join(parts)
        finally:
            os.close(handle)

    def read(self, path: str) -> SysfsReading:
        try:
            content = self.read_bytes(path)
        except (FileNotFoundError, NotADirectoryError):
            return SysfsReading()
        except OSError as error:
            return SysfsReading(refusal=cause(error))
        return SysfsReading(text=content.decode("utf-8", "surrogateescape").strip())

    def names(self, path: str, pattern: str) -> list[str]:
        """Return the sorted names in a directory that match a pattern as a whole."""
        try:
            found = os.listdir(self.path(path))
        except OSError:
            return []
        return sorted((name for name in found if re.fullmatch(pattern, name, re.ASCII)), key=natural)

    def exists(self, path: str) -> bool:
        return os.path.lexists(self.path(path))

    def gid(self, path: str) -> int | None:
        """Return the group of a device node, or None if the node does not exist."""
        try:
            return os.stat(self.path(path)).st_gid
        except OSError:
            return None

    def has_module(self, kernel: str, name: str) -> bool:
        """Return whether a kernel module is installed for a kernel."""
        return accelerator_pci_ids.has_module(self.root, kernel, name)


class SysfsAttributes:
    """The attributes of one device. `unread` collects, by key of the schema, why a value could not be read."""

    def __init__(self, tree: SysfsTree, directory: str) -> None:
        self.tree = tree
        self.directory = directory
        self.unread: dict[str, str] = {}

    def refuse(self, key: str, reason: str) -> None:
        self.unread.setdefault(key, reason)

    def raw(self, key: str, name: str) -> str | None:
        """Return the text of an attribute, which is not safe to show."""
        reading = self.tree.read(f"{self.directory}/{name}")
        if reading.refusal:
            self.refuse(key, f"{name}: {reading.refusal}")
        return reading.text or None

    def text(self, key: str, name: str) -> str | None:
        """Return the text of an attribute on one line, without characters that cannot be printed."""
        raw = self.raw(key, name)
        return None if raw is None else untrusted_text.shown(raw)

    def matching(self, key: str, name: str, pattern: str) -> str | None:
        """Return the text of an attribute if it matches a pattern as a whole."""
        raw = self.raw(key, name)
        if raw is None or re.fullmatch(pattern, raw, re.ASCII):
            return raw
        self.refuse(key, f"{name}: unexpected content {untrusted_text.shown(raw)}")
        return None

    def number(self, key: str, name: str, least: int = 0, most: int = (1 << 63) - 1) -> int | None:
        """Return the decimal number in an attribute. A number out of bounds is not a measurement."""
        raw = self.raw(key, name)
        if raw is None:
            return None
        value = int(raw) if _NUMBER.fullmatch(raw) else None
        if value is not None and least <= value <= most:
            return value
        self.refuse(key, f"{name}: unexpected content {untrusted_text.shown(raw)}")
        return None


def properties(text: str) -> dict[str, int]:
    """Return the numbers in lines `name value`, as KFD writes them. Other lines are ignored."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        match = re.fullmatch(r"([a-z][a-z0-9_]{0,63}) ([0-9]{1,20})", line.strip(), re.ASCII)
        if match:
            found.setdefault(match[1], int(match[2]))
    return found


def cause(error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0, "unknown error")
    return _CAUSES.get(error.errno or 0, f"{error.strerror} ({name})")


def natural(name: str) -> tuple[str, int]:
    """Return the key that sorts names by the number at their ends."""
    digits = re.search(r"[0-9]{1,18}\Z", name)
    return (name[: digits.start()], int(digits[0])) if digits else (name, -1)
