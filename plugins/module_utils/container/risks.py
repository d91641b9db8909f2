# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Events that can remove a container's access to its GPUs later."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation import (
    CDI,
    DEVICE_REQUESTS,
    RUNTIME,
    VOLUME,
    Host,
    read_text,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import EngineState

_CDI_BEFORE_RESTORE = (28, 2)


def daemon_reload_risk(name: str, engine: EngineState, host: Host, units: Sequence[Unit]) -> str | None:
    """Return a warning if `systemctl daemon-reload` can remove the access, else None."""
    if engine.cgroup_driver != "systemd" or "crun" in engine.default_runtime:
        return None  # Only runc lets systemd manage the devices.
    if name in (RUNTIME, DEVICE_REQUESTS):
        return (
            f"isolation={name} with the systemd cgroup driver: `systemctl daemon-reload` can remove the running "
            "container's access to its GPUs (Failed to initialize NVML: Unknown Error). Restart the container to "
            "restore the access. isolation=cdi or volume avoids the problem."
        )
    nodes = [f"/dev/nvidia{unit.gpu.minor}" for unit in units]
    unlinked = [node for node in nodes if (link := _char_link(host, node)) and not host.has(link)]
    if unlinked:
        return (
            f"There is no link in /dev/char for {', '.join(unlinked)}: with older versions of runc, `systemctl "
            "daemon-reload` can remove the running container's access to its GPUs. Create the links with `nvidia-ctk "
            "system create-dev-char-symlinks --create-all`. Restart the container to restore the access."
        )
    return None


def selinux_risk(name: str, engine: EngineState, host: Host, security_opts: Sequence[str]) -> str | None:
    """Return a warning if SELinux denies the container access to its device nodes, else None."""
    if name not in (CDI, VOLUME) or not engine.selinux or "label=disable" in security_opts:
        return None
    if not host.read("/sys/fs/selinux/enforce").startswith("1"):
        return None
    if host.read("/sys/fs/selinux/booleans/container_use_devices").startswith("1"):
        return None
    return (
        "SELinux is enforcing and denies containers access to GPU device nodes (Failed to initialize NVML: "
        "Insufficient Permissions). Set the boolean container_use_devices, or security_opts: [label=disable]."
    )


def restart_risk(name: str, engine: EngineState, host: Host, policy: str | None) -> str | None:
    """Return a warning if the container's restart policy cannot start it with its GPUs after a reboot, else None."""
    if policy not in ("always", "unless-stopped", "on-failure"):
        return None
    if engine.name == "podman":
        if policy != "on-failure" and not _is_enabled(host, "podman-restart.service"):
            return (
                f"restart_policy={policy}: podman does not start the container after a reboot, because "
                "podman-restart.service is disabled. Enable podman-restart.service."
            )
        return None
    if name == CDI and engine.version_key < _CDI_BEFORE_RESTORE:
        return (
            f"restart_policy={policy}: when {engine} starts, it starts containers before it enables CDI. Containers "
            "with CDI devices stay stopped (moby issue 49989, fixed in docker "
            f"{'.'.join(map(str, _CDI_BEFORE_RESTORE))}). isolation=volume avoids the problem."
        )
    if name in (CDI, VOLUME) and not _starts_after_gpus(host):
        return (
            f"restart_policy={policy}: docker.service does not wait for the GPU device nodes at boot. A container that "
            "starts before they exist fails and stays stopped. Add After=nvidia-persistenced.service to docker.service."
        )
    return None


def _is_enabled(host: Host, unit: str) -> bool:
    return bool(glob.glob(host.path(f"/etc/systemd/system/*.wants/{unit}")))


def _starts_after_gpus(host: Host) -> bool:
    """Return whether a unit file orders docker.service after the units that create the device nodes."""
    after = re.compile(r"^\s*After\s*=.*\bnvidia-", re.MULTILINE)
    before = re.compile(r"^\s*Before\s*=.*\bdocker\.service", re.MULTILINE)
    return _unit_matches(host, "docker.service", after) or _unit_matches(host, "nvidia-*.service", before)


def _unit_matches(host: Host, unit: str, pattern: re.Pattern) -> bool:
    for directory in ("etc", "run", "usr/lib", "lib"):
        base = host.path(f"/{directory}/systemd/system/{unit}")
        if any(pattern.search(read_text(path)) for path in (*glob.glob(base), *glob.glob(f"{base}.d/*.conf"))):
            return True
    return False


def _char_link(host: Host, node: str) -> str | None:
    try:
        number = os.stat(host.path(node)).st_rdev
    except OSError:
        return None
    return f"/dev/char/{os.major(number)}:{os.minor(number)}"
