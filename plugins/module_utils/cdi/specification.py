# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the CDI specification of a host's GPUs: the device nodes of each GPU and MIG device, and the shared edits.

The specification has no hooks, because a hook needs a program on the host. The container's loader therefore finds the
libraries through LD_LIBRARY_PATH, which names the driver volume, or in its default directories.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files, driver_volume
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume.driver_files import DriverFile

KIND = "nvidia.com/gpu"
# Old engines read only old versions: device names that begin with a digit need 0.5.0, additionalGids needs 0.7.0.
VERSION = "0.5.0"
VERSION_WITH_GROUPS = "0.7.0"
DEVICE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
CAPABILITIES = "proc/driver/nvidia/capabilities"
MIG_MINORS = "proc/driver/nvidia-caps/mig-minors"
SOCKETS = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
MPS_DIRECTORY = "/tmp/nvidia-mps"
READ_ONLY = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
SHARED = ["nosuid", "nodev", "noexec", "rbind", "rprivate"]
FIRMWARE_DIRECTORIES = ("lib/firmware/updates", "lib/firmware")

# Default directories of the loaders of the Debian and Red Hat families.
LOADER_DIRECTORIES = {
    ("x86_64", "lib64"): ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"),
    ("x86_64", "lib"): ("/usr/lib/i386-linux-gnu", "/usr/lib"),
    ("aarch64", "lib64"): ("/usr/lib/aarch64-linux-gnu", "/usr/lib64"),
    ("aarch64", "lib"): ("/usr/lib/arm-linux-gnueabihf", "/usr/lib"),
}
BINARY_DIRECTORY = "/usr/bin"

# Files in which vendor-neutral libraries (OpenCL, GLVND, Vulkan) find the driver's libraries, by set. The path is the
# same on the host and in the container.
CONFIGURATION = {
    "compute": ("/etc/OpenCL/vendors/nvidia.icd",),
    "graphics": (
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "/usr/share/egl/egl_external_platform.d/09_nvidia_wayland2.json",
        "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
        "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
        "/usr/share/egl/egl_external_platform.d/20_nvidia_xcb.json",
        "/usr/share/egl/egl_external_platform.d/20_nvidia_xlib.json",
        "/usr/share/vulkan/icd.d/nvidia_icd.json",
        "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json",
        "/usr/share/vulkan/icd.d/nvidia_icd.aarch64.json",
        "/usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
        "/etc/vulkan/icd.d/nvidia_icd.json",
        "/etc/vulkan/implicit_layer.d/nvidia_layers.json",
        "/usr/share/nvidia/nvoptix.bin",
    ),
}


class CdiError(Exception):
    """The specification cannot be built."""


class Host(NamedTuple):
    """The driver and the settings that the specification depends on, apart from the GPUs."""

    version: str
    machine: str
    root: str = "/"
    driver_root: str = "/"
    sets: tuple[str, ...] = ()
    numbers: bool = True
    groups: bool = False


class Result(NamedTuple):
    """A specification, and the GPUs that it leaves out, each with the reason."""

    spec: dict
    skipped: list[dict]
    warnings: list[str]


def build(gpus: list[dict], host: Host, library_edits: dict) -> Result:
    """Build the specification of `gpus`, which have the form that nvidia_gpu_facts returns."""
    devices, skipped = [], []
    all_nodes: dict[str, dict] = {}
    for gpu in gpus:
        for names, paths, obstacle in _allocatable(gpu, host.root):
            nodes = [_node(path, host) for path in paths]
            missing = [f"{path} does not exist" for path, node in zip(paths, nodes) if node is None]
            reason = obstacle or next(iter(missing), None)
            if reason:
                skipped.append({"gpu": names[0], "reason": reason})
                continue
            all_nodes.update({node["path"]: node for node in nodes})
            devices += [_device(name, nodes, host) for name in names]
    if not devices:
        reasons = "; ".join(f"{item['gpu']}: {item['reason']}" for item in skipped)
        raise CdiError(f"the specification would contain no GPU ({reasons or 'NVML shows none'})")
    devices.append(_device("all", list(all_nodes.values()), host))
    control = [node for node in (_node(path, host) for path in CONTROL_NODES) if node]
    common = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void", *library_edits["env"]],
        "deviceNodes": control,
        "mounts": [*library_edits["mounts"], *_configuration(host), *_firmware(host), *_sockets(host.root)],
    }
    has_groups = any("additionalGids" in device["containerEdits"] for device in devices)
    spec = {
        "cdiVersion": VERSION_WITH_GROUPS if has_groups else VERSION,
        "kind": KIND,
        "devices": devices,
        "containerEdits": common,
    }
    return Result(spec, skipped, _warnings({node["path"] for node in control}))


