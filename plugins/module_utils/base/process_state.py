# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module inherits from whoever started it and what changes its result: umask and TMPDIR.

`base/run.py` sets the locale of the programs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

# Files and directories are readable for all, unless they get a mode of their own. A hardened host has 027 or 077, with
# which apt's user cannot read the keys of a repository.
UMASK = 0o022


def pin() -> None:
    """Set the umask of this process and its programs, and let them use the temporary directory of the system.

    A TMPDIR of one user, as pam_tmpdir sets it, is closed to the users to which package managers change.
    """
    os.umask(UMASK)
    os.environ.pop("TMPDIR", None)


@contextlib.contextmanager
def pinned_umask() -> Iterator[None]:
    """Set the umask for a block of code."""
    before = os.umask(UMASK)
    try:
        yield
    finally:
        os.umask(before)
