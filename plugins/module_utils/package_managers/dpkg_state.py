# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read dpkg's database, and decide whether dpkg is busy or was interrupted. Nothing is changed."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import (
    ARCHITECTURE,
    PACKAGE,
    PACKAGE_VERSION,
    is_like,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import lock_holders

INSTALLED, CONFIG_FILES, NOT_INSTALLED = "installed", "config-files", "not-installed"
STATUS = "/var/lib/dpkg/status"
_JOURNAL = "/var/lib/dpkg/updates"
_FIELD = re.compile(r"^(Package|Status|Version|Architecture): (.*)", re.MULTILINE)


class DpkgPackage(NamedTuple):
    """A package in dpkg's database. `name` has an architecture if it is a foreign one."""

    name: str
    version: str
    # install, hold, deinstall, purge or unknown.
    want: str
    # The package is damaged and must be installed again.
    reinstall: bool
    state: str
    arch: str

    @property
    def bare(self) -> str:
        """The name without an architecture."""
        return self.name.partition(":")[0]

    @property
    def full_name(self) -> str:
        """The name with the architecture. To dpkg, a bare name is ambiguous if several architectures are installed."""
        return f"{self.bare}:{self.arch}"

    @property
    def is_usable(self) -> bool:
        """Whether the package is installed. Triggers of other packages may be pending."""
        return self.state in (INSTALLED, "triggers-pending", "triggers-awaited")

    @property
    def is_finished(self) -> bool:
        """Whether dpkg has completed its last action on the package."""
        return self.state in (INSTALLED, CONFIG_FILES, NOT_INSTALLED) and not self.reinstall

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
    return bool(_journal_names(root))


def journal(root: str) -> str:
    """Return the entries that dpkg has not written into its database yet. They replace the entries there."""
    return "".join(f"\n\n{read_text(root, f'{_JOURNAL}/{name}') or ''}" for name in _journal_names(root))


def _journal_names(root: str) -> list[str]:
    return [name for name in listing(root, _JOURNAL) if name.isdigit()]


def parse(text: str) -> list[DpkgPackage]:
    """Return the packages in the text of dpkg's database. The last entry of a package counts."""
    return [package for package, _stanza in _entries(text) if _is_argument(package)]


def _is_argument(package: DpkgPackage) -> bool:
    version_fits = not package.version or is_like(PACKAGE_VERSION, package.version)
    return is_like(PACKAGE, package.bare) and is_like(ARCHITECTURE, package.arch or "all") and version_fits


def repaired(text: str) -> str:
    """Return the text of the database as it will be if dpkg completes all its actions."""
    return "".join(_finished(package, stanza).strip("\n") + "\n\n" for package, stanza in _entries(text))


def _finished(package: DpkgPackage, stanza: str) -> str:
    if package.is_finished:
        return stanza
    state = CONFIG_FILES if package.is_leaving else INSTALLED
    return re.sub(r"^Status: .*", f"Status: {package.want} ok {state}", stanza, count=1, flags=re.MULTILINE)


def _entries(text: str) -> list[tuple[DpkgPackage, str]]:
    stanzas = [(dict(_FIELD.findall(stanza)), stanza) for stanza in text.split("\n\n")]
    native = next(
        (fields.get("Architecture", "") for fields, _stanza in stanzas if fields.get("Package") == "dpkg"), ""
    )
    packages = [(_package(fields, native), stanza) for fields, stanza in stanzas if "Package" in fields]
    return list({package.name: (package, stanza) for package, stanza in packages}.values())


def providers(text: str) -> dict[str, list[str]]:
    """Return the installed packages that provide each virtual name."""
    found: dict[str, list[str]] = {}
    for package, stanza in _entries(text):
        provides = (
            re.search(r"^Provides: (.*)", stanza, re.MULTILINE) if package.is_usable and _is_argument(package) else None
        )
        for entry in provides[1].split(",") if provides else ():
            # An entry is `name`, `name:architecture` or `name (= version)`.
            found.setdefault(re.split(r"[ :(]", entry.strip(), maxsplit=1)[0], []).append(package.bare)
    return found


def problem(text: str | None) -> str:
    """Return why a text is not a complete database, or an empty text."""
    if text is None:
        return "the file is missing or cannot be read"
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


def _package(fields: dict[str, str], native: str) -> DpkgPackage:
    want, flag, state = [*fields.get("Status", "").split(), "", "", ""][:3]
    arch = fields.get("Architecture", native)
    name = fields["Package"] if arch in (native, "all") else f"{fields['Package']}:{arch}"
    return DpkgPackage(name, fields.get("Version", ""), want, flag == "reinstreq", state, arch)


def select(packages: list[DpkgPackage], requested: str) -> list[DpkgPackage]:
    """Return the packages that a name selects. Without an architecture, it selects all architectures."""
    name, _colon, arch = requested.partition(":")
    found = [package for package in packages if package.bare == name]
    if arch in ("", "any"):
        return found
    return [p for p in found if p.arch == arch] or [p for p in found if p.name == name and p.arch == "all"]


def is_busy(root: str) -> bool:
    """Return whether a process holds one of dpkg's locks. This does not take a lock."""
    return any(lock_holders.owner(os.path.join(root, path.lstrip("/"))) is not None for path in lock_holders.DPKG)


def wait_until_free(root: str, seconds: float) -> None:
    """Wait until no process holds dpkg's locks, or the time is over."""
    lock_holders.wait(lambda: is_busy(root), seconds)


def is_interrupted(root: str) -> bool:
    """Return whether dpkg was killed: its journal remains, but no dpkg runs.

    Both are checked twice, because dpkg may start or end between two checks.
    """
    return all(not is_busy(root) and has_journal(root) for _attempt in range(2))


def selected(packages: list[DpkgPackage], names: list[str], state: str = "") -> list[DpkgPackage]:
    """Return the packages that names select, each once. `state`: only those in this state."""
    found = {p.name: p for name in names for p in select(packages, name) if state in ("", p.state)}
    return list(found.values())
