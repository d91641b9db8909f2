# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ways to give a container access to its GPUs and to no others: which are available, and what each requires.

Only the files of the host are read, below a given root directory.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories, specification_reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import stale_driver_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia.stale_device_nodes import (
    CdiUnit,
    compare,
    read_nodes,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import (
    CDI,
    DEVICE_REQUESTS,
    DEVICES,
    RUNTIME,
    VOLUME,
    Choice,
    IsolationError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia import (
    image_requirements,
    toolkit_refusals,
    toolkit_settings,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.toolkit_refusals import runtime_mode
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState, version_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toolkit_cdi_units
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.version_compatibility import ENGINES

# Most preferred first. The first two add the device nodes to the container's own specification, so the access persists
# after `systemctl daemon-reload`.
PREFERENCE = (CDI, VOLUME, RUNTIME, DEVICE_REQUESTS)

RUNTIME_CONFIG = toolkit_settings.PATH
_RUNTIME_BINARY = re.compile(r"(?:^|/)nvidia-container-runtime(?:\.\w+)?$")
_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
_TOOLKIT = "NVIDIA's container toolkit"


def choose(
    requested: str,
    engine: EngineState,
    host: IsolationHost,
    units: Sequence[Unit],
    capabilities: Sequence[str],
    *,
    current: str | None = None,
) -> Choice:
    """Return the requested isolation. For `auto`, prefer the container's current one, then the order of preference."""
    if requested == DEVICES:
        raise IsolationError(f"isolation={DEVICES} gives no driver libraries to a container. Set isolation={VOLUME}.")
    obstacles = {name: find_obstacle(name, engine, host, units, capabilities) for name in PREFERENCE}
    available = [name for name in PREFERENCE if not obstacles[name]]
    if requested != "auto":
        if obstacles[requested]:
            raise IsolationError(
                f"isolation={requested} is not available: {obstacles[requested]}. "
                + (f"Available: {', '.join(available)}." if available else f"None is available: {_join(obstacles)}.")
            )
        return Choice(requested, f"isolation={requested} is set")
    if not available:
        raise IsolationError(f"No isolation is available: {_join(obstacles)}.")
    if current in available and current != available[0]:
        return Choice(current, f"the container already uses {current}; {available[0]} is also available")
    skipped = [f"{name}: {obstacles[name]}" for name in PREFERENCE[: PREFERENCE.index(available[0])]]
    reason = f"{available[0]} is the first available isolation"
    return Choice(available[0], f"{reason} ({'; '.join(skipped)})" if skipped else reason)


def find_obstacle(
    name: str, engine: EngineState, host: IsolationHost, units: Sequence[Unit], capabilities: Sequence[str]
) -> str | None:
    """Return why an isolation is not available, or None if it is."""
    if name == CDI:
        return _cdi_obstacle(engine, host, units, capabilities)
    if name == VOLUME:
        return _volume_obstacle(host, units, capabilities)
    if name == RUNTIME:
        return _runtime_obstacle(engine, host, units, capabilities)
    return _device_requests_obstacle(engine, host, units, capabilities)


def cdi_device(
    unit: Unit, specs: specification_reader.Specs, kind: str | None = None
) -> specification_reader.CdiDevice | None:
    """Return the CDI device of a unit, of the given kind, else of NVIDIA's or of one that this collection wrote."""
    if kind:
        usable = [device for device in specs.devices.values() if device.kind == kind]
    else:
        usable = [
            device for device in specs.devices.values() if device.kind == stale_driver_version.KIND or device.ours
        ]
    by_uuid = [device for device in usable if device.name == unit.uuid]
    if by_uuid:
        return min(by_uuid, key=lambda device: (device.kind != stale_driver_version.KIND, device.kind))
    device = specs.devices.get(f"{kind or stale_driver_version.KIND}={unit.index}")
    # The GPU with this index may have changed since the specification was written, so the node must match.
    if device is not None and f"/dev/nvidia{unit.gpu.minor}" in device.nodes:
        return device
    return None


def runtime_name(engine: EngineState, host: IsolationHost) -> str | None:
    """Return NVIDIA's runtime: the registered name, or for Podman the path of the binary."""
    if "nvidia" in engine.runtimes:
        return "nvidia"
    for name, path in sorted(engine.runtimes.items()):
        if _RUNTIME_BINARY.search(path or ""):
            return name
    if engine.name == "podman":
        return host.program(("nvidia-container-runtime",))
    return None


def _join(obstacles: Mapping[str, str | None]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in obstacles.items() if text)


def _cdi_obstacle(
    engine: EngineState, host: IsolationHost, units: Sequence[Unit], capabilities: Sequence[str]
) -> str | None:
    cdi_since, cdi_07_since = ENGINES[engine.name]
    if engine.version_key < version_key(cdi_since):
        return f"{engine} does not support CDI, which requires {engine.name} {cdi_since} or later"
    if not engine.cdi_dirs:
        return f"CDI is disabled in {engine}: set features.cdi in daemon.json and restart docker"
    for unit in units:
        device = cdi_device(unit, host.specs, host.cdi_kind)
        if device is None:
            broken = f"; {'; '.join(host.specs.broken)}" if host.specs.broken else ""
            kind = f" of kind {host.cdi_kind}" if host.cdi_kind else ""
            places = ", ".join(engine.cdi_dirs)
            return f"no CDI specification{kind} in {places} names {unit}{broken}{_of_others(unit, host)}"
        if device.qualified in host.specs.conflicts:
            one, other = host.specs.conflicts[device.qualified]
            return (
                f"{engine.name} rejects CDI device {device.qualified}, because {one} and {other} define it: remove one"
            )
        stale = stale_reason(unit, host, capabilities, host.cdi_kind)
        if stale:
            return stale
        if host.needs_graphics and not any(path.endswith("/10_nvidia.json") for path in device.mounted_at):
            return f"the CDI specification {device.path} has no files for graphics"
        if device.missing:
            return f"the CDI specification {device.path} is stale: it names {device.missing[0]}, which does not exist"
        if version_key(device.version) >= (0, 7) and engine.version_key < version_key(cdi_07_since):
            return (
                f"the CDI specification {device.path} has version {device.version}, which {engine} cannot read: "
                f"{engine.name} {cdi_07_since} or later is required"
            )
    return None


def _of_others(unit: Unit, host: IsolationHost) -> str:
    """Name a device of a kind that is not used without being asked for."""
    others = sorted(device.kind for device in host.specs.devices.values() if device.name == unit.uuid)
    return f" (kind {others[0]} names it: set cdi_kind to use it)" if others and not host.cdi_kind else ""


def stale_reason(
    unit: Unit, host: IsolationHost, capabilities: Sequence[str], kind: str | None = stale_driver_version.KIND
) -> str | None:
    """Return why the CDI device of a unit cannot be trusted: it differs from the host, or cannot be compared."""
    device = cdi_device(unit, host.specs, kind)
    return stale_device_reason(device, [unit], host, capabilities) if device else None


def stale_device_reason(
    device: specification_reader.CdiDevice, units: Sequence[Unit], host: IsolationHost, capabilities: Sequence[str]
) -> str | None:
    """Return why a CDI device that stands for these units cannot be trusted, or None."""
    is_of_unit = directories.real(device.path) == directories.real(toolkit_cdi_units.SPECIFICATION)
    has_unit = is_of_unit and any(host.has(path) for path in toolkit_cdi_units.UNIT_FILES)
    command = f"systemctl restart {toolkit_cdi_units.SERVICE}" if has_unit else None
    stale = stale_driver_version.stale_message(
        device.path, device.driver_versions, host.driver_version, ours=device.ours, command=command
    )
    if stale:
        return stale
    nodes = read_nodes(host.root, [unit.gpu.pci_bus_id for unit in units])
    found = compare([_described(unit) for unit in units], device.cdi_nodes, nodes, capabilities)
    if found.differences:
        text = f"for {device.qualified}, {' and '.join(found.differences)}"
        return stale_driver_version.different_message(device.path, text, ours=device.ours, command=command)
    if found.unknown:
        return f"the CDI specification {device.path} cannot be compared with the host: {'; '.join(found.unknown)}"
    return None


def _described(unit: Unit) -> CdiUnit:
    gi, ci = unit.partition if unit.is_partition else (None, None)
    return CdiUnit(str(unit), unit.gpu.minor, unit.gpu.pci_bus_id, gi, ci, is_mig=unit.is_partition)


def _volume_obstacle(host: IsolationHost, units: Sequence[Unit], capabilities: Sequence[str]) -> str | None:
    if not host.driver_version:
        return "the driver version is unknown, so its driver volume cannot be found"
    if host.needs_graphics and host.graphics_fault:
        return host.graphics_fault
    for unit in units:
        if unit.gpu.minor is None:
            return f"the driver does not report the minor number of {unit}"
    needed = ["/dev/nvidiactl", *(f"/dev/nvidia{unit.gpu.minor}" for unit in units)]
    if "compute" in capabilities:
        needed.append("/dev/nvidia-uvm")
    absent = [node for node in needed if not host.has(node)]
    if absent:
        return (
            f"device node {absent[0]} does not exist (`nvidia-modprobe -c 0 -u` or the persistence daemon creates it)"
        )
    minors = nvidia_device_nodes.mig_minors(host.root)
    for unit in units:
        if unit.is_partition:
            for key in unit.mig_keys:
                if key not in minors:
                    return f"/proc/driver/nvidia-caps/mig-minors does not list the capability node {key} of {unit}"
                node = nvidia_device_nodes.capability_node(minors[key])
                if not host.has(node):
                    return f"capability node {node} of {unit} does not exist"
    return None


def _runtime_obstacle(
    engine: EngineState, host: IsolationHost, units: Sequence[Unit], capabilities: Sequence[str]
) -> str | None:
    name = runtime_name(engine, host)
    if name is None:
        if engine.name != "docker":
            return f"nvidia-container-runtime is not installed (package nvidia-container-toolkit-base of {_TOOLKIT})"
        runtimes = ", ".join(sorted(engine.runtimes)) or "none"
        return (
            f"docker has no runtime nvidia, only {runtimes} (install {_TOOLKIT} and register it in daemon.json: "
            "`nvidia-ctk runtime configure --runtime=docker`, or module docker_daemon_config)"
        )
    program = engine.runtimes.get(name) if engine.name == "docker" else None
    if program and not host.program((program,)):
        return (
            f"runtime {name} of docker is registered as {program}, which does not exist (install {_TOOLKIT}, or remove "
            "the runtime from daemon.json)"
        )
    refusal = toolkit_refusals.of_runtime(engine, host, units, capabilities)
    if refusal:
        return refusal
    if runtime_mode(host) != "cdi":
        return None
    # The runtime reads its own directories, even if CDI is disabled in the engine.
    settings = host.toolkit
    own = dataclasses.replace(host, specs=stale_driver_version.read(settings.cdi_directories, host.root))
    reasons = (stale_reason(unit, own, capabilities, settings.cdi_kind) for unit in units)
    stale = next(filter(None, reasons), None)
    return f'{RUNTIME_CONFIG} sets mode = "cdi", and {stale}' if stale else None


def _device_requests_obstacle(
    engine: EngineState, host: IsolationHost, units: Sequence[Unit], capabilities: Sequence[str]
) -> str | None:
    if engine.name != "docker":
        return "only docker supports device requests"
    if engine.version_key < (19, 3):
        return f"{engine} does not support device requests, which require docker 19.03 or later"
    has_hook = host.program(_HOOKS) is not None
    by_cdi = requests_use_cdi(engine, host)
    stale = next(filter(None, (stale_reason(unit, host, capabilities) for unit in units)), None) if by_cdi else None
    if stale:
        return f"{engine} handles device requests through CDI, and {stale}"
    if not has_hook and not by_cdi:
        return (
            f"docker cannot find {_HOOKS[0]} (install {_TOOLKIT}, package nvidia-container-toolkit, and restart docker)"
        )
    if _lacks_restart(engine, host):
        return "docker started before NVIDIA's hook was installed, and searches for it only at startup: restart docker"
    if has_hook and not requests_use_cdi(engine, host, units):
        return toolkit_refusals.of_hook(engine, host, units, capabilities)
    return None


def _lacks_restart(engine: EngineState, host: IsolationHost) -> bool:
    """Return whether Docker has not searched for the hook since role nvidia_container_toolkit first installed it.

    The time of the hook's file says nothing, because an upgrade of the packages replaces the file.
    """
    try:
        installed = os.stat(host.path(owned.CONTAINER_TOOLKIT_RESTART_MARKER)).st_mtime
    except OSError:
        return False
    return engine.started is not None and engine.started < installed


def swarm_variables(host: IsolationHost) -> list[str]:
    """Return the environment variables from which NVIDIA's runtime reads the GPUs of a swarm's service."""
    return list(host.toolkit.swarm_variables)


def requirement_checker(name: str, engine: EngineState, host: IsolationHost, units: Sequence[Unit]) -> str:
    """Return whose rules count for the requirements of an image: see module `image`."""
    if name not in (RUNTIME, DEVICE_REQUESTS):
        return image_requirements.MODULE
    by_hook = runtime_mode(host) == "legacy" if name == RUNTIME else not requests_use_cdi(engine, host, units)
    return image_requirements.HOOK if by_hook and not host.toolkit.disables_requirements else image_requirements.NOBODY


def requests_use_cdi(engine: EngineState, host: IsolationHost, units: Sequence[Unit] = ()) -> bool:
    """Return whether Docker handles device requests through CDI instead of NVIDIA's hook.

    If a unit has no CDI device, Docker uses the hook: moby/moby, daemon/devices_nvidia_linux.go (docker-v29.2.0).
    """
    is_able = engine.version_key >= (29, 2) and bool(host.program(("nvidia-cdi-hook",)) and engine.cdi_dirs)
    return is_able and all(cdi_device(unit, host.specs, stale_driver_version.KIND) for unit in units)
