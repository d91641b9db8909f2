# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a container is given its GPUs, and no others: which ways work on this host, and what each asks of the engine.

Pure but for the host's files, whose root is handed in.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import driver as cdi_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import EngineState, version_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_volume

CDI, VOLUME, RUNTIME, DEVICE_REQUESTS, NONE = "cdi", "volume", "runtime", "device_requests", "none"
# Best first. The first two put the device nodes into the container's own specification, so they outlast a
# `systemctl daemon-reload`; the others may not.
PREFERENCE = (CDI, VOLUME, RUNTIME, DEVICE_REQUESTS)

CAPABILITIES = ("compat32", "compute", "display", "graphics", "ngx", "utility", "video")
DEFAULT_CAPABILITIES = ("compute", "utility")

RUNTIME_CONFIG = "/etc/nvidia-container-runtime/config.toml"
_RUNTIME_BINARY = re.compile(r"(?:^|/)nvidia-container-runtime(?:\.\w+)?$")
_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
_BINARY_DIRECTORIES = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
_MIG_MINORS = "proc/driver/nvidia-caps/mig-minors"
_MIG_CAPABILITIES = "proc/driver/nvidia/capabilities"
_NODES_MAJOR = 195
_CONTROL_MINORS = {255: "/dev/nvidiactl", 254: "/dev/nvidia-modeset"}
# Nodes that a container gets where they are there, and can do without.
OPTIONAL_NODES = frozenset({"/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"})
_TOOLKIT = "NVIDIA's container toolkit"
_CDI_BEFORE_RESTORE = (28, 2)


class IsolationError(Exception):
    """A way of giving GPUs that cannot work here."""


@dataclass(frozen=True)
class Host:
    """What isolation depends on besides the engine."""

    driver_version: str | None
    root: str = "/"
    specs: reader.Specs = field(default_factory=reader.Specs)

    def path(self, path: str) -> str:
        return os.path.join(self.root, path.lstrip("/"))

    def has(self, path: str) -> bool:
        return os.path.exists(self.path(path))


