# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy apt's package lists between the host and a private view, so that no list is downloaded twice."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil

# What belongs to running programs.
_OTHERS = ("lock", "partial", "auxfiles")
_TEMPORARY = "gpufleet-new"


def keep(source: str, target: str) -> None:
    """Copy the lists of a view to the host. Their next download asks the server only whether they changed.

    If another program uses the host's lists, or this user may not write them, they are downloaded again.
    """
    with contextlib.suppress(OSError), open(os.path.join(target, "lock"), "a", encoding="utf-8") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in sorted(os.listdir(source)):
            if name not in _OTHERS and not _is_same(f"{source}/{name}", f"{target}/{name}"):
                # The modification time is that of the file on the server.
                shutil.copy2(f"{source}/{name}", f"{target}/{_TEMPORARY}", follow_symlinks=False)
                os.replace(f"{target}/{_TEMPORARY}", f"{target}/{name}")


def _is_same(first: str, second: str) -> bool:
    try:
        one, other = os.lstat(first), os.lstat(second)
    except OSError:
        return False
    return (one.st_size, int(one.st_mtime)) == (other.st_size, int(other.st_mtime))
