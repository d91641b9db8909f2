# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The methods with which an engine gives all GPUs to a container: which of them a host offers, and their options.

A method is an isolation of module gpu_container, with the options that users give to `docker run` and `podman run`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import specification_kinds
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import (
    CDI,
    DEVICE_REQUESTS,
    RUNTIME,
    VOLUME,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia import (
    access_by_isolation as container_access,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia import (
    access_risks,
    driver_files_of_container,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.cdi_device_of_gpu import (
    stale_device_reason,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.driver_capabilities import (
    DEFAULT_CAPABILITIES,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_obstacles import find_obstacle
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_volume

ISOLATIONS = (DEVICE_REQUESTS, RUNTIME, CDI, VOLUME)
_ALL = f"{specification_kinds.KIND}=all"
# What to look at when a container does not see its GPUs.
LOOK_AT = {
    CDI: (
        "Compare 'nvidia-smi -L' on the host with the specifications in /etc/cdi and /var/run/cdi, and write them again"
    ),
    RUNTIME: (
        "Check /etc/nvidia-container-runtime/config.toml, set debug in its table nvidia-container-runtime, and read "
        "that log"
    ),
    DEVICE_REQUESTS: (
        "Check the journal of docker.service, and restart Docker if it started before NVIDIA's container toolkit was "
        "installed"
    ),
    VOLUME: "Check the device nodes /dev/nvidia*, and run playbook gpufleet.hosts.site for the driver volume",
}


@dataclass(frozen=True)
class AccessMethod:
    """A way to give all GPUs to a container. `gpus`: whether the container gets `--gpus all`."""

    engine: str
    isolation: str
    gpus: bool = False
    runtime: str | None = None
    cdi_devices: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    env: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.engine} {self.isolation}"

    def start(self) -> list[str]:
        """Return the command line that a user would type, without image and program."""
        program = "ctr" if self.engine == "containerd" else self.engine
        options = [
            *(["--gpus", "all"] if self.gpus else []),
            *(word for name in (*self.cdi_devices, *self.devices) for word in ("--device", name)),
            *(word for volume in self.volumes for word in ("--volume", volume)),
            *(word for entry in self.env for word in ("--env", entry)),
        ]
        runtime = [self.runtime] if self.runtime else []
        if self.engine == "podman":
            # Podman's --runtime is an option of the program.
            return [program, *(word for path in runtime for word in ("--runtime", path)), "run", *options]
        flag = "--runc-binary" if self.engine == "containerd" else "--runtime"
        return [program, "run", *(word for name in runtime for word in (flag, name)), *options]

    def command(self) -> str:
        """Return the command line as text."""
        return " ".join(self.start())


@dataclass(frozen=True)
class Offer:
    """The methods of an engine, and why it does not offer the other ones, by isolation."""

    methods: tuple[AccessMethod, ...]
    obstacles: dict[str, str]


def offered(
    engine: EngineState, host: IsolationHost, units: Sequence[Unit], has_volume: Callable[[str], bool]
) -> Offer:
    """Return the methods of an engine. `has_volume`: whether the engine knows a volume by this name."""
    methods, obstacles = [], {}
    for isolation in ISOLATIONS:
        obstacle = _obstacle(isolation, engine, host, units, has_volume)
        if obstacle:
            obstacles[isolation] = obstacle
        else:
            methods.append(_method(isolation, engine, host, units))
    return Offer(tuple(methods), obstacles)


def _obstacle(
    isolation: str, engine: EngineState, host: IsolationHost, units: Sequence[Unit], has_volume: Callable[[str], bool]
) -> str | None:
    if isolation == VOLUME and engine.name == "containerd":
        return "containerd has no volumes"
    found = find_obstacle(isolation, engine, host, units, DEFAULT_CAPABILITIES)
    if found:
        return found
    if isolation == CDI and _ALL in host.specs.devices:
        stale = stale_device_reason(host.specs.devices[_ALL], units, host, DEFAULT_CAPABILITIES)
        if stale:
            return stale
    if isolation == VOLUME:
        name = driver_volume.volume_name(host.driver_version or "")
        if not has_volume(name):
            return f"{engine.name} has no volume {name}"
    return access_risks.selinux_risk(isolation, engine, host, {})


def _method(isolation: str, engine: EngineState, host: IsolationHost, units: Sequence[Unit]) -> AccessMethod:
    if isolation == DEVICE_REQUESTS:
        return AccessMethod(engine.name, isolation, gpus=True)
    # One mount instead of many: the program of the proof gets LD_LIBRARY_PATH.
    libraries = driver_files_of_container.Libraries(mode=VOLUME, directory="")
    given = container_access.access(isolation, engine, host, units, DEFAULT_CAPABILITIES, env={}, libraries=libraries)
    if isolation == RUNTIME:
        env = ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility")
        # containerd's client takes the program of the runtime.
        runtime = engine.runtimes["nvidia"] if engine.name == "containerd" else given.runtime
        return AccessMethod(engine.name, isolation, runtime=runtime, env=env)
    if isolation == CDI:
        # The specification of another tool may have no device for all GPUs.
        names = (_ALL,) if _ALL in host.specs.devices else given.cdi_devices
        return AccessMethod(engine.name, isolation, cdi_devices=names)
    library_path = driver_volume.container_env().get("LD_LIBRARY_PATH", "")
    return AccessMethod(
        engine.name,
        isolation,
        devices=given.devices,
        volumes=given.volumes,
        # The default runtime may be NVIDIA's, which adds GPUs and libraries if the image requests them.
        env=("NVIDIA_VISIBLE_DEVICES=void", f"LD_LIBRARY_PATH={library_path}"),
    )
