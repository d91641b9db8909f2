# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Place MIG instances by profile name, and convert them to state keys.

describe.py uses this module on the controller, and gpusim uses it on a host.
"""

from __future__ import annotations

import re
import uuid

NAMESPACE = uuid.UUID("5b0c9f0e-6f3c-4d4f-9f39-7a0f5a2a9c11")
# The first ID of a GPU instance, by its memory size in eighths of the GPU's memory.
FIRST_GI = {8: 0, 4: 1, 2: 3, 1: 7}
# The number of capability minors that the driver reserves for each GPU and each GPU instance, and the first minor.
CAPS_PER_GPU, CAPS_PER_GI, FIRST_CAP = 135, 9, 3
GI_A_GPU, CI_A_GI = 15, 8


class LayoutError(ValueError):
    """The layout is not possible. The message contains the reason."""


def seeded(*parts: object) -> uuid.UUID:
    """Return a UUID that is derived from names, so that it is the same in every run."""
    return uuid.uuid5(NAMESPACE, "/".join(str(part) for part in parts))


def gi_capability(minor: int, gi: int) -> int:
    """Return the minor number of the capability node of a GPU instance."""
    return FIRST_CAP + minor * CAPS_PER_GPU + gi * CAPS_PER_GI


def ci_capability(minor: int, gi: int, ci: int) -> int:
    """Return the minor number of the capability node of a compute instance."""
    return gi_capability(minor, gi) + 1 + ci


def place(wanted: list, profiles: dict, slices: int) -> list[dict]:
    """Place profiles on the slices of a GPU: "1g.5gb", or "1c.3g.20gb" for a compute instance with one slice.

    `profiles` maps a name to [id, compute slices, memory slices, MiB, multiprocessors, maximum number]. Return
    a dictionary for each MIG device, in NVML's order.
    """
    instances, devices = _instances([str(name) for name in wanted], profiles)
    memory_slices = 8 if slices == 7 else slices
    taken = [False] * memory_slices
    ids: set[int] = set()
    for instance in sorted(instances, key=lambda instance: -instance["shape"][2]):
        size = instance["shape"][2]
        same = sum(other["profile"] == instance["profile"] for other in instances)
        free = (at for at in range(0, memory_slices - size + 1, size) if not any(taken[at : at + size]))
        start = next(free, None)
        if start is None or same > instance["shape"][5] or sum(i["shape"][1] for i in instances) > slices:
            raise LayoutError(f"the MIG layout {', '.join(map(str, wanted))} does not fit on one GPU")
        taken[start : start + size] = [True] * size
        number = FIRST_GI[size * 8 // memory_slices]
        while number in ids:
            number += 1
        ids.add(number)
        instance.update(start=start, gi=number)
    devices.sort(key=lambda device: (device["home"]["gi"], device["ci"]))
    return [
        {
            "profile": device["profile"],
            "gi": device["home"]["gi"],
            "ci": device["ci"],
            "ci_slices": device["ci_slices"],
            "start": device["home"]["start"],
            "shape": device["home"]["shape"],
        }
        for device in devices
    ]


def _instances(wanted: list[str], profiles: dict) -> tuple[list[dict], list[dict]]:
    """Assign the devices to GPU instances. Compute instances share a GPU instance of their profile if it has room."""
    instances: list[dict] = []
    devices: list[dict] = []
    for text in wanted:
        match = re.fullmatch(r"(?:(\d)c\.)?(\d+g\.\d+gb(?:\+me)?)", text)
        if not match or match[2] not in profiles:
            raise LayoutError(f"unknown MIG profile {text!r}; known are {', '.join(profiles)}")
        shape = profiles[match[2]]
        share = int(match[1] or shape[1])
        if share > shape[1]:
            raise LayoutError(f"{text!r} wants more compute slices than {match[2]} has")
        home = next(
            (one for one in instances if match[1] and one["profile"] == match[2] and one["free"] >= share), None
        )
        if home is None:
            home = {"profile": match[2], "free": shape[1], "cis": 0, "shape": shape}
            instances.append(home)
        home["free"] -= share
        devices.append({"profile": text, "home": home, "ci": home["cis"], "ci_slices": share})
        home["cis"] += 1
    return instances, devices


def device_state(gpu_uuid: str, gpu_name: str, minor: int, devices: list[dict]) -> dict:
    """Return the state keys (mig.<n>.…) of the MIG devices of a GPU."""
    state: dict = {}
    for number, device in enumerate(devices):
        profile_id, compute, memory_slices, memory, multiprocessors, _most = device["shape"]
        name = device["profile"]
        media = int("+me" in name or compute >= 4)
        values = {
            "uuid": f"MIG-{seeded(gpu_uuid, 'mig', device['gi'], device['ci'], name)}",
            "name": f"{gpu_name} MIG {name}",
            "gi": device["gi"],
            "ci": device["ci"],
            "gi_cap": gi_capability(minor, device["gi"]),
            "ci_cap": ci_capability(minor, device["gi"], device["ci"]),
            "profile": name,
            "profile_id": profile_id,
            "start": device["start"],
            "size": memory_slices,
            "gi_slices": compute,
            "ci_slices": device["ci_slices"],
            "multiprocessors": multiprocessors * device["ci_slices"] // compute,
            "copy_engines": compute,
            "decoders": compute // 2 or media,
            "encoders": 0,
            "jpegs": media,
            "ofas": media,
            "memory.total": memory << 20,
            "memory.used": (12 * memory_slices) << 20,
            "bar1.total": (8192 * memory_slices) << 20,
            "bar1.used": 0,
            "compute_mode": 0,
        }
        state.update({f"mig.{number}.{key}": value for key, value in values.items()})
    return state
