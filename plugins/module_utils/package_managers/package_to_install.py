# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a package to install as users write it: name, name=version, name>=version or the path of a package file."""

from __future__ import annotations

import dataclasses
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError


class ItemError(Exception):
    """The text does not describe a package."""


@dataclasses.dataclass(frozen=True)
class Item:
    """A package to install: a name with an exact `version` or a `minimum` version, or the path of a `file`.

    A version without a release, such as 580.95.05, stands for the newest build of it. An item with a `file` has the
    name and the version of this file as soon as `package_file` has read them.
    """

    name: str = ""
    version: str = ""
    minimum: str = ""
    file: str = ""

    def __str__(self) -> str:
        """Return the text that the user wrote."""
        if self.file:
            return self.file
        return self.name + (f"={self.version}" if self.version else f">={self.minimum}" if self.minimum else "")


_NAME = r"[A-Za-z0-9][A-Za-z0-9+._-]*(?::[a-z0-9]+)?"
_ITEM = re.compile(rf"(?P<name>{_NAME})(?:(?P<sign>>?=)(?P<version>[A-Za-z0-9][A-Za-z0-9.+:~^_-]*))?")


def item(text: str) -> Item:
    """Parse `name`, `name=version`, `name>=version` or the absolute path of a package file."""
    if text.startswith("/"):
        return Item(file=text)
    found = _ITEM.fullmatch(text)
    if not found:
        raise ItemError(
            f"{text!r} is not a valid package. Write name, name=version, name>=version, or the absolute path of a "
            "package file."
        )
    version = found["version"] or ""
    return Item(found["name"], **({"minimum": version} if found["sign"] == ">=" else {"version": version}))


def package_file(path: str, command: list[str], run: Run) -> Item:
    """Read a package file with a command that prints its name, full version and architecture."""
    rc, out, err = run([*command, path])
    fields = out.split()
    if rc or len(fields) != 3:
        # rpm also warns about keys that it does not know.
        reasons = [line for line in err.splitlines() if line and not line.startswith("warning:")]
        raise PackageManagerError(
            f"The package file {path} could not be read: {url_logins.masked(' '.join(reasons)) or 'it is damaged'}. "
            "Nothing was changed. Copy the file to the host again, or correct the path."
        )
    name, version, arch = fields
    name += "" if arch in ("all", "noarch") else f":{arch}"
    # Package managers print no epoch that is 0.
    return Item(name, version.removeprefix("0:"), file=path)
