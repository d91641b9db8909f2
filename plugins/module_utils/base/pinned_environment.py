# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a process inherits from whoever started it and what changes its result: umask, locale, PATH and TMPDIR.

All other variables stay, for example those of a proxy, a login or a package manager.

The standalone programs load this file before they start NVML, so it imports nothing that is slow.
"""

from __future__ import annotations

import os

# Files and directories are readable for all, unless they get a mode of their own. A hardened host has 027 or 077, with
# which apt's user cannot read the keys of a repository.
UMASK = 0o022
# The directories of the system, in the order of a root login. An SSH session can lack some of them, and PATH of a user
# can have a directory in which other users write programs.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin"
# Many decisions read the output of programs.
VARIABLES = {"LC_ALL": "C", "PATH": PATH}
# A TMPDIR of one user, as pam_tmpdir sets it, is closed to the users to which package managers change.
_DIRECTORIES = ("TMPDIR", "TEMP", "TMP")


def environment(inherited: dict[str, str], more: dict[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a program. `more`: further variables, which cannot change the pinned ones."""
    given = {**inherited, **(more or {})}
    return {**{name: value for name, value in given.items() if not _is_dropped(name)}, **VARIABLES}


def _is_dropped(name: str) -> bool:
    # The names of the locale: LANG, LANGUAGE and one per category.
    return name in _DIRECTORIES or name in ("LANG", "LANGUAGE") or name.startswith("LC_")


def find(name: str) -> str | None:
    """Return the path of a program of the system, or None if it is not installed."""
    for directory in PATH.split(":"):
        path = os.path.join(directory, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def pin() -> None:
    """Set the umask and the environment of this process, and so of everything that it creates and starts."""
    os.umask(UMASK)
    wanted = environment(dict(os.environ))
    for name in set(os.environ) - set(wanted):
        del os.environ[name]
    os.environ.update(wanted)


class PinnedUmask:
    """Set the umask for a block of code."""

    def __enter__(self) -> None:
        self._before = os.umask(UMASK)

    def __exit__(self, *_error: object) -> None:
        os.umask(self._before)
