# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The generation of a GPU by its PCI device ID, and the kernel modules that support the generation.

Each generation uses blocks of device IDs, and newer generations use higher IDs. An ID above all known blocks is a newer
GPU. Since Blackwell, all new GPUs require the open modules.
"""

from __future__ import annotations

from typing import NamedTuple


class Generation(NamedTuple):
    """The kernel modules and driver branches that support a generation."""

    name: str
    open_modules: bool
    proprietary_modules: bool
    first_branch: int
    last_branch: int | None
    # The first driver whose list of supported GPUs has the GPU, if older drivers of the first branch lack it. An older
    # driver may still work.
    first_version: str = ""


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
NEWER = BLACKWELL_ULTRA._replace(name="newer than all known generations")


_B200 = BLACKWELL._replace(first_version="570.86.15")
_GB200 = BLACKWELL._replace(first_version="570.123.01")
_B300 = BLACKWELL_ULTRA._replace(first_version="580.82.07")

# Device IDs that differ from their block. First versions: README.md of NVIDIA/open-gpu-kernel-modules, all tags up to
# 595.45.04 (df1c9a3). 2909 and 31C3 are in no tag; awslabs/amazon-eks-ami (81fec2e) names them for branch 595. Their
# first versions are inferred from the other B200 and GB300.
_EXCEPTIONS = {
    0x2335: HOPPER_H200,
    # H200 NVL
    0x233B: HOPPER_H200._replace(first_version="565.57.01"),
    0x2342: GRACE_HOPPER,
    0x2345: GRACE_HOPPER,
    # GH200 with 144 GB
    0x2348: GRACE_HOPPER._replace(first_version="565.57.01"),
    0x2901: _B200,
    0x2909: _B200,
    0x2941: _GB200,
    # RTX PRO 6000 Server Edition, RTX 6000D and RTX PRO 4500 Server Edition
    0x2BB5: BLACKWELL._replace(first_version="575.57.08"),
    0x2BB9: BLACKWELL._replace(first_version="580.82.07"),
    0x2C3A: BLACKWELL._replace(first_version="580.142"),
    0x3182: _B300,
    0x31C2: _B300,
    0x31C3: _B300,
}
# The first ID of each block. A block ends where the next block starts.
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
    """Return the generation of a PCI device ID, given as a number or in the format of sysfs (0x20b0)."""
    number = device_id if isinstance(device_id, int) else int(device_id, 16)
    if number in _EXCEPTIONS:
        return _EXCEPTIONS[number]
    return next(generation for first, generation in reversed(_BLOCKS) if number >= first)
