# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Private directories for views of the repositories. A killed run leaves its directory, and the next run removes it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing

# /tmp may be too small for the package lists of a distribution.
_PARENT = "/var/tmp"


@contextlib.contextmanager
def workspace(root: str = "/") -> Iterator[str]:
    """Create a private directory, and remove it at the end."""
    parent = os.path.join(root, _PARENT.lstrip("/"))
    # The users to which package managers change read the files in it.
    prefix = f"gpufleet-{os.getpid()}-"
    with pinned_environment.PinnedUmask(), tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as directory:
        yield directory


def remove_abandoned(root: str = "/") -> None:
    """Remove the private directories of processes that no longer exist."""
    for name in listing(root, _PARENT):
        path = os.path.join(root, _PARENT.lstrip("/"), name)
        found = re.fullmatch(r"gpufleet-(\d+)-\w+", name)
        if found and not os.path.exists(f"/proc/{found[1]}") and os.lstat(path).st_uid == os.geteuid():
            shutil.rmtree(path, ignore_errors=True)
