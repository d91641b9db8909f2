# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The errors of a GPU's memory through NVML: ECC errors, retired pages and remapped rows."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import flag, member, number
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.handle import Handle
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.structures import SramErrorStatus


def read_ecc(gpu: Handle) -> dict:
    current, pending = (flag(mode) for mode in gpu.pair("nvmlDeviceGetEccMode"))
    default = gpu.call("nvmlDeviceGetDefaultEccMode")
    return {
        "ecc": {
            "enabled": current,
            "pending": pending,
            "default": flag(default[0] if isinstance(default, (list, tuple)) and default else default),
            "volatile": _ecc_counts(gpu, 0),
            "aggregate": _ecc_counts(gpu, 1),
            "sram_threshold_exceeded": sram_threshold_exceeded(gpu),
        },
        "retired_pages": _retired_pages(gpu),
        "remapped_rows": {**remapped_rows(gpu), "banks": _remap_availability(gpu)},
    }


def _ecc_counts(gpu: Handle, counter: int) -> dict:
    counts = {}
    for error, name in ((0, "corrected"), (1, "uncorrected")):
        counts[name] = number(gpu.call("nvmlDeviceGetTotalEccErrors", error, counter))
        counts[f"dram_{name}"] = number(gpu.call("nvmlDeviceGetMemoryErrorCounter", error, counter, 2))
        counts[f"sram_{name}"] = number(gpu.call("nvmlDeviceGetMemoryErrorCounter", error, counter, 7))
    return counts


def sram_threshold_exceeded(gpu: Handle) -> bool | None:
    status = gpu.read_struct("nvmlDeviceGetSramEccErrorStatus", SramErrorStatus)
    return flag(member(status, "bThresholdExceeded"))


def _retired_pages(gpu: Handle) -> dict:
    def count(cause: int) -> int | None:
        pages = gpu.call("nvmlDeviceGetRetiredPages", cause)
        return len(pages) if isinstance(pages, (list, tuple)) else None

    return {
        "single_bit": count(0),
        "double_bit": count(1),
        "pending": flag(gpu.call("nvmlDeviceGetRetiredPagesPendingStatus")),
    }


def remapped_rows(gpu: Handle) -> dict:
    answer = gpu.call("nvmlDeviceGetRemappedRows")
    if not isinstance(answer, (list, tuple)) or len(answer) != 4:
        answer = (None,) * 4
    correctable, uncorrectable, pending, failed = answer
    return {
        "correctable": number(correctable),
        "uncorrectable": number(uncorrectable),
        "pending": flag(pending),
        "failed": flag(failed),
    }


def _remap_availability(gpu: Handle) -> dict:
    histogram = gpu.call("nvmlDeviceGetRowRemapperHistogram")
    return {name: number(member(histogram, name)) for name in ("max", "high", "partial", "low", "none")}