@dataclass(frozen=True)
class Choice:
    """The isolation that is used, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Access:
    """What a container is handed: what the engine's module gets on top of the user's options."""

    isolation: str = NONE
    devices: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    device_ids: tuple[str, ...] = ()
    request_capabilities: tuple[str, ...] = ()
    runtime: str | None = None
    volumes: tuple[str, ...] = ()
    driver_volume: str | None = None
    # Whether the driver's files stand where only the environment leads the loader to.
    needs_library_path: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


def choose(
    wanted: str,
    engine: EngineState,
    host: Host,
    units: Sequence[Unit],
    capabilities: Sequence[str],
    *,
    current: str | None = None,
) -> Choice:
    """Take what was asked for if it can work; for `auto` what the container has if that still does, else the best."""
    objections = {name: objection(name, engine, host, units, capabilities) for name in PREFERENCE}
    if wanted != "auto":
        if objections[wanted]:
            working = [name for name in PREFERENCE if not objections[name]]
            raise IsolationError(
                f"isolation={wanted} cannot work here: {objections[wanted]}. "
                + (f"What works here: {', '.join(working)}." if working else f"Nothing else does: {_all(objections)}.")
            )
        return Choice(wanted, f"isolation={wanted} was asked for")
    working = [name for name in PREFERENCE if not objections[name]]
    if not working:
        raise IsolationError(f"No isolation works here: {_all(objections)}.")
    if current in working and current != working[0]:
        return Choice(current, f"the container has {current} already; {working[0]} would work as well")
    passed = [f"{name}: {objections[name]}" for name in PREFERENCE[: PREFERENCE.index(working[0])]]
    reason = f"{working[0]} is the best that works here"
    return Choice(working[0], f"{reason} ({'; '.join(passed)})" if passed else reason)


def objection(
    name: str, engine: EngineState, host: Host, units: Sequence[Unit], capabilities: Sequence[str]
) -> str | None:
    """Say why an isolation cannot work, None when it can."""
    if name == CDI:
        return _cdi_objection(engine, host, units)
    if name == VOLUME:
        return _volume_objection(host, units, capabilities)
    if name == RUNTIME:
        return _runtime_objection(engine, host, units)
    return _device_requests_objection(engine, host, units)


def access(
    name: str,
    engine: EngineState,
    host: Host,
    units: Sequence[Unit],
    capabilities: Sequence[str] | None,
    *,
    env: Mapping[str, str],
) -> Access:
    """Say what the engine must be asked for. `capabilities` None leaves them to the image, whose environment is `env`
    together with the user's.
    """
    # Ordered by UUID: indexes move over reboots, and a container must not be recreated for that.
    units = sorted(units, key=lambda unit: unit.uuid)
    if name == CDI:
        devices = [_cdi_device(unit, host.specs) for unit in units]
        return Access(
            isolation=CDI,
            cdi_devices=tuple(device.qualified for device in devices if device is not None),
            # What a specification sets reaches the container's first process, but none that `exec` starts.
            needs_library_path=any(
                device is not None and driver_volume.MOUNT_POINT in device.mounted_at for device in devices
            ),
            env=_silenced(env),
        )
    if name == VOLUME:
        return Access(
            isolation=VOLUME,
            devices=tuple(device_nodes(host, units, capabilities or DEFAULT_CAPABILITIES)),
            volumes=(driver_volume.mount_spec(host.driver_version or ""),),
            driver_volume=driver_volume.volume_name(host.driver_version or ""),
            needs_library_path=True,
            env=_silenced(env),
        )
    uuids = tuple(unit.uuid for unit in units)
    if name == RUNTIME:
        env = {"NVIDIA_VISIBLE_DEVICES": ",".join(uuids)}
        if capabilities is not None:
            env["NVIDIA_DRIVER_CAPABILITIES"] = ",".join(capabilities)
        return Access(isolation=RUNTIME, runtime=runtime_name(engine, host), env=env)
    return Access(isolation=DEVICE_REQUESTS, device_ids=uuids, request_capabilities=("gpu", *(capabilities or ())))


def no_access(env: Mapping[str, str]) -> Access:
    """Give no GPU at all, also where the engine's default runtime would go by the image's environment."""
    return Access(env=_silenced(env))


def device_nodes(host: Host, units: Sequence[Unit], capabilities: Sequence[str]) -> list[str]:
    """List the device nodes that the units need, by minor number, and the control nodes that the capabilities need."""
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
            nodes += [f"/dev/nvidia-caps/nvidia-cap{minors[key]}" for key in _mig_keys(unit) if key in minors]
        elif "graphics" in capabilities or "display" in capabilities:
            nodes += _drm_nodes(host, unit)
    return list(dict.fromkeys(nodes))


def canonical_nodes(host: Host, path: str) -> list[str]:
    """Name the nodes that a device's path means as the driver's own tools do: /dev/char/195:2 is /dev/nvidia2."""
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
    capabilities = re.search(r"^\s*(\d+)\s+nvidia-caps$", _text(host.path("/proc/devices")), re.MULTILINE)
    if capabilities and major == int(capabilities.group(1)):
        return [f"/dev/nvidia-caps/nvidia-cap{minor}"]
    return [path]


def mig_minors(host: Host) -> dict[str, int]:
    """Read which capability node opens which MIG instance: "gpu0/gi1/access" → 12."""
    parts = [line.strip().rpartition(" ") for line in _text(host.path(_MIG_MINORS)).splitlines()]
    found = {key: int(minor) for key, _space, minor in parts if key and minor.isdigit()}
    if found:
        return found
    # An older driver tells it at each instance.
    base = host.path(_MIG_CAPABILITIES)
    for path in glob.glob(f"{glob.escape(base)}/gpu*/mig/gi*/**/access", recursive=True):
        match = re.search(r"^DeviceFileMinor:\s*(\d+)", _text(path), re.MULTILINE)
        if match:
            found[os.path.relpath(path, base).replace("/mig/", "/")] = int(match.group(1))
    return found


def runtime_name(engine: EngineState, host: Host) -> str | None:
    """Find the vendor's runtime: by its name, by its binary, or for podman by the binary's path."""
    if "nvidia" in engine.runtimes:
        return "nvidia"
    for name, path in sorted(engine.runtimes.items()):
        if _RUNTIME_BINARY.search(path or ""):
            return name
    if engine.name == "podman":
        return _binary(host, ("nvidia-container-runtime",))
    return None


def daemon_reload_risk(name: str, engine: EngineState, host: Host, units: Sequence[Unit]) -> str | None:
    """Say what a later `systemctl daemon-reload` may take away from the container, None when it takes nothing."""
    if engine.cgroup_driver != "systemd" or "crun" in engine.default_runtime:
        return None  # Of the low-level runtimes only runc has systemd manage the devices.
    if name in (RUNTIME, DEVICE_REQUESTS):
        return (
            f"isolation={name} under the systemd cgroup driver: `systemctl daemon-reload` can take the GPUs away from "
            "the running container (Failed to initialize NVML: Unknown Error); restarting it brings them back. "
            "isolation=cdi or volume avoids it."
        )
    nodes = [f"/dev/nvidia{unit.gpu.minor}" for unit in units]
    unlinked = [node for node in nodes if (link := _char_link(host, node)) and not host.has(link)]
    if unlinked:
        return (
            f"There is no link in /dev/char for {', '.join(unlinked)}: with older versions of runc, `systemctl "
            "daemon-reload` can take the GPUs away from the running container. `nvidia-ctk system "
            "create-dev-char-symlinks --create-all` makes the links; restarting the container brings the GPUs back."
        )
    return None


def selinux_risk(name: str, engine: EngineState, host: Host, security_opts: Sequence[str]) -> str | None:
    """Say whether SELinux keeps the container from the device nodes that it is given, None when it does not."""
    if name not in (CDI, VOLUME) or not engine.selinux or "label=disable" in security_opts:
        return None
    if not _text(host.path("/sys/fs/selinux/enforce")).startswith("1"):
        return None
    if _text(host.path("/sys/fs/selinux/booleans/container_use_devices")).startswith("1"):
        return None
    return (
        "SELinux is enforcing and keeps containers from the GPUs' device nodes (Failed to initialize NVML: "
        "Insufficient Permissions): set the boolean container_use_devices, or security_opts: [label=disable]."
    )


def restart_risk(name: str, engine: EngineState, host: Host, policy: str | None) -> str | None:
    """Say what keeps a container that its engine shall start again from its GPUs after a reboot, None when nothing."""
    if policy not in ("always", "unless-stopped", "on-failure"):
        return None
    if engine.name == "podman":
        if policy != "on-failure" and not _is_wanted(host, "podman-restart.service"):
            return (
                f"restart_policy={policy}: podman starts containers after a reboot only where podman-restart.service "
                "is enabled, and it is not."
            )
        return None
    if name == CDI and engine.version_key < _CDI_BEFORE_RESTORE:
        return (
            f"restart_policy={policy}: when {engine} starts, it starts containers before it knows CDI, and one with "
            f"CDI devices stays stopped (moby issue 49989, mended in docker "
            f"{'.'.join(map(str, _CDI_BEFORE_RESTORE))}). isolation=volume avoids it."
        )
    if name in (CDI, VOLUME) and not _starts_after_gpus(host):
        return (
            f"restart_policy={policy}: nothing makes docker wait for the GPUs' device nodes at boot. A container that "
            "is started before they are there fails and stays stopped; give docker.service "
            "After=nvidia-persistenced.service."
        )
    return None


def _silenced(env: Mapping[str, str]) -> dict[str, str]:
    """Keep the vendor's runtime, where it is the default one, from adding what the environment asks of it."""
    asks = env.get("NVIDIA_VISIBLE_DEVICES") not in (None, "", "void") or env.get("CUDA_VERSION")
    return {"NVIDIA_VISIBLE_DEVICES": "void"} if asks else {}


