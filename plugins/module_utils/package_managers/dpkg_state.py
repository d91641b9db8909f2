# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read dpkg's database and the locks of dpkg and apt. Nothing is changed."""

from __future__ import annotations

import fcntl
import os
import re
import struct
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError

# A frontend such as apt holds the first lock during its whole run, and dpkg holds the second. apt holds the others
# while it downloads.
LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)
INSTALLED, CONFIG_FILES = "installed", "config-files"
_STATUS = "/var/lib/dpkg/status"
_FLOCK = "hhqqi4x"
_FIELD = re.compile(r"^(Package|Status|Version|Architecture): (.*)", re.MULTILINE)


class Package(NamedTuple):
    """A package in dpkg's database. `name` has an architecture if it is a foreign one."""

    name: str
    version: str
    # install, hold, deinstall, purge or unknown.
    want: str
    # The package is damaged and must be installed again.
    reinstall: bool
    state: str

    @property
    def is_finished(self) -> bool:
        """Whether dpkg has completed its last action on the package."""
        return self.state in (INSTALLED, CONFIG_FILES, "not-installed") and not self.reinstall

    @property
    def is_damaged(self) -> bool:
        """Whether files of the package are missing. A hold on a package whose removal was interrupted hides it."""
        return self.reinstall or self.state == "half-installed"

    @property
    def is_leaving(self) -> bool:
        """Whether the package is to be removed."""
        return self.want in ("deinstall", "purge")


class Holder(NamedTuple):
    """The process that holds a lock. `pid` is 0 if it runs in another container."""

    path: str
    pid: int
    process: str

    def __str__(self) -> str:
        """Describe the process and the lock."""
        process = f"process {self.pid} ({self.process})" if self.pid else "a process outside this container"
        return f"{process} holds {self.path}"


def holder(root: str) -> Holder | None:
    """Return a process that holds a lock of dpkg or apt. This does not take a lock."""
    for path in LOCKS:
        wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        try:
            with open(_below(root, path), "rb") as file:
                found = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, wanted))
        except OSError:
            # The lock file is created with the first lock.
            continue
        if found[0] != fcntl.F_UNLCK:
            return Holder(path, found[4], (read_text("/", f"/proc/{found[4]}/comm") or "unknown name").strip())
    return None


def has_journal(root: str) -> bool:
    """Return whether dpkg was killed before it wrote its changes into the database."""
    return any(name.isdigit() for name in listing(root, "/var/lib/dpkg/updates"))


def read(root: str) -> list[Package]:
    """Return the packages in dpkg's database. Raise PackageManagerError if the database is damaged."""
    text = read_text(root, _STATUS)
    problem = "the file is missing or cannot be read" if text is None else _problem(text)
    if problem:
        raise PackageManagerError(
            f"dpkg's database {_STATUS} is damaged: {problem}. Nothing was changed. Restore it from {_STATUS}-old or "
            "from /var/backups/dpkg.status.0, and run again."
        )
    stanzas = [dict(_FIELD.findall(stanza)) for stanza in (text or "").split("\n\n")]
    native = next((fields["Architecture"] for fields in stanzas if fields.get("Package") == "dpkg"), "")
    return [_package(fields, native) for fields in stanzas if fields]


def _problem(text: str) -> str:
    if not text.strip():
        return "the file is empty"
    if "\0" in text:
        return "the file contains null bytes"
    if not text.endswith("\n"):
        return "the end of the file is missing"
    for stanza in text.split("\n\n"):
        fields = dict(_FIELD.findall(stanza))
        if stanza.strip() and not ("Package" in fields and len(fields.get("Status", "").split()) == 3):
            return f"the entry {fields.get('Package') or stanza.strip().splitlines()[0]!r} has no name or no status"
    return "" if re.search(r"^Package: dpkg$", text, re.MULTILINE) else "the entry of dpkg is missing"


def _package(fields: dict[str, str], native: str) -> Package:
    want, flag, state = fields["Status"].split()
    arch = fields.get("Architecture", native)
    name = fields["Package"] if arch in (native, "all") else f"{fields['Package']}:{arch}"
    return Package(name, fields.get("Version", ""), want, flag == "reinstreq", state)


def select(packages: list[Package], requested: str) -> list[Package]:
    """Return the packages that a name selects. Without an architecture, native packages come first."""
    name, _colon, arch = requested.partition(":")
    found = [package for package in packages if package.name.partition(":")[0] == name]
    native = [package for package in found if package.name == name]
    if not arch:
        return native or found
    return found if arch == "any" else [p for p in found if p.name == requested] or native


def _below(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))
