# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices, volumes and environment variables that give a container its GPUs, and the names of device nodes."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpus import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation import (
    CDI,
    DEFAULT_CAPABILITIES,
    DEVICE_REQUESTS,
    NONE,
    RUNTIME,
    VOLUME,
    Host,
    cdi_device,
    mig_keys,
    mig_minors,
    runtime_name,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import EngineState
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_volume

_NODES_MAJOR = 195
_CONTROL_MINORS = {255: "/dev/nvidiactl", 254: "/dev/nvidia-modeset"}
# Nodes that a container gets if they exist but does not require.
OPTIONAL_NODES = frozenset({"/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"})


@dataclass(frozen=True)
class Access:
    """The options that the engine's module gets in addition to the user's options."""

    isolation: str = NONE
    devices: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    device_ids: tuple[str, ...] = ()
    request_capabilities: tuple[str, ...] = ()
    runtime: str | None = None
    volumes: tuple[str, ...] = ()
    driver_volume: str | None = None
    # Whether the loader finds the driver's libraries only through LD_LIBRARY_PATH.
    needs_library_path: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


def access(
    name: str,
    engine: EngineState,
    host: Host,
    units: Sequence[Unit],
    capabilities: Sequence[str] | None,
    *,
    env: Mapping[str, str],
) -> Access:
    """Return the options that give access to the units.

    Without `capabilities`, the image decides. `env` combines the environments of the image and the user.
    """
    # Indexes can change at a reboot. Sorting by UUID prevents a needless recreation.
    units = sorted(units, key=lambda unit: unit.uuid)
    if name == CDI:
        devices = [cdi_device(unit, host.specs) for unit in units]
        return Access(
            isolation=CDI,
            cdi_devices=tuple(device.qualified for device in devices if device is not None),
            # Environment variables from a specification do not reach processes that `exec` starts.
            needs_library_path=any(
                device is not None and driver_volume.MOUNT_POINT in device.mounted_at for device in devices
            ),
            env=_disable_nvidia_runtime(env),
        )
    if name == VOLUME:
        return Access(
            isolation=VOLUME,
            devices=tuple(device_nodes(host, units, capabilities or DEFAULT_CAPABILITIES)),
            volumes=(driver_volume.mount_spec(host.driver_version or ""),),
            driver_volume=driver_volume.volume_name(host.driver_version or ""),
            needs_library_path=True,
            env=_disable_nvidia_runtime(env),
        )
    uuids = tuple(unit.uuid for unit in units)
    if name == RUNTIME:
        env = {"NVIDIA_VISIBLE_DEVICES": ",".join(uuids)}
        if capabilities is not None:
            env["NVIDIA_DRIVER_CAPABILITIES"] = ",".join(capabilities)
        return Access(isolation=RUNTIME, runtime=runtime_name(engine, host), env=env)
    return Access(isolation=DEVICE_REQUESTS, device_ids=uuids, request_capabilities=("gpu", *(capabilities or ())))


def no_access(env: Mapping[str, str]) -> Access:
    """Return the options that prevent access to GPUs, even if NVIDIA's runtime is the default runtime."""
    return Access(env=_disable_nvidia_runtime(env))


def device_nodes(host: Host, units: Sequence[Unit], capabilities: Sequence[str]) -> list[str]:
    """Return the device nodes of the units and the control nodes that the capabilities require."""
    nodes = ["/dev/nvidiactl"]
    if "compute" in capabilities or "video" in capabilities:
        nodes += ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    if "graphics" in capabilities or "display" in capabilities:
        nodes.append("/dev/nvidia-modeset")
    nodes = [node for node in nodes if host.has(node)]
    nodes += [f"/dev/nvidia{unit.gpu.minor}" for unit in units]
    minors = mig_minors(host)
    for unit in units:
        if unit.is_mig:
            nodes += [f"/dev/nvidia-caps/nvidia-cap{minors[key]}" for key in mig_keys(unit) if key in minors]
        elif "graphics" in capabilities or "display" in capabilities:
            nodes += _drm_nodes(host, unit)
    return list(dict.fromkeys(nodes))


def canonical_nodes(host: Host, path: str) -> list[str]:
    """Return the nodes that a path refers to, under the driver's names: /dev/char/195:2 is /dev/nvidia2."""
    full = host.path(path)
    if path.rstrip("/") in ("/dev/nvidia-caps", "/dev/dri") and os.path.isdir(full):
        return [f"{path.rstrip('/')}/{name}" for name in sorted(os.listdir(full))]
    link = re.match(r"^/dev/char/(\d+):(\d+)$", path)
    if link:
        major, minor = int(link.group(1)), int(link.group(2))
    else:
        try:
            status = os.stat(full)
        except OSError:
            return [path]
        if not stat.S_ISCHR(status.st_mode):
            return [path]
        major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    if major == _NODES_MAJOR:
        return [_CONTROL_MINORS.get(minor) or f"/dev/nvidia{minor}"]
    capabilities = re.search(r"^\s*(\d+)\s+nvidia-caps$", host.read("/proc/devices"), re.MULTILINE)
    if capabilities and major == int(capabilities.group(1)):
        return [f"/dev/nvidia-caps/nvidia-cap{minor}"]
    return [path]


def _disable_nvidia_runtime(env: Mapping[str, str]) -> dict[str, str]:
    """Prevent NVIDIA's runtime, if it is the default runtime, from adding the GPUs that the environment requests."""
    requests_gpus = env.get("NVIDIA_VISIBLE_DEVICES") not in (None, "", "void") or env.get("CUDA_VERSION")
    return {"NVIDIA_VISIBLE_DEVICES": "void"} if requests_gpus else {}


def _drm_nodes(host: Host, unit: Unit) -> list[str]:
    directory = host.path(f"/sys/bus/pci/devices/{unit.gpu.pci_bus_id}/drm")
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    return [
        f"/dev/dri/{name}" for name in names if re.match(r"^(card|renderD)\d+$", name) and host.has(f"/dev/dri/{name}")
    ]