def _all(objections: Mapping[str, str | None]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in objections.items() if text)


def _cdi_objection(engine: EngineState, host: Host, units: Sequence[Unit]) -> str | None:
    newest_plain = {"docker": ((25,), (26, 1)), "podman": ((4, 1), (5, 1))}
    first, second = newest_plain[engine.name]
    if engine.version_key < first:
        return f"{engine} has no CDI, {engine.name} {'.'.join(map(str, first))} and later do"
    if not engine.cdi_dirs:
        return f"CDI is off in {engine}: set features.cdi in daemon.json and restart docker"
    for unit in units:
        device = _cdi_device(unit, host.specs)
        if device is None:
            there = f"; {'; '.join(host.specs.broken)}" if host.specs.broken else ""
            return f"no CDI specification in {', '.join(engine.cdi_dirs)} names {unit}{there}"
        stale = _stale(unit, host)
        if stale:
            return stale
        if device.missing:
            return f"the CDI specification {device.path} is stale: it names {device.missing[0]}, which is not there"
        if version_key(device.version) >= (0, 7) and engine.version_key < second:
            return (
                f"the CDI specification {device.path} is of version {device.version}, which {engine} cannot read "
                f"({engine.name} {'.'.join(map(str, second))} and later do)"
            )
    return None


def _cdi_device(unit: Unit, specs: reader.Specs) -> reader.Device | None:
    by_uuid = [device for device in specs.devices.values() if device.name == unit.uuid]
    if by_uuid:
        return min(by_uuid, key=lambda device: (device.kind != reader.KIND, device.kind))
    device = specs.devices.get(f"{reader.KIND}={unit.index}")
    # An index may mean another GPU than it did when the specification was made: the node must be the right one.
    if device is not None and f"/dev/nvidia{unit.gpu.minor}" in device.nodes:
        return device
    return None


