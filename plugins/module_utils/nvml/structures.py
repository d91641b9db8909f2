# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The structures of nvml.h that older pynvml lacks or defines wrongly."""

from __future__ import annotations

import ctypes

_SRAM_COUNTERS = (
    "aggregateUncParity",
    "aggregateUncSecDed",
    "aggregateCor",
    "volatileUncParity",
    "volatileUncSecDed",
    "volatileCor",
    "aggregateUncBucketL2",
    "aggregateUncBucketSm",
    "aggregateUncBucketPcie",
    "aggregateUncBucketMcu",
    "aggregateUncBucketOther",
)


class FabricInfoV1(ctypes.Structure):
    _fields_ = (
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint32),
        ("state", ctypes.c_uint),
    )


class FabricInfoV2(ctypes.Structure):
    VERSION = 2
    _fields_ = (("version", ctypes.c_uint), *FabricInfoV1._fields_, ("healthMask", ctypes.c_uint32))


class SramErrorStatus(ctypes.Structure):
    VERSION = 1
    _fields_ = (
        ("version", ctypes.c_uint),
        *((name, ctypes.c_ulonglong) for name in _SRAM_COUNTERS),
        ("bThresholdExceeded", ctypes.c_uint),
    )


class FirmwareVersion(ctypes.Structure):
    _fields_ = (("value", ctypes.c_char * 64),)
