# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read zypper's package locks, and decide how a simulation ignores them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.temporary_directories import workspace

_LOCKS = "/etc/zypp/locks"
_SETTINGS = ("/etc/zypp/zypp.conf", "/usr/etc/zypp/zypp.conf")


def names(root: str) -> list[str]:
    """Return the names and patterns of the locked packages."""
    return re.findall(r"^solvable_name:\s*(\S+)", read_text(root, _LOCKS) or "", re.MULTILINE)


def remove_empty(root: str) -> None:
    """Remove the empty file that remains after the last lock is removed. zypper does not need it."""
    path = os.path.join(root, _LOCKS.lstrip("/"))
    with contextlib.suppress(FileNotFoundError):
        if os.path.getsize(path) == 0:
            os.unlink(path)


@contextlib.contextmanager
def ignored(root: str) -> Iterator[dict[str, str]]:
    """Return the environment that makes zypper ignore the package locks of a root directory."""
    if not names(root):
        yield {}
        return
    text = next((text for text in (read_text(root, path) for path in _SETTINGS) if text is not None), "")
    with workspace() as directory:
        path = os.path.join(directory, "zypp.conf")
        with open(path, "w", encoding="utf-8") as handle:
            handle.write(without_locks(text, os.path.join(directory, "locks")))
        yield {"ZYPP_CONF": path}


def without_locks(settings: str, path: str) -> str:
    """Return zypp.conf with another path of the file with the locks."""
    lines = [line for line in settings.splitlines() if not re.match(r"\s*locksfile\.path\s*=", line)]
    return "\n".join(["[main]", f"locksfile.path = {path}", *(line for line in lines if line.strip() != "[main]"), ""])