def volume_edits(directory: str, binaries: Iterable[str]) -> dict:
    """Return the edits that mount the driver volume at `directory`."""
    mounts = [_mount(directory, driver_volume.MOUNT_POINT)]
    # CDI can replace PATH but not extend it, so the programs are mounted in a directory that every PATH contains.
    mounts += [_mount(f"{directory}/bin/{name}", f"{BINARY_DIRECTORY}/{name}") for name in sorted(binaries)]
    env = [f"{name}={value}" for name, value in driver_volume.container_env().items()]
    return {"env": env, "mounts": mounts}


def file_edits(files: Iterable[DriverFile], machine: str) -> dict:
    """Return the edits that mount each library, under each of its names, in the loader's default directories."""
    mounts = []
    for file in files:
        if file.subdirectory == "bin":
            mounts.append(_mount(file.source, f"{BINARY_DIRECTORY}/{file.name}"))
            continue
        for directory in LOADER_DIRECTORIES.get((machine, file.subdirectory), (f"/usr/{file.subdirectory}",)):
            mounts += [_mount(file.source, f"{directory}/{name}") for name in (file.name, *file.links)]
    return {"env": [], "mounts": mounts}


def _mount(source: str, target: str, options: list[str] | None = None) -> dict:
    return {"hostPath": source, "containerPath": target, "options": list(options or READ_ONLY)}


def _device(name: str, nodes: list[dict], host: Host) -> dict:
    edits: dict = {"deviceNodes": nodes}
    groups = sorted({node["gid"] for node in nodes if node.get("gid") and not node["fileMode"] & stat.S_IWOTH})
    if host.groups and groups:
        edits["additionalGids"] = groups
    return {"name": name, "containerEdits": edits}


def _allocatable(gpu: dict, root: str) -> Iterable[tuple[list[str], list[str], str | None]]:
    """Yield the names and node paths of the GPU or of each of its MIG devices, and the reason why it is left out."""
    names = _names(str(gpu["index"]), gpu["uuid"])
    if gpu["health"]["state"] == "lost":
        yield names, [], "; ".join(gpu["health"]["reasons"])
    elif gpu["minor"] is None:
        yield names, [], "the minor number of the GPU is unknown"
    elif not gpu["mig"]["enabled"]:
        yield names, [f"/dev/nvidia{gpu['minor']}", *_drm_nodes(gpu["pci_bus_id"], root)], None
    elif not gpu["mig"]["devices"]:
        yield names, [], "MIG is enabled, but the GPU has no MIG device"
    else:
        minors = _mig_minors(root)
        for device in gpu["mig"]["devices"]:
            names = _names(f"{gpu['index']}:{device['index']}", device["uuid"])
            yield names, *_mig_nodes(gpu["minor"], device, minors, root)


def _names(index: str, uuid: str | None) -> list[str]:
    # The MIG UUIDs of old drivers contain slashes, which CDI does not allow in a device name.
    return [index, uuid] if uuid and DEVICE_NAME.fullmatch(uuid) else [index]


def _mig_nodes(minor: int, device: dict, minors: dict[str, int], root: str) -> tuple[list[str], str | None]:
    paths = [f"/dev/nvidia{minor}"]
    instance = f"gpu{minor}/gi{device['gi']}"
    for part in (instance, f"{instance}/ci{device['ci']}"):
        number = minors.get(f"{part}/access", _capability_minor(part, root))
        if number is None:
            return [], f"/{MIG_MINORS} does not list the access node of {part}"
        paths.append(f"/dev/nvidia-caps/nvidia-cap{number}")
    return paths, None


