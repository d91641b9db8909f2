# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs of a host a benchmark measures. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown


def selection(usage: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """Return the free GPUs, why the other ones are not measured, and the engine.

    `usage`: the result of module gpu_container_info. `engine`: the value of benchmark_engine.
    """
    skipped = []
    for gpu in usage["gpus"]:
        why = _obstacle(gpu)
        if why:
            skipped.append({"uuid": gpu["uuid"], "index": gpu["index"], "model": gpu["name"], "reason": why})
    named = {gpu["uuid"] for gpu in skipped}
    uuids = [gpu["uuid"] for gpu in usage["gpus"] if gpu["uuid"] not in named]
    reason = None
    if not usage["gpus"]:
        reason = usage["nvidia_gpu_state_reason"]
    elif not uuids:
        reason = "no GPU is free"
    if engine == "auto":
        engines = usage["engines"]
        engine = "podman" if engines["podman"]["version"] and not engines["docker"]["version"] else "docker"
    return {"uuids": uuids, "skipped": skipped, "reason": reason, "engine": engine}


def _obstacle(gpu: Mapping[str, Any]) -> str | None:
    """Return why the benchmark must not use a GPU, or None."""
    if gpu["holders"]:
        return "used by " + ", ".join(f"{one['kind']} {shown(one['name'])}" for one in gpu["holders"])
    if gpu["mig_profile"] is not None:
        return "a MIG device, which is not comparable with a whole GPU"
    if gpu["unusable_reason"]:
        return str(gpu["unusable_reason"])
    return None if gpu["free"] else "not free"
