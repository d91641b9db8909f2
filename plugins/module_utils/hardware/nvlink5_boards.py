# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boards with NVLink 5 switches, and those whose NVLink connects several machines. Pure functions."""

from __future__ import annotations

# Boards with NVLink 5 switches, which a subnet manager controls: B200, B300, GB200 and GB300.
_NVLINK5 = (0x2901, 0x2909, 0x3182, 0x2941, 0x31C2, 0x31C3)
# Boards whose NVLink also connects other machines: GB200 and GB300.
_ACROSS_MACHINES = (0x2941, 0x31C2, 0x31C3)


def has_nvlink5(device_id: str) -> bool:
    """Return whether a GPU is on a board with NVLink 5 switches."""
    return int(device_id, 16) in _NVLINK5


def spans_machines(device_id: str) -> bool:
    """Return whether NVLink connects a GPU to GPUs of other machines, which requires IMEX."""
    return int(device_id, 16) in _ACROSS_MACHINES
