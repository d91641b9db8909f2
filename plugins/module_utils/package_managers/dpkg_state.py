# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read dpkg's database. Nothing is changed."""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError

INSTALLED, CONFIG_FILES = "installed", "config-files"
_STATUS = "/var/lib/dpkg/status"
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