def _stale(unit: Unit, host: Host) -> str | None:
    device = _cdi_device(unit, host.specs)
    if device is None:
        return None
    ours = host.has(cdi_driver.mark_of(device.path))
    return cdi_driver.complaint(device.path, device.driver_versions, host.driver_version, ours=ours)


def _volume_objection(host: Host, units: Sequence[Unit], capabilities: Sequence[str]) -> str | None:
    if not host.driver_version:
        return "the driver's version is not known, so neither is its volume"
    for unit in units:
        if unit.gpu.minor is None:
            return f"the driver does not tell the minor number of {unit}"
    needed = ["/dev/nvidiactl", *(f"/dev/nvidia{unit.gpu.minor}" for unit in units)]
    if "compute" in capabilities:
        needed.append("/dev/nvidia-uvm")
    absent = [node for node in needed if not host.has(node)]
    if absent:
        return f"device node {absent[0]} is not there (`nvidia-modprobe -c 0 -u` or the persistence daemon makes it)"
    minors = mig_minors(host)
    for unit in units:
        if unit.is_mig:
            for key in _mig_keys(unit):
                if key not in minors:
                    return f"/{_MIG_MINORS} does not tell the capability node {key} of {unit}"
                if not host.has(f"/dev/nvidia-caps/nvidia-cap{minors[key]}"):
                    return f"/dev/nvidia-caps/nvidia-cap{minors[key]}, which opens {unit}, is not there"
    return None


def _runtime_objection(engine: EngineState, host: Host, units: Sequence[Unit]) -> str | None:
    if runtime_name(engine, host) is None:
        if engine.name == "podman":
            return f"nvidia-container-runtime is not installed (package nvidia-container-toolkit-base of {_TOOLKIT})"
        there = ", ".join(sorted(engine.runtimes)) or "none"
        return (
            f"docker has no runtime nvidia, only {there} (install {_TOOLKIT} and register it in daemon.json: "
            "`nvidia-ctk runtime configure --runtime=docker`, or module docker_daemon_config)"
        )
    if _ignores_environment(host):
        return (
            f"{RUNTIME_CONFIG} says accept-nvidia-visible-devices-envvar-when-unprivileged = false, so the runtime "
            "would not go by NVIDIA_VISIBLE_DEVICES"
        )
    stale = next(filter(None, (_stale(unit, host) for unit in units)), None)
    if stale and re.search(r"^\s*mode\s*=\s*[\"']cdi[\"']", _text(host.path(RUNTIME_CONFIG)), re.MULTILINE):
        return f'{RUNTIME_CONFIG} says mode = "cdi", and {stale}'
    return None


