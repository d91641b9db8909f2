# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which firmware files the kernel did not find, recognized from the messages in its log. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Messages of the kernel, of Debian's kernels, and of amdgpu (amdgpu_device.c, amdgpu_vcn.c, amdgpu_discovery.c).
_FIRMWARE = re.compile(
    r"direct firmware load for (\S+) failed"
    r"|firmware: failed to load (\S+)"
    r"|(?:failed to|can't) (?:load|fetch|get|request) (?:\w+ )?firmware[ :\"]+([\w./-]+)",
    re.IGNORECASE,
)


def missing_firmware(log: Sequence[str]) -> list[str]:
    """Return the firmware files that the kernel did not find, from its log."""
    found = (match for line in log for match in _FIRMWARE.finditer(line))
    names = ((match[1] or match[2] or match[3]).strip('":') for match in found)
    return list(dict.fromkeys(name for name in names if re.search(r"[./]", name)))
