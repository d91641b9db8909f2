# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep a copy of the controller's pynvml on the host until the next boot, so that not every task sends it."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import stat
import tempfile

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned

DIRECTORY = owned.RUNTIME_DIRECTORY
_ARCHIVES = "pynvml-*.zip"


def remembered(directory: str = DIRECTORY, user: int = 0) -> str | None:
    """Return the path of the stored archive. An archive that another user can write is ignored."""
    for path in (directory, *sorted(glob.glob(os.path.join(glob.escape(directory), _ARCHIVES)), reverse=True)):
        try:
            status = os.lstat(path)
        except OSError:
            return None
        if status.st_uid != user or stat.S_IMODE(status.st_mode) & 0o022:
            return None
        if stat.S_ISREG(status.st_mode):
            return path
    return None


def remember(archive: str, directory: str = DIRECTORY) -> None:
    """Store an archive in place of the previous one. Errors are ignored, because the copy is only a cache."""
    with contextlib.suppress(OSError):
        os.makedirs(directory, mode=0o755, exist_ok=True)
        old = glob.glob(os.path.join(glob.escape(directory), _ARCHIVES))
        handle, temporary = tempfile.mkstemp(dir=directory)
        os.close(handle)
        shutil.copyfile(archive, temporary)
        os.chmod(temporary, 0o644)
        kept = os.path.join(directory, os.path.basename(archive))
        os.replace(temporary, kept)
        for path in old:
            if path != kept:
                os.unlink(path)
