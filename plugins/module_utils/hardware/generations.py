# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a GPU's PCI device id says about the kernel modules that can drive it.

NVIDIA numbers its chips upwards; a generation owns blocks of ids. A card with an id above every known block came out
after this table: it gets the open modules, as every new card has since Blackwell, and not a refusal.
"""

from __future__ import annotations

from typing import NamedTuple


class Generation(NamedTuple):
    """The modules of one generation of GPUs."""

    name: str
    open_modules: bool
    proprietary_modules: bool
    first_branch: int
    last_branch: int | None


KEPLER = Generation("Kepler or older", False, True, 304, 470)
MAXWELL = Generation("Maxwell", False, True, 343, 580)
PASCAL = Generation("Pascal", False, True, 367, 580)
VOLTA = Generation("Volta", False, True, 384, 580)
TURING = Generation("Turing", True, True, 418, None)
AMPERE = Generation("Ampere", True, True, 450, None)
ADA = Generation("Ada Lovelace", True, True, 525, None)
HOPPER = Generation("Hopper", True, True, 525, None)
HOPPER_H200 = HOPPER._replace(first_branch=550)
GRACE_HOPPER = Generation("Grace Hopper", True, False, 535, None)
BLACKWELL = Generation("Blackwell", True, False, 570, None)
BLACKWELL_ULTRA = BLACKWELL._replace(name="Blackwell Ultra", first_branch=580)
NEWER = BLACKWELL_ULTRA._replace(name="newer than any that is known here")

# The first branch with open kernel modules.
FIRST_OPEN_BRANCH = 515
# Branch 620 has the open ones alone, from whichever source.
LAST_PROPRIETARY_BRANCH = 615

# Boards whose NVLink 5 leads to switches that a subnet manager runs: B200, B300, GB200 and GB300.
_NVLINK5 = (0x2901, 0x3182, 0x2941, 0x31C2)
# Of these, the ones whose NVLink leads to other machines, too.
_ACROSS_MACHINES = (0x2941, 0x31C2)

# Single ids that differ from the block that they lie in.
_EXCEPTIONS = {
    0x2335: HOPPER_H200,
    0x233B: HOPPER_H200,
    0x2342: GRACE_HOPPER,
    0x2345: GRACE_HOPPER,
    0x2348: GRACE_HOPPER,
}
# The first id of each block; a block ends where the next one starts.
_BLOCKS = (
    (0x0000, KEPLER),
    (0x1340, MAXWELL),
    (0x15F0, PASCAL),
    (0x1600, MAXWELL),
    (0x1B00, PASCAL),
    (0x1D81, VOLTA),
    (0x1E00, TURING),
    (0x2080, AMPERE),
    (0x2180, TURING),
    (0x2200, AMPERE),
    (0x2300, HOPPER),
    (0x2400, AMPERE),
    (0x2600, ADA),
    (0x2900, BLACKWELL),
    (0x3100, BLACKWELL_ULTRA),
    (0x3200, NEWER),
)


def of(device_id: str | int) -> Generation:
    """Return the generation of a PCI device id, given as a number or as sysfs writes it (0x20b0)."""
    number = device_id if isinstance(device_id, int) else int(device_id, 16)
    if number in _EXCEPTIONS:
        return _EXCEPTIONS[number]
    return next(generation for first, generation in reversed(_BLOCKS) if number >= first)


def has_nvlink5(device_id: str) -> bool:
    """Tell whether a GPU is of a board with NVLink 5, to switches of its own."""
    return int(device_id, 16) in _NVLINK5


def spans_machines(device_id: str) -> bool:
    """Tell whether a GPU's NVLink leads to the GPUs of other machines, which takes IMEX."""
    return int(device_id, 16) in _ACROSS_MACHINES
