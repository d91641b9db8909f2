# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NVIDIA documents about the GPUs of the matrix: module flavors, and the first and last driver branch."""

from __future__ import annotations

_SUPPORTED = {"V100": ("proprietary",), "B200": ("open",)}
# The generations that a refusal names.
NAMES = {"V100": "Volta", "B200": "Blackwell"}
# The cause of a refusal of a flavor.
NOT_OF_FLAVOR = {
    "V100": r"the open kernel modules do not support 0x\w+ \(Volta\)",
    "B200": r"only the open kernel modules support 0x\w+ \(Blackwell\)",
}
_FIRST = {"B200": 570}
_LAST = {"V100": 580}


def flavors(gpu: str) -> tuple[str, ...]:
    """Return the module flavors that support a GPU."""
    return _SUPPORTED.get(gpu, ("open", "proprietary"))


def supports(gpu: str, branch: str) -> bool:
    """Return whether a driver branch supports a GPU."""
    return _FIRST.get(gpu, 0) <= int(branch) <= _LAST.get(gpu, 9999)
