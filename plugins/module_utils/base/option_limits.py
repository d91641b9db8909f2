# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of options that several modules have. Each check returns an error message, or None for a valid value."""

from __future__ import annotations

import os

# Some clocks and system calls reject larger values.
LONGEST_TIMEOUT = 3600
# Seconds to wait for the work of a host before a disruption: one week.
LONGEST_DRAIN = 604800


def timeout_fault(seconds: float) -> str | None:
    """Check the maximum time to wait for a driver."""
    if 0 < seconds <= LONGEST_TIMEOUT:
        return None
    return f"timeout={seconds:g} is invalid. Set a number of seconds above 0 and at most {LONGEST_TIMEOUT}."


def driver_root_fault(path: str | None) -> str | None:
    """Check the root directory of the driver's files. None means that the option is not set."""
    if path is None:
        return None
    if not os.path.isabs(path):
        return f"driver_root={path} is not an absolute path. Start the path with /."
    if not os.path.isdir(path):
        return f"driver_root={path} is not a directory. Correct the path, or remove the option."
    return None
