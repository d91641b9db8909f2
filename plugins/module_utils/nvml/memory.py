# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A GPU's memory through NVML: total, free, used, reserved and BAR1, and how bytes are rounded to MiB."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import MOST_BYTES, member, number
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.handle import Handle

MEBIBYTE = 1 << 20


def read_info(gpu: Handle):
    version = gpu.constant("nvmlMemory_v2")
    info = gpu.call("nvmlDeviceGetMemoryInfo", version) if version else None
    return info if info is not None else gpu.call("nvmlDeviceGetMemoryInfo")


def read_usage(gpu: Handle) -> dict:
    info = read_info(gpu)
    total = number(member(info, "total"), most=MOST_BYTES) or None
    free, used = (number(member(info, part), most=total) if total else None for part in ("free", "used"))
    return {
        "memory_total_mib": mebibytes(total),
        "memory_free_mib": mebibytes(free, up=True),
        "memory_used_mib": mebibytes(used),
    }


def read_details(gpu: Handle) -> dict:
    bar1 = gpu.call("nvmlDeviceGetBAR1MemoryInfo")
    return {
        "memory_reserved_mib": mebibytes(member(read_info(gpu), "reserved"), up=True),
        "bar1_total_mib": mebibytes(member(bar1, "bar1Total")),
        "bar1_free_mib": mebibytes(member(bar1, "bar1Free"), up=True),
        "bar1_used_mib": mebibytes(member(bar1, "bar1Used")),
    }


def mebibytes(value, *, up: bool = False) -> int | None:
    """Convert bytes to whole MiB. As nvidia-smi does, round free and reserved memory up and the rest down."""
    value = number(value, most=MOST_BYTES)
    return None if value is None else (int(value) + (MEBIBYTE - 1 if up else 0)) // MEBIBYTE
