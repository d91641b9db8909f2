# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices, volumes and environment variables that give a container its GPUs, and the names of device nodes."""

from __future__ import annotations

import os
import platform
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import (
    CDI,
    DEVICE_REQUESTS,
    RUNTIME,
    VOLUME,
    IsolationError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.driver_capabilities import (
    DEFAULT_CAPABILITIES,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_choice import (
    IsolationHost,
    cdi_device,
    requests_use_cdi,
    runtime_name,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes as nvidia_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files, driver_volume, file_mounts
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume.complete_graphics import CAPABILITIES as GRAPHICS

_NODES_MAJOR = 195
_CONTROL_MINORS = {255: "/dev/nvidiactl", 254: "/dev/nvidia-modeset"}
# Values of the option `libraries`. The other one is VOLUME.
FILES = "files"
# Where a container finds the files of the driver volume, after the directories of the image.
_SEARCH_PATHS = {
    "LD_LIBRARY_PATH": tuple(f"{driver_volume.MOUNT_POINT}/{name}" for name in ("lib64", "lib")),
    "PATH": (f"{driver_volume.MOUNT_POINT}/bin",),
}


@dataclass(frozen=True)
class Libraries:
    """How a container with isolation=volume gets the driver's libraries."""

    # The option `libraries`: FILES or VOLUME.
    mode: str
    # The directory of the driver volume on the host.
    directory: str
    # The volumes of the user, as written.
    user_volumes: tuple[str, ...] = ()
    # Whether an existing volume has all files that the container needs.
    is_complete: bool = True


def access(
    name: str,
    engine: EngineState,
    host: IsolationHost,
    units: Sequence[Unit],
    capabilities: Sequence[str] | None,
    *,
    env: Mapping[str, str],
    libraries: Libraries,
) -> Access:
    """Return the options that give access to the units.

    Without `capabilities`, the image decides. `env` combines the environments of the image and the user. Only isolation
    `volume` uses `libraries`.
    """
    swarm = host.toolkit.swarm_variables
    # Indexes can change at a reboot. Sorting by UUID prevents a needless recreation.
    units = sorted(units, key=lambda unit: unit.uuid)
    if name == CDI:
        devices = [cdi_device(unit, host.specs, host.cdi_kind) for unit in units]
        return Access(
            isolation=CDI,
            cdi_devices=tuple(device.qualified for device in devices if device is not None),
            **_disabled_runtime(env, swarm),
        )
    if name == VOLUME:
        return _by_volume(host, units, capabilities or DEFAULT_CAPABILITIES, env, libraries)
    uuids = tuple(unit.uuid for unit in units)
    # NVIDIA's runtime and its hook read these variables instead of NVIDIA_VISIBLE_DEVICES. None of them may stay empty.
    visible = {name: ",".join(uuids) for name in swarm if name in env}
    if name == RUNTIME:
        given = {"NVIDIA_VISIBLE_DEVICES": ",".join(uuids)}
        if capabilities is not None:
            given["NVIDIA_DRIVER_CAPABILITIES"] = ",".join(capabilities)
        runtime = runtime_name(engine, host)
        return Access(isolation=RUNTIME, runtime=runtime, env={**given, **visible}, guards=tuple(visible))
    # Docker sets NVIDIA_VISIBLE_DEVICES for the hook, but not if it handles the request through CDI.
    by_cdi = requests_use_cdi(engine, host, units)
    return Access(
        isolation=DEVICE_REQUESTS,
        device_ids=uuids,
        request_capabilities=("gpu", *(capabilities or ())),
        **(_disabled_runtime(env, swarm) if by_cdi else {"env": visible, "guards": tuple(visible)}),
    )


def _by_volume(
    host: IsolationHost,
    units: Sequence[Unit],
    capabilities: Sequence[str],
    env: Mapping[str, str],
    libraries: Libraries,
) -> Access:
    """Return the device nodes of the units, and the driver's files from the driver volume or the host."""
    devices = device_nodes(host, units, capabilities)
    mounts, covering = _file_mounts(host, libraries, capabilities)
    has_drm = any(node.startswith("/dev/dri/") for node in devices)
    links = nvidia_nodes.DRM_LINKS
    return Access(
        isolation=VOLUME,
        devices=tuple(devices),
        volumes=(
            driver_volume.mount_spec(host.driver_version or ""),
            *([f"{links}:{links}:ro"] if has_drm and host.has(links) else []),
        ),
        file_mounts=tuple(mount.option() for mount in mounts),
        driver_volume=driver_volume.volume_name(host.driver_version or ""),
        search_last=_SEARCH_PATHS if libraries.mode == VOLUME or covering else {},
        **_disabled_runtime(env, host.toolkit.swarm_variables),
        warnings=tuple(
            f"volume {volume} covers directories in which the driver's libraries would be mounted. Only processes "
            "with the container's LD_LIBRARY_PATH find the libraries. Processes of `su -`, sudo and sshd do not."
            for volume in covering
        ),
    )


def no_access(env: Mapping[str, str], swarm: Collection[str] = ()) -> Access:
    """Return the options that prevent access to GPUs, even if NVIDIA's runtime is the default runtime."""
    return Access(**_disabled_runtime(env, swarm))


def with_unknown_variables(host: IsolationHost, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a container that gets more variables, for example of a file: each can request GPUs."""
    return {**dict.fromkeys(("NVIDIA_VISIBLE_DEVICES", *host.toolkit.swarm_variables), "unknown"), **env}


def device_nodes(host: IsolationHost, units: Sequence[Unit], capabilities: Sequence[str]) -> list[str]:
    """Return the device nodes of the units and the control nodes that the capabilities require."""
    nodes = ["/dev/nvidiactl"]
    if "compute" in capabilities or "video" in capabilities:
        nodes += ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    if "graphics" in capabilities or "display" in capabilities:
        nodes.append("/dev/nvidia-modeset")
    nodes = [node for node in nodes if host.has(node)]
    nodes += [nvidia_nodes.gpu_node(unit.gpu.minor) for unit in units if unit.gpu.minor is not None]
    minors = nvidia_nodes.mig_minors(host.root)
    for unit in units:
        if unit.is_partition:
            nodes += [nvidia_nodes.capability_node(minors[key]) for key in unit.mig_keys if key in minors]
        if needs_drm_nodes(unit, capabilities):
            nodes += nvidia_nodes.drm_nodes(unit.gpu.pci_bus_id, host.root)
    return list(dict.fromkeys(nodes))


def needs_drm_nodes(unit: Unit, capabilities: Sequence[str]) -> bool:
    """Return whether a container with the capabilities gets the DRM nodes of the unit's GPU."""
    has_graphics = not unit.is_partition or nvidia_nodes.has_graphics(unit.profile)
    return has_graphics and ("graphics" in capabilities or "display" in capabilities)


def canonical_nodes(host: IsolationHost, path: str) -> list[str]:
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
        return [_CONTROL_MINORS.get(minor) or nvidia_nodes.gpu_node(minor)]
    capabilities = re.search(r"^\s*(\d+)\s+nvidia-caps$", host.read("/proc/devices"), re.MULTILINE)
    if capabilities and major == int(capabilities.group(1)):
        return [nvidia_nodes.capability_node(minor)]
    return [path]


def _file_mounts(
    host: IsolationHost, libraries: Libraries, capabilities: Collection[str]
) -> tuple[list[file_mounts.FileMount], list[str]]:
    """Return the mounts of the driver's files, and the volumes of the user that cover some of their directories.

    The engine would create a missing file in the user's volume, or fail if that volume is read-only.
    """
    if libraries.mode == VOLUME and not {*GRAPHICS} & {*capabilities}:
        return [], []
    targets = {_target(volume): volume for volume in libraries.user_volumes}
    mounts, covering = [], []
    files = file_mounts.files_for(_files(host, libraries), capabilities)
    # LD_LIBRARY_PATH is only for libraries.
    mounts_of = file_mounts.configuration_mounts if libraries.mode == VOLUME else file_mounts.mounts_of
    for mount in mounts_of(files, driver_files.normal_machine(platform.machine())):
        parents = [target for target in targets if (mount.target + "/").startswith(target.rstrip("/") + "/")]
        covering += [targets[target] for target in parents if target != mount.target]
        mounts += [] if parents else [mount]
    return mounts, list(dict.fromkeys(covering))


def _files(host: IsolationHost, libraries: Libraries) -> list[driver_files.DriverFile]:
    """Return the files of the driver volume, which may not exist or not be complete yet."""
    version, directory = host.driver_version or "", libraries.directory
    found = file_mounts.files_of_volume(directory, host.root)
    core = {f"{base}.so.{version}" for base in driver_files.CORE_LIBRARIES}
    if libraries.is_complete and any(file.name in core for file in found):
        return found
    try:
        files = driver_files.find(
            version,
            platform.machine(),
            host.path(host.driver_root),
            search_path=os.environ.get("PATH", "").split(":") if host.driver_root == "/" else (),
            ignore=[host.path(directory)],
        )
    except driver_files.DriverFilesError as error:
        raise IsolationError(f"The driver volume cannot be created: {error}") from error
    return file_mounts.as_in_volume(files, directory)


def _target(volume: str) -> str:
    """Return the path in the container of a volume `source:target:options` or `target`."""
    parts = volume.split(":")
    return parts[1] if len(parts) > 1 and parts[1].startswith("/") else parts[0]


def _disabled_runtime(env: Mapping[str, str], swarm: Collection[str]) -> dict[str, Any]:
    """Prevent NVIDIA's runtime, if it is the default runtime, from adding the GPUs that the environment requests.

    A variable of a swarm has priority over NVIDIA_VISIBLE_DEVICES, and an empty one requests nothing.
    """
    names = [name for name in ("NVIDIA_VISIBLE_DEVICES", *swarm) if env.get(name, "") not in ("", "void")]
    if env.get("CUDA_VERSION"):
        names = list(dict.fromkeys(["NVIDIA_VISIBLE_DEVICES", *names]))
    return {"env": dict.fromkeys(names, "void"), "guards": tuple(names)}
