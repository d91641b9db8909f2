# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why an isolation is not available for NVIDIA's GPUs in an engine on this host."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import stale_driver_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import CDI, RUNTIME, VOLUME
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia import toolkit_refusals, toolkit_settings
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.cdi_device_of_gpu import (
    cdi_device,
    stale_reason,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.device_requests_by_cdi_or_hook import (
    requests_use_cdi,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.runtime_name import runtime_name
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.toolkit_refusals import runtime_mode
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState, version_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.version_compatibility import ENGINES

RUNTIME_CONFIG = toolkit_settings.PATH


_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")


_TOOLKIT = "NVIDIA's container toolkit"


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
