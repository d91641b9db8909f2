# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can deny a container access to its GPUs or remove it later, and which of them programs cannot use fully."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import (
    CDI,
    DEVICE_REQUESTS,
    RUNTIME,
    VOLUME,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.device_requests_by_cdi_or_hook import (
    requests_use_cdi,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.toolkit_refusals import runtime_mode
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.inventory import NvidiaUnit

_CDI_BEFORE_RESTORE = (28, 2)
# SELinux's booleans that let containers use device nodes with the host's label. Podman's documentation recommends the
# first one (containers/podman, docs/source/markdown/options/device.md, c6580b4a). container-selinux 2.232 added the
# second one for GPUs (containers/container-selinux, 6dfcb38).
_BOOLEANS = ("container_use_devices", "container_use_xserver_devices")
OWN_LABEL, HOST_LABEL, UNKNOWN_LABEL = "container", "host", "unknown"
# The label by the mode of NVIDIA's runtime. The mode auto of an unknown version of the toolkit is legacy or jit-cdi.
_MODES = {"cdi": OWN_LABEL, "jit-cdi": OWN_LABEL, "legacy": HOST_LABEL}
_CAUSES = {
    HOST_LABEL: "because the nodes keep the host's label",
    UNKNOWN_LABEL: "because with NVIDIA's hook (mode legacy of the runtime) the nodes keep the host's label",
}


def warnings(
    name: str, engine: EngineState, host: IsolationHost, units: Sequence[NvidiaUnit], options: Mapping[str, Any]
) -> list[str]:
    """Return warnings about events that can remove the access, and about GPUs that cannot be used fully.

    `name`: the isolation. `options`: see engine_module_options.risk_options.
    """
    found = [
        daemon_reload_risk(name, engine, host, units),
        selinux_risk(name, engine, host, options),
        restart_risk(name, engine, host, options.get("restart_policy")),
    ]
    prohibited = [
        f"{unit.gpu} is in compute mode prohibited: CUDA programs cannot use it."
        for unit in units
        if unit.gpu.compute_mode == "prohibited"
    ]
    unhealthy = [
        f"{unit.gpu} is {unit.gpu.health_state}: {reason}"
        for unit in units
        if unit.gpu.health_state != "ok"
        for reason in unit.gpu.health_reasons or ("no reason given",)
    ]
    return [*(risk for risk in found if risk), *dict.fromkeys(prohibited), *dict.fromkeys(unhealthy)]


def daemon_reload_risk(name: str, engine: EngineState, host: IsolationHost, units: Sequence[Unit]) -> str | None:
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


def selinux_risk(name: str, engine: EngineState, host: IsolationHost, options: Mapping[str, Any]) -> str | None:
    """Return a warning if SELinux denies the container access to its device nodes, else None.

    `options`: `security_opts`, `privileged` and `userns` of the container.
    """
    is_enforcing = host.read("/sys/fs/selinux/enforce").startswith("1")
    if not is_enforcing or not engine.selinux or _has_other_type(options):
        return None
    allowed = [boolean for boolean in _BOOLEANS if host.read(f"/sys/fs/selinux/booleans/{boolean}").startswith("1")]
    label = node_label(name, engine, host, options.get("userns"))
    if allowed or label == OWN_LABEL:
        return None
    verb = "denies" if label == HOST_LABEL else "may deny"
    boolean = next((boolean for boolean in _BOOLEANS if host.has(f"/sys/fs/selinux/booleans/{boolean}")), None)
    remedy = f"Run 'setsebool -P {boolean} on' on the host, or set" if boolean else "Set"
    return (
        f"SELinux is enforcing and {verb} the container access to GPU device nodes (Failed to initialize NVML: "
        f"Insufficient Permissions), {_CAUSES[label]}. {remedy} security_opts: [label=disable]."
    )


def node_label(name: str, engine: EngineState, host: IsolationHost, userns: str | None = None) -> str:
    """Return which SELinux label the device nodes in the container have.

    A runtime creates the nodes of a container in its /dev, whose label the container may use. In a user namespace, the
    runtime cannot create nodes and bind-mounts those of the host, which keep the host's label (containers/crun,
    linux.c, ba38286f; opencontainers/runc, rootfs_linux.go, 76d9cf5d). NVIDIA's hook always bind-mounts them
    (NVIDIA/libnvidia-container, nvc_mount.c, 077f498c). The labels that a container may use:
    containers/container-selinux, container.te (66ae652).
    """
    if engine.rootless or (userns != "host" and (userns or engine.userns_remap)):
        return HOST_LABEL
    if name == DEVICE_REQUESTS:
        return OWN_LABEL if requests_use_cdi(engine, host) else HOST_LABEL
    if name != RUNTIME:
        return OWN_LABEL
    return _MODES.get(runtime_mode(host) or "", UNKNOWN_LABEL)


def _has_other_type(options: Mapping[str, Any]) -> bool:
    """Return whether the container runs without the type container_t: unconfined, or with a type of the user."""
    labels = [str(option) for option in options.get("security_opts") or ()]
    return bool(options.get("privileged")) or any(re.match(r"label[=:](disable$|type:)", label) for label in labels)


def restart_risk(name: str, engine: EngineState, host: IsolationHost, policy: str | None) -> str | None:
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


def _is_enabled(host: IsolationHost, unit: str) -> bool:
    return bool(glob.glob(host.path(f"/etc/systemd/system/*.wants/{unit}")))


def _starts_after_gpus(host: IsolationHost) -> bool:
    """Return whether a unit file orders docker.service after the units that create the device nodes."""
    after = re.compile(r"^\s*After\s*=.*\bnvidia-", re.MULTILINE)
    before = re.compile(r"^\s*Before\s*=.*\bdocker\.service", re.MULTILINE)
    return _unit_matches(host, "docker.service", after) or _unit_matches(host, "nvidia-*.service", before)


def _unit_matches(host: IsolationHost, unit: str, pattern: re.Pattern) -> bool:
    for directory in ("etc", "run", "usr/lib", "lib"):
        base = host.path(f"/{directory}/systemd/system/{unit}")
        if any(
            pattern.search(read_text("/", path) or "") for path in (*glob.glob(base), *glob.glob(f"{base}.d/*.conf"))
        ):
            return True
    return False


def _char_link(host: IsolationHost, node: str) -> str | None:
    try:
        number = os.stat(host.path(node)).st_rdev
    except OSError:
        return None
    return f"/dev/char/{os.major(number)}:{os.minor(number)}"
