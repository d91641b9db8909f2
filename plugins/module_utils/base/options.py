# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with an option that several modules have, in the same words everywhere; None where nothing is."""

from __future__ import annotations

import os

# Longer than any driver takes, and short enough for every clock and system call.
LONGEST_TIMEOUT = 3600


def timeout_fault(seconds: float) -> str | None:
    """Check how long to wait for a driver."""
    if 0 < seconds <= LONGEST_TIMEOUT:
        return None
    return f"timeout={seconds:g} is not a number of seconds above 0 and up to {LONGEST_TIMEOUT}"


def driver_root_fault(path: str | None) -> str | None:
    """Check where the driver's files are to be looked for; without a path that is left to the module."""
    if path is None:
        return None
    if not os.path.isabs(path):
        return f"driver_root={path} is not an absolute path"
    return None if os.path.isdir(path) else f"driver_root={path} is not a directory"
