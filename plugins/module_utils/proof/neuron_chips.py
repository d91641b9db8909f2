# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof for AWS Neuron's chips: a container has exactly the device nodes of the usable chips, and can open them.

Containers need only the nodes, and nothing here computes: programs for the chips come from the vendor's compiler.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import CDI, DEVICES, RUNTIME
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.neuron.vendor import (
    RUNTIME_NAME,
    VISIBLE_DEVICES,
    NeuronVendor,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import (
    SelectionError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.access_methods import AccessMethod, Offer
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.method_results import (
    NOT_PROBED,
    PASSED,
    MethodResult,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.program_in_container import MARK

TITLE = "AWS Neuron chips"
ISOLATIONS = (CDI, DEVICES, RUNTIME)
_NODES = ("--nodes", "neuron")
_LONGEST_OUTPUT = 600
# The nodes have mode 0666, so only a security module refuses.
_DENIED = os.strerror(errno.EACCES)
_SELINUX = "If SELinux is enforcing, run 'setsebool -P container_use_devices on'."
_LOOK_AT = {
    CDI: "Restart gpufleet-neuron-cdi.service, which writes the CDI specification again",
    DEVICES: "Compare 'ls -l /dev/neuron*' on the host and in the container",
    RUNTIME: "Check the runtime neuron in daemon.json, and the journal of docker.service",
}


def offered(vendor: NeuronVendor, engine: EngineState, units: Sequence[Unit]) -> Offer:
    """Return the methods with which an engine gives all chips to a container."""
    methods, obstacles = [], {}
    for isolation in ISOLATIONS:
        obstacle = vendor.obstacle(isolation, engine, units)
        if obstacle:
            obstacles[isolation] = obstacle
        else:
            methods.append(_method(isolation, vendor, engine, units))
    return Offer(tuple(methods), obstacles)


def _method(isolation: str, vendor: NeuronVendor, engine: EngineState, units: Sequence[Unit]) -> AccessMethod:
    if isolation == CDI:
        return AccessMethod(engine.name, CDI, cdi_devices=vendor.cdi_names(engine, units))
    if isolation == RUNTIME:
        indexes = ",".join(str(unit.gpu.index) for unit in units)
        return AccessMethod(engine.name, RUNTIME, runtime=RUNTIME_NAME, env=(f"{VISIBLE_DEVICES}={indexes}",))
    return AccessMethod(engine.name, DEVICES, devices=tuple(node for unit in units for node in sorted(unit.nodes)))


class ProofChips:
    """AWS Neuron's chips, as the driver shows them on the host. See prove.ProofSubject."""

    title = TITLE
    options = _NODES
    image_variable = None
    skip = "To verify without containers, set verify_container to false."

    def __init__(self, vendor: NeuronVendor, run_program: Callable[..., tuple[int, str]]) -> None:
        self.problem: str | None = None
        self.units: Sequence[Unit] = ()
        self._expected: dict[str, Mapping[str, Any]] = {}
        self._names: dict[str, str] = {}
        try:
            vendor.observe()
        except SelectionError as error:
            self.problem = f"The proof cannot run in a container: {error}"
            return
        units = (unit for unit in vendor.inventory.units if unit.gpu.health_state != schema.LOST)
        self.units = sorted(units, key=lambda unit: unit.order)
        self._names = {node: unit.uuid for unit in self.units for node in unit.nodes}
        seen = _read(*run_program(*_NODES))
        if isinstance(seen, str):
            self.problem = f"The proof cannot run in a container: on the host, {seen.rstrip('.')}."
            return
        self._expected = {path: one for path, one in seen.items() if path in self._names}
        if not self._expected:
            self.problem = "The proof cannot run in a container: the host has no usable AWS Neuron chip."

    def evaluate(self, method: AccessMethod, status: int, output: str) -> MethodResult:
        """Compare the nodes, their numbers, and whether they can be opened."""
        seen = _read(status, output)
        if isinstance(seen, str):
            return self._failed(method, f"fails: {seen}", {})
        if set(seen) != set(self._expected):
            return self._failed(method, f"sees {len(seen)} of {len(self._expected)} {TITLE}", seen)
        other = [path for path, one in seen.items() if one["device"] != self._expected[path]["device"]]
        if other:
            return self._failed(method, f"has another device as {other[0]}", seen)
        closed = [path for path, one in seen.items() if one["error"]]
        refused = [path for path in closed if seen[path]["error"] != self._expected[path]["error"]]
        if refused:
            reason = seen[refused[0]]["error"]
            found = self._failed(method, f"sees the chips but cannot open {', '.join(refused)}: {reason}", seen)
            return replace(found, problem=f"{found.problem} {_SELINUX}") if reason == _DENIED else found
        # The nodes of a simulated host have no driver.
        text = f"{NOT_PROBED}: {closed[0]} cannot be opened on the host, either" if closed else PASSED
        return MethodResult(method, self._ids(seen), text)

    def failed_start(self, method: AccessMethod, reason: str) -> MethodResult:
        """Return the result of a container that the engine did not start."""
        return self._failed(method, f"does not start: {reason}", {})

    def _ids(self, seen: Mapping[str, Any]) -> list[str]:
        return sorted(self._names.get(path, path) for path in seen)

    def _failed(self, method: AccessMethod, what: str, seen: Mapping[str, Any]) -> MethodResult:
        problem = (
            f"A container of '{method.command()}' {what.rstrip('.')}. Expected: {_listed(self._expected)}. Seen: "
            f"{_listed(seen)}. {_LOOK_AT[method.isolation]}."
        )
        return MethodResult(method, self._ids(seen), NOT_PROBED, problem)


def _listed(nodes: Mapping[str, Any]) -> str:
    return ", ".join(sorted(nodes, key=lambda path: (len(path), path))) or "none"


def _read(status: int, output: str) -> dict[str, Mapping[str, Any]] | str:
    """Return the nodes by path, or why the program shows none, as a part of a sentence."""
    for line in output.splitlines():
        if line.startswith(MARK):
            return {one["path"]: one for one in json.loads(line[len(MARK) :])}
    text = " ".join(output.split())[-_LONGEST_OUTPUT:] or "no output"
    return f"the program ended with exit status {status}: {text}"
