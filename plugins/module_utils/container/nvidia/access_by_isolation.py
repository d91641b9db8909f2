# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices, volumes and environment variables give a container its GPUs, for each isolation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import (
    CDI,
    DEVICE_REQUESTS,
    RUNTIME,
    VOLUME,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.cdi_device_of_gpu import (
    cdi_device,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.device_nodes_by_capability import (
    device_nodes,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.device_requests_by_cdi_or_hook import (
    requests_use_cdi,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.driver_capabilities import (
    DEFAULT_CAPABILITIES,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.driver_files_of_container import (
    SEARCH_PATHS,
    Libraries,
    mounted_files,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.no_gpus_from_default_runtime import (
    disabled_runtime,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.runtime_name import runtime_name
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes as nvidia_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_volume


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
            **disabled_runtime(env, swarm),
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
        **(disabled_runtime(env, swarm) if by_cdi else {"env": visible, "guards": tuple(visible)}),
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
    mounts, covering = mounted_files(host, libraries, capabilities)
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
        search_last=SEARCH_PATHS if libraries.mode == VOLUME or covering else {},
        **disabled_runtime(env, host.toolkit.swarm_variables),
        warnings=tuple(
            f"volume {volume} covers directories in which the driver's libraries would be mounted. Only processes "
            "with the container's LD_LIBRARY_PATH find the libraries. Processes of `su -`, sudo and sshd do not."
            for volume in covering
        ),
    )