def _mig_minors(root: str) -> dict[str, int]:
    """Read the minor number of each capability, from lines such as `gpu0/gi1/ci0/access 13`."""
    pairs = (line.split() for line in (read_text(root, MIG_MINORS) or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _capability_minor(part: str, root: str) -> int | None:
    gpu, _slash, rest = part.partition("/")
    text = read_text(root, os.path.join(CAPABILITIES, gpu, "mig", rest, "access")) or ""
    match = re.search(r"^DeviceFileMinor:\s*([0-9]+)", text, re.MULTILINE)
    return int(match.group(1)) if match else None


def _drm_nodes(bus_id: str | None, root: str) -> list[str]:
    """List the existing DRM nodes of the GPU."""
    directory = os.path.join(root, "sys/bus/pci/devices", bus_id or "-", "drm")
    names = [os.path.basename(path) for path in glob.glob(os.path.join(glob.escape(directory), "*"))]
    nodes = sorted(f"/dev/dri/{name}" for name in names if re.fullmatch(r"(card|renderD)[0-9]+", name))
    return [node for node in nodes if os.path.exists(os.path.join(root, node[1:]))]


def _node(path: str, host: Host) -> dict | None:
    """Describe a device node of the host; None if it does not exist."""
    try:
        status = os.stat(os.path.join(host.root, path[1:]))
    except FileNotFoundError:
        return None
    if not stat.S_ISCHR(status.st_mode):
        raise CdiError(f"{path} is not a character device. Remove it and reload the driver, which creates it again.")
    node: dict = {"path": path}
    if host.numbers:
        node |= {"type": "c", "major": os.major(status.st_rdev), "minor": os.minor(status.st_rdev)}
    node |= {"fileMode": stat.S_IMODE(status.st_mode), "permissions": "rwm"}
    node |= {key: value for key, value in (("uid", status.st_uid), ("gid", status.st_gid)) if value}
    return node


def _configuration(host: Host) -> list[dict]:
    found = []
    for name in host.sets:
        for path in CONFIGURATION.get(name, ()):
            source = driver_files.real_path(path, host.driver_root)
            if source and os.path.isfile(source):
                found.append(_mount(source, path))
    return found


def _firmware(host: Host) -> list[dict]:
    """Mount the driver's firmware from the first directory in which the kernel would find it."""
    kernel = (read_text(host.root, "proc/sys/kernel/osrelease") or "").strip()
    custom = (read_text(host.root, "sys/module/firmware_class/parameters/path") or "").strip()
    candidates = [custom.lstrip("/")] if custom else []
    for directory in FIRMWARE_DIRECTORIES:
        candidates += [f"{directory}/{kernel}", directory] if kernel else [directory]
    for candidate in candidates:
        directory = driver_files.real_path(f"/{candidate}/nvidia/{host.version}", host.driver_root)
        files = sorted(glob.glob(os.path.join(glob.escape(directory), "gsp*.bin"))) if directory else []
        if files:
            target = f"/lib/firmware/nvidia/{host.version}"
            return [_mount(file, f"{target}/{os.path.basename(file)}") for file in files]
    return []


def _sockets(root: str) -> list[dict]:
    """Mount the existing sockets of the driver's daemons and the existing directory of MPS."""
    found = []
    for name in SOCKETS:
        for directory in ("/run", "/var/run"):
            path = f"{directory}/{name}"
            if _has_type(stat.S_ISSOCK, os.path.join(root, path[1:])):
                found.append(_mount(path, path, SHARED))
                break
    if _has_type(stat.S_ISDIR, os.path.join(root, MPS_DIRECTORY[1:])):
        found.append(_mount(MPS_DIRECTORY, MPS_DIRECTORY, SHARED))
    return found


def _has_type(is_type: Callable[[int], bool], path: str) -> bool:
    try:
        return is_type(os.stat(path).st_mode)
    except OSError:
        return False


def _warnings(control: set[str]) -> list[str]:
    consequences = {
        "/dev/nvidiactl": "the driver does not work in any container. Load the kernel module nvidia.",
        "/dev/nvidia-uvm": "CUDA does not work in containers. Load the kernel module nvidia-uvm, then run this module "
        "again.",
    }
    return [f"{path} does not exist, so {text}" for path, text in consequences.items() if path not in control]
