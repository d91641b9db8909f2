# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's driver branches: their end of life, and which of them have open and proprietary modules. Pure functions."""

from __future__ import annotations

# The first branch with open kernel modules.
FIRST_OPEN_BRANCH = 515
# Branches 620 and later contain only the open modules, from every source.
LAST_PROPRIETARY_BRANCH = 615
# NVIDIA supports 580 until June 2028 and 595 until March 2027. The support of all other branches up to 610 has ended;
# the month is given if it is known. Sources: docs.nvidia.com, "Supported Drivers and CUDA Toolkit Versions" for R615
# (535, 580, 595, 610) and for R580 (570; branches that the table lacks have ended). No source has the dates of 615 and
# newer.
SUPPORTED_BRANCHES = (580, 595)
_LAST_ENDED = 610
_ENDED = {535: "June 2026", 570: "February 2026", 610: "August 2026"}


def end_of_life(branch: str | None) -> str | None:
    """Return the month in which NVIDIA's support of a branch ended: empty if unknown, None if it has not ended."""
    number = int(branch or _LAST_ENDED + 1)
    return None if number in SUPPORTED_BRANCHES or number > _LAST_ENDED else _ENDED.get(number, "")