def _device_requests_objection(engine: EngineState, host: Host, units: Sequence[Unit]) -> str | None:
    if engine.name != "docker":
        return "device requests are docker's"
    if engine.version_key < (19, 3):
        return f"{engine} has no device requests, docker 19.03 and later do"
    hook = _binary(host, _HOOKS)
    by_cdi = engine.version_key >= (29, 2) and _binary(host, ("nvidia-cdi-hook",)) and engine.cdi_dirs
    stale = next(filter(None, (_stale(unit, host) for unit in units)), None) if by_cdi else None
    if stale:
        return f"{engine} serves device requests by CDI, and {stale}"
    if hook is None and not by_cdi:
        return f"docker finds no {_HOOKS[0]} (install {_TOOLKIT}, package nvidia-container-toolkit, and restart docker)"
    if hook is not None and engine.started is not None:
        try:
            came = os.stat(host.path(hook)).st_ctime
        except OSError:
            return None
        if came > engine.started and not by_cdi:
            return f"{hook} came after docker was started, which looks for it then: restart docker"
    return None


def _ignores_environment(host: Host) -> bool:
    pattern = r"^\s*accept-nvidia-visible-devices-envvar-when-unprivileged\s*=\s*false\b"
    return bool(re.search(pattern, _text(host.path(RUNTIME_CONFIG)), re.MULTILINE))


def _binary(host: Host, names: Sequence[str]) -> str | None:
    for name in names:
        for directory in _BINARY_DIRECTORIES:
            if host.has(f"/{directory}/{name}"):
                return f"/{directory}/{name}"
    return None


def _mig_keys(unit: Unit) -> tuple[str, str]:
    return (
        f"gpu{unit.gpu.minor}/gi{unit.gi}/access",
        f"gpu{unit.gpu.minor}/gi{unit.gi}/ci{unit.ci}/access",
    )


def _drm_nodes(host: Host, unit: Unit) -> list[str]:
    directory = host.path(f"/sys/bus/pci/devices/{unit.gpu.pci_bus_id}/drm")
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    return [
        f"/dev/dri/{name}" for name in names if re.match(r"^(card|renderD)\d+$", name) and host.has(f"/dev/dri/{name}")
    ]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _is_wanted(host: Host, unit: str) -> bool:
    pattern = host.path(f"/etc/systemd/system/*.wants/{unit}")
    return bool(glob.glob(pattern))


def _starts_after_gpus(host: Host) -> bool:
    """Tell whether docker.service is ordered after what makes the device nodes, by its unit files or by the other's."""
    after = re.compile(r"^\s*After\s*=.*\bnvidia-", re.MULTILINE)
    before = re.compile(r"^\s*Before\s*=.*\bdocker\.service", re.MULTILINE)
    return _units_say(host, "docker.service", after) or _units_say(host, "nvidia-*.service", before)


def _units_say(host: Host, unit: str, pattern: re.Pattern) -> bool:
    for directory in ("etc", "run", "usr/lib", "lib"):
        base = host.path(f"/{directory}/systemd/system/{unit}")
        if any(pattern.search(_text(path)) for path in (*glob.glob(base), *glob.glob(f"{base}.d/*.conf"))):
            return True
    return False


def _char_link(host: Host, node: str) -> str | None:
    try:
        number = os.stat(host.path(node)).st_rdev
    except OSError:
        return None
    return f"/dev/char/{os.major(number)}:{os.minor(number)}"
