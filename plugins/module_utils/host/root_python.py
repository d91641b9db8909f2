# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find a Python that a unit of root may run: nobody else can replace it, or a directory or link on the way to it."""

from __future__ import annotations

import os
import re
import stat
from typing import Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import PATH, is_like, shown

# The oldest Python that runs the modules of this collection on a host.
OLDEST = (3, 9)
_DIRECTORIES = ("/usr/bin", "/usr/local/bin", "/usr/libexec")
_NAME = re.compile(r"(?:python|platform-python)3\.(\d+)$")
_MOST_LINKS = 40

Stat = Callable[[str], os.stat_result]


def find(root: str, current: str | None, status: Stat = os.lstat) -> str | None:
    """Return `current`, the Python that runs this module, if root may run it, else the newest one that suffices."""
    if current and fault(root, current, status) is None:
        return current
    found = [
        (int(match.group(1)), -number, f"{directory}/{name}")
        for number, directory in enumerate(_DIRECTORIES)
        for name in listing(root, directory)
        if (match := _NAME.match(name)) and (3, int(match.group(1))) >= OLDEST
    ]
    return next((path for *_order, path in sorted(found, reverse=True) if fault(root, path, status) is None), None)


def missing(subject: str, current: str | None, otherwise: str = "") -> str:
    """Return the problem of a host without such a Python. `otherwise`: a second remedy, as the end of the sentence."""
    return (
        f"{subject}, but users other than root can replace {current or 'the Python'} that runs this task, and the host "
        f"has no other suitable Python. Install Python 3.9 or later with the host's package manager{otherwise}."
    )


def fault(root: str, path: str, status: Stat = os.lstat) -> str | None:
    """Return why root must not run the program at `path`, or None."""
    if not is_like(PATH, path):
        return f"{shown(path)} is no absolute path of letters, digits and the characters ./+-_"
    todo, done = path.split("/"), ""
    links = 0
    while todo:
        part = todo.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            done = os.path.dirname(done).rstrip("/")
            continue
        place = f"{done}/{part}"
        full = os.path.join(root, place[1:])
        try:
            found = status(full)
            if found.st_uid != 0:
                return f"{place} belongs to user {found.st_uid}"
            if stat.S_ISLNK(found.st_mode):
                links += 1
                target = os.readlink(full)
                todo = target.split("/") + todo
                done = "" if target.startswith("/") else done
                if links > _MOST_LINKS:
                    return f"{path} has too many links"
                continue
        except OSError as error:
            return f"{place}: {error.strerror}"
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"others than root can write to {place}"
        done = place
    return None
