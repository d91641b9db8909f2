# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a container saw, and whether this proves its method. Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Inventory
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.inventory import inventory_from_facts
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.libcuda import (
    DEVICE_UNAVAILABLE,
    NO_DEVICE,
    OUT_OF_MEMORY,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.access_methods import LOOK_AT, AccessMethod
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.program_in_container import MARK

PASSED, NOT_PROBED = "passed", "not probed"
# Another program may use all memory of a GPU, or the GPU exclusively. Then the method still works.
_BUSY = frozenset((OUT_OF_MEMORY, DEVICE_UNAVAILABLE))
_SMI_UUID = re.compile(r"\(UUID: ((?:GPU|MIG)-[^)\s]+)\)")
_LONGEST_OUTPUT = 600


@dataclass(frozen=True)
class Seen:
    """The output of the program. `error`: why it shows nothing. `cuda`: its check with CUDA, None without one."""

    gpus: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    cuda: Mapping[str, Any] | None = None
    # Whether the image has no Python, so that nvidia-smi listed the GPUs.
    by_smi: bool = False

    def inventory(self) -> Inventory:
        """Return the GPUs and MIG devices."""
        return inventory_from_facts(
            [{**gpu, "mig": {"enabled": gpu["mig"] is not None, "devices": gpu["mig"] or []}} for gpu in self.gpus]
        )

    def uuids(self) -> list[str]:
        """Return the UUIDs of the GPUs that a container can use: MIG devices in place of their GPUs."""
        return sorted(unit.uuid for unit in self.inventory().units)


def read(status: int, output: str) -> Seen:
    """Read the output of the program, or of nvidia-smi in an image without Python."""
    for line in output.splitlines():
        if line.startswith(MARK):
            found = json.loads(line[len(MARK) :])
            return Seen(found["gpus"], found["error"], found.get("cuda"))
    gpus: list[dict[str, Any]] = []
    for uuid in _SMI_UUID.findall(output) if status == 0 else ():
        if uuid.startswith("GPU-"):
            gpus.append({"index": len(gpus), "uuid": uuid, "mig": None})
        elif gpus:
            gpus[-1]["mig"] = [*(gpus[-1]["mig"] or ()), {"uuid": uuid, "index": len(gpus[-1]["mig"] or ())}]
    if gpus:
        return Seen(gpus, by_smi=True)
    text = " ".join(output.split())[-_LONGEST_OUTPUT:] or "no output"
    return Seen(error=f"the program ended with exit status {status}: {text}")


@dataclass(frozen=True)
class MethodResult:
    """The result of a method.

    `devices`: the IDs of the GPUs or chips in the container. `check`: passed, or why it was not probed. `problem`: why
    the method failed, as sentences.
    """

    method: AccessMethod
    devices: list[str]
    check: str
    problem: str | None = None


@dataclass
class ProofResult:
    """The methods with their results, and why the proof failed, as sentences. It passed if there are none."""

    results: list[MethodResult] = field(default_factory=list)
    # Why an engine does not offer a method, by "engine isolation".
    obstacles: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def methods(self) -> list[dict[str, Any]]:
        """Return the results as plain values."""
        return [
            {
                "engine": item.method.engine,
                "isolation": item.method.isolation,
                "command": item.method.command(),
                "devices": item.devices,
                "check": item.check,
                "passed": item.problem is None,
            }
            for item in self.results
        ]


def evaluate(
    method: AccessMethod, expected: Seen, seen: Seen, host_cuda: Callable[[], Mapping[str, Any] | None]
) -> MethodResult:
    """Compare what a container sees with what the host has.

    `host_cuda` checks CUDA on the host. It is called only if CUDA fails in the container.
    """
    wanted, uuids = expected.uuids(), seen.uuids()
    if seen.by_smi:
        # nvidia-smi does not say whether a GPU without MIG devices is in MIG mode.
        empty = {gpu["uuid"] for gpu in expected.gpus if gpu["mig"] == []}
        uuids = [uuid for uuid in uuids if uuid not in empty]
    if seen.error:
        return MethodResult(method, uuids, NOT_PROBED, _problem(method, f"fails: {seen.error}", wanted, uuids))
    if uuids != wanted:
        return MethodResult(
            method, uuids, NOT_PROBED, _problem(method, "does not see the same GPUs as the host", wanted, uuids)
        )
    if seen.by_smi:
        return MethodResult(method, uuids, f"{NOT_PROBED}: the image has no Python")
    if seen.cuda is None or seen.cuda["passed"]:
        return MethodResult(method, uuids, PASSED if seen.cuda else f"{NOT_PROBED}: no GPU can compute")
    if _is_busy(seen.cuda):
        return MethodResult(method, uuids, f"{NOT_PROBED}: other programs use the GPUs ({seen.cuda['error']})")
    of_host = host_cuda()
    if of_host is not None and of_host["missing"]:
        return MethodResult(method, uuids, f"{NOT_PROBED}: the host has no usable libcuda ({of_host['error']})")
    if of_host is not None and {*of_host["codes"]} == {*seen.cuda["codes"]} == {NO_DEVICE}:
        # On a simulated host, the real libcuda finds no device. NVML shows the GPUs in the container as on the host.
        return MethodResult(method, uuids, f"{NOT_PROBED}: CUDA finds no device on the host, either")
    text = f"sees the GPUs but cannot compute: {seen.cuda['error'].rstrip('.')}"
    if of_host is not None and not of_host["passed"]:
        reason = of_host["error"].rstrip(".")
        return MethodResult(method, uuids, NOT_PROBED, f"CUDA also fails on the host: {reason}. A container {text}.")
    return MethodResult(method, uuids, NOT_PROBED, _problem(method, text, wanted, uuids))


def failed_start(method: AccessMethod, reason: str, expected: Seen) -> MethodResult:
    """Return the result of a container that the engine did not start."""
    return MethodResult(method, [], NOT_PROBED, _problem(method, f"does not start: {reason}", expected.uuids(), []))


def _is_busy(cuda: Mapping[str, Any]) -> bool:
    return bool(cuda["codes"]) and all(code in _BUSY for code in cuda["codes"])


def _problem(method: AccessMethod, what: str, expected: Sequence[str], seen: Sequence[str]) -> str:
    parts = [
        f"A container of '{method.command()}' {what.rstrip('.')}.",
        f"Expected: {', '.join(expected) or 'no GPU'}. Seen: {', '.join(seen) or 'no GPU'}.",
        f"{LOOK_AT[method.isolation]}.",
    ]
    return " ".join(parts)
