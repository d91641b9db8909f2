# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG devices of a GPU through NVML."""

from __future__ import annotations

import math
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import memory
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import (
    MOST_BYTES,
    flag,
    member,
    number,
    text,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.handle import Handle

MAX_MIG_DEVICES = 64

_PROFILE_IN_NAME = re.compile(r"\bMIG\s+((?:\d+c\.)?\d+g\.\d+gb\S*)", re.IGNORECASE)


def read_mig(gpu: Handle) -> dict:
    """Return the MIG mode and the MIG devices of a GPU."""
    current, pending = (flag(mode) for mode in gpu.pair("nvmlDeviceGetMigMode"))
    return {
        "enabled": current,
        "pending": pending,
        "devices": [_device(slot, mig, gpu) for slot, mig in _devices_in_slots(gpu)] if current else [],
    }


def read_details(gpu: Handle, mig: dict) -> dict:
    """Add the maximum number of MIG devices, and the engines and memory use of each device."""
    children = dict(_devices_in_slots(gpu)) if mig["devices"] else {}
    return {
        **mig,
        "devices": [{**device, **_device_details(children[device["index"]])} for device in mig["devices"]],
        "devices_max": number(gpu.call("nvmlDeviceGetMaxMigDeviceCount"), most=MAX_MIG_DEVICES),
    }


def _devices_in_slots(gpu: Handle) -> list[tuple[int, Handle]]:
    """Return the MIG devices with their slots. Slots can be empty after a device was destroyed."""
    most = number(gpu.call("nvmlDeviceGetMaxMigDeviceCount"), most=MAX_MIG_DEVICES) or 0
    devices = ((slot, gpu.device("nvmlDeviceGetMigDeviceHandleByIndex", slot)) for slot in range(most))
    return [(slot, mig) for slot, mig in devices if mig is not None]


def _device(slot: int, mig: Handle, gpu: Handle) -> dict:
    memory_mib = _attribute(mig, "memorySizeMB") or None
    return {
        "index": slot,
        "uuid": text(mig.call("nvmlDeviceGetUUID")),
        "profile": _profile(mig, gpu),
        "gi": number(mig.call("nvmlDeviceGetGpuInstanceId")),
        "ci": number(mig.call("nvmlDeviceGetComputeInstanceId")),
        "memory_total_mib": memory.read_usage(mig)["memory_total_mib"] or memory_mib,
        "memory_slices": _memory_slices(mig, gpu),
        "gpu_slices": _attribute(mig, "gpuInstanceSliceCount"),
        "compute_slices": _attribute(mig, "computeInstanceSliceCount"),
    }


def _device_details(mig: Handle) -> dict:
    used = memory.read_usage(mig)
    return {
        "name": text(mig.call("nvmlDeviceGetName")),
        "memory_free_mib": used["memory_free_mib"],
        "memory_used_mib": used["memory_used_mib"],
        "multiprocessors": _attribute(mig, "multiprocessorCount"),
        "copy_engines": _attribute(mig, "sharedCopyEngineCount"),
        "decoders": _attribute(mig, "sharedDecoderCount"),
        "encoders": _attribute(mig, "sharedEncoderCount"),
        "jpeg_engines": _attribute(mig, "sharedJpegCount"),
        "ofa_engines": _attribute(mig, "sharedOfaCount"),
    }


def _attribute(mig: Handle, name: str) -> int | None:
    attributes = mig.first_answer("nvmlDeviceGetAttributes_v2", "nvmlDeviceGetAttributes")
    return number(member(attributes, name))


def _memory_slices(mig: Handle, gpu: Handle) -> int | None:
    """Return how many of the GPU's eight memory slices a MIG device has, from its share of the memory."""
    share = _attribute(mig, "memorySizeMB")
    whole = number(member(memory.read_info(gpu), "total"), most=MOST_BYTES)
    if not share or not whole:
        return None
    return min(8, math.ceil(share * (1 << 20) / whole * 8))


def _profile(mig: Handle, gpu: Handle) -> str | None:
    """Return the profile of a MIG device: from the end of its name, or computed from its slices."""
    match = _PROFILE_IN_NAME.search(text(mig.call("nvmlDeviceGetName")) or "")
    if match:
        return match.group(1).lower()
    gpu_slices = _attribute(mig, "gpuInstanceSliceCount")
    compute_slices = _attribute(mig, "computeInstanceSliceCount")
    eighths = _memory_slices(mig, gpu)
    if not gpu_slices or eighths is None:
        return None
    gigabytes = math.floor(eighths / 8 * math.ceil(memory.read_info(gpu).total / (1 << 30)) + 0.5)
    share = f"{compute_slices}c." if compute_slices and compute_slices != gpu_slices else ""
    return f"{share}{gpu_slices}g.{gigabytes}gb"
