# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why NVIDIA's runtime and hook would refuse to start a container with GPUs, or start it without them, on this host.

The programs decide by their config.toml. The rules are those of NVIDIA/libnvidia-container and of
NVIDIA/nvidia-container-toolkit (v1.20.0, 5505e2f9): cmd/nvidia-container-runtime-hook, internal/{config,info,runtime}.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import stale_driver_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.toolkit_settings import (
    ACCEPT,
    AUTO,
    CDI,
    CSV,
    JIT_CDI,
    LEGACY,
    MODES,
    PATH,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes

_UNIT_DIRECTORIES = ("etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")
_LIBRARY_DIRECTORIES = (
    *("usr/lib64", "usr/lib/*-linux-gnu", "usr/lib/*-linux-gnu/nvidia/current", "usr/lib", "usr/local/nvidia/lib*"),
    *("lib64", "lib/*-linux-gnu", "lib"),
)
_TOOLKIT = "NVIDIA's container toolkit"


def runtime_mode(host: IsolationHost) -> str | None:
    """Return the mode of NVIDIA's runtime: auto, cdi, csv, jit-cdi or legacy. None: config.toml has no valid mode.

    `auto` became jit-cdi in the version of the toolkit that also has the unit nvidia-cdi-refresh (1.18:
    NVIDIA/nvidia-container-toolkit, CHANGELOG.md at d34b304). Before, it is legacy.
    """
    mode = host.toolkit.mode
    if mode == AUTO and any(host.has(f"/{place}/nvidia-cdi-refresh.service") for place in _UNIT_DIRECTORIES):
        return JIT_CDI
    return mode if mode in MODES else None


def of_runtime(
    engine: EngineState, host: IsolationHost, units: Sequence[Unit], capabilities: Collection[str]
) -> str | None:
    """Return why the runtime would not give the units to a container, or None."""
    fault = _of_file(host)
    if fault:
        return fault
    settings, mode = host.toolkit, runtime_mode(host)
    if mode is None:
        return f'{PATH} sets mode = "{settings.mode}", which the runtime does not know. Known modes: {", ".join(MODES)}'
    if not host.program(settings.runtimes):
        return (
            f"NVIDIA's runtime finds none of the OCI runtimes {', '.join(settings.runtimes)} (key runtimes in {PATH})"
        )
    if not settings.accepts_environment:
        return _ignored("the runtime")
    if mode == CSV:
        return f'{PATH} sets mode = "{CSV}", which is only for Tegra systems. Set the mode to auto'
    if mode == CDI:
        return _of_cdi(host, units)
    if mode in (JIT_CDI, AUTO):
        # Without the unit, the version of the toolkit is unknown, and so is what auto means.
        return _of_root(host) or _of_mig(host, units)
    return _of_cli(engine, host, units, capabilities)


def of_hook(
    engine: EngineState, host: IsolationHost, units: Sequence[Unit], capabilities: Collection[str]
) -> str | None:
    """Return why the hook, which Docker calls for --gpus, would not give the units to a container, or None."""
    fault = _of_file(host)
    if fault:
        return fault
    settings = host.toolkit
    if settings.mode not in (AUTO, LEGACY) and not settings.skips_mode_detection:
        return (
            f'{PATH} sets mode = "{settings.mode}", in which NVIDIA\'s hook refuses --gpus. Use isolation runtime or '
            "cdi, or set the mode to auto"
        )
    if not settings.accepts_environment:
        return _ignored("NVIDIA's hook")
    return _of_cli(engine, host, units, capabilities)


def _ignored(who: str) -> str:
    return f"{PATH} sets {ACCEPT} = false, so {who} ignores NVIDIA_VISIBLE_DEVICES"


def _of_file(host: IsolationHost) -> str | None:
    """Return what makes every program of the toolkit fail."""
    settings = host.toolkit
    if settings.error:
        return f"the programs of {_TOOLKIT} cannot read {PATH}: {settings.error}. Correct the file"
    if settings.ldconfig and not settings.ldconfig.startswith("@") and not settings.allows_ldconfig_of_container:
        return (
            f'{PATH} sets ldconfig = "{settings.ldconfig}". NVIDIA\'s programs refuse a program of the container. Set '
            f'"@{settings.ldconfig}", the program of the host'
        )
    return None


def _of_cli(
    engine: EngineState, host: IsolationHost, units: Sequence[Unit], capabilities: Collection[str]
) -> str | None:
    """Return why nvidia-container-cli would fail, which gives a container its GPUs in mode legacy."""
    settings = host.toolkit
    unsupported = sorted({*capabilities} - settings.capabilities)
    if unsupported:
        return f"supported-driver-capabilities in {PATH} does not contain {', '.join(unsupported)}"
    if not host.program((settings.cli or "nvidia-container-cli",)):
        named = f"{settings.cli} does not exist (key path in {PATH})" if settings.cli else "it is not installed"
        return f"NVIDIA's hook calls nvidia-container-cli, but {named}"
    program = (settings.ldconfig or "").lstrip("@")
    if program and not host.has(program):
        return f"the program {program} of the key ldconfig in {PATH} does not exist"
    if settings.no_cgroups and not engine.rootless:
        return (
            f"{PATH} sets no-cgroups = true, which is for rootless engines, so containers of {engine.name} may not "
            "open the device nodes of their GPUs. Set it to false"
        )
    if engine.rootless and not settings.no_cgroups:
        return (
            f"{engine.name} is rootless, so NVIDIA's hook may not change device cgroups. Set no-cgroups = true in "
            f"{PATH}"
        )
    return _of_root(host) or _of_mig(host, units)


def _of_root(host: IsolationHost) -> str | None:
    """Return why the programs do not find the driver below the root directory of the settings."""
    root = host.toolkit.root
    if root == "/":
        return None
    version = glob.escape(host.driver_version) if host.driver_version else "*"
    base = glob.escape(host.path(root))
    if any(glob.glob(os.path.join(base, place, f"libnvidia-ml.so.{version}")) for place in _LIBRARY_DIRECTORIES):
        return None
    return (
        f'{PATH} sets root = "{root}", where the programs of {_TOOLKIT} do not find driver {host.driver_version}. '
        "Remove the key root from the table nvidia-container-cli"
    )


def _of_mig(host: IsolationHost, units: Sequence[Unit]) -> str | None:
    minors = nvidia_device_nodes.mig_minors(host.root)
    keys = [key for unit in units if unit.is_partition for key in unit.mig_keys if key not in minors]
    return f"/proc/driver/nvidia-caps/mig-minors does not list the capability node {keys[0]}" if keys else None


def _of_cdi(host: IsolationHost, units: Sequence[Unit]) -> str | None:
    """Return why mode cdi would fail: it needs a device of its own kind and directories for each unit."""
    settings = host.toolkit
    specs = stale_driver_version.read(settings.cdi_directories, host.root)
    for unit in units:
        name = f"{settings.cdi_kind}={unit.uuid}"
        if name not in specs.devices or name in specs.conflicts:
            return (
                f'{PATH} sets mode = "cdi", but no CDI specification in {", ".join(settings.cdi_directories)} '
                f"defines the device {name} once. Write the specification, or set the mode to auto"
            )
        missing = specs.devices[name].missing
        if missing:
            return (
                f'{PATH} sets mode = "cdi", and the CDI specification {specs.devices[name].path} is stale: it names '
                f"{missing[0]}, which does not exist"
            )
    return None
