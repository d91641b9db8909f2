# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version of the toolkit that the programs simulate. make_toolkit_repository.py replaces it in each package."""

from __future__ import annotations

VERSION = "1.20.0"


def at_least(*wanted: int) -> bool:
    """Return whether the simulated version is at least this one, for example `at_least(1, 18)`."""
    return tuple(int(part) for part in VERSION.split(".")) >= wanted
