# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file on a host that says what a long task does, for the controller that waits for it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

DIRECTORY = "/run/gpufleet"
PATH = f"{DIRECTORY}/progress"


def write(root: str, text: str) -> None:
    """Replace the content of the file. A report must never fail the task that it is about."""
    with contextlib.suppress(OSError):
        directory = Path(root, DIRECTORY.lstrip("/"))
        directory.mkdir(mode=0o755, exist_ok=True)
        new = Path(root, f"{PATH}.new".lstrip("/"))
        new.unlink(missing_ok=True)
        # O_EXCL does not follow a link. The mode does not depend on the umask, which can only remove bits.
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(f"{text}\n")
        new.replace(Path(root, PATH.lstrip("/")))


def remove(root: str) -> None:
    """Remove the file, and the directory if nothing else is in it."""
    for path in (PATH, f"{PATH}.new"):
        with contextlib.suppress(OSError):
            Path(root, path.lstrip("/")).unlink()
    with contextlib.suppress(OSError):
        Path(root, DIRECTORY.lstrip("/")).rmdir()


@contextlib.contextmanager
def shown(root: str, text: str) -> Iterator[None]:
    """Keep the file while the body runs."""
    write(root, text)
    try:
        yield
    finally:
        remove(root)
