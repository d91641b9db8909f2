# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a CDI specification of a host's GPUs, as data: device nodes of each GPU and MIG device, and what all need.

No hooks: they would need a program on the host. So the loader inside must find the libraries by itself, either by an
environment that names the driver volume, or because each library lies where loaders look without being told.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterable
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files, driver_volume
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume.driver_files import DriverFile

KIND = "nvidia.com/gpu"
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
CAPABILITIES = "proc/driver/nvidia/capabilities"
MIG_MINORS = "proc/driver/nvidia-caps/mig-minors"
SOCKETS = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
MPS_DIRECTORY = "/tmp/nvidia-mps"
READ_ONLY = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
SHARED = ["nosuid", "nodev", "noexec", "rbind", "rprivate"]
FIRMWARE_DIRECTORIES = ("lib/firmware/updates", "lib/firmware")

# Where the loaders of Debian's and Red Hat's families look without being told.
LOADER_DIRECTORIES = {
    ("x86_64", "lib64"): ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"),
    ("x86_64", "lib"): ("/usr/lib/i386-linux-gnu", "/usr/lib"),
    ("aarch64", "lib64"): ("/usr/lib/aarch64-linux-gnu", "/usr/lib64"),
    ("aarch64", "lib"): ("/usr/lib/arm-linux-gnueabihf", "/usr/lib"),
}
BINARY_DIRECTORY = "/usr/bin"

# Files by which libraries of other vendors find the driver's, by set: where they may be on the host, and where images
# look for them.
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
    """No specification can be made."""


class Host(NamedTuple):
    """What a specification is made of besides the GPUs."""

    version: str
    machine: str
    root: str = "/"
    driver_root: str = "/"
    sets: tuple[str, ...] = ()
    numbers: bool = True
    groups: bool = False


class Made(NamedTuple):
    """A specification, and the GPUs that are not in it, with the reason."""

    spec: dict
    skipped: list[dict]
    warnings: list[str]


def make(gpus: list[dict], host: Host, library_edits: dict) -> Made:
    """Make the specification of `gpus`, as nvidia_gpu_facts tells them."""
    devices, skipped = [], []
    everything: dict[str, dict] = {}
    for gpu in gpus:
        for names, paths, obstacle in _parts(gpu, host.root):
            nodes = [_node(path, host) for path in paths]
            absent = [f"{path} is not there" for path, node in zip(paths, nodes) if node is None]
            reason = obstacle or next(iter(absent), None)
            if reason:
                skipped.append({"gpu": names[0], "reason": reason})
                continue
            everything.update({node["path"]: node for node in nodes})
            devices += [_device(name, nodes, host) for name in names]
    if not devices:
        reasons = "; ".join(f"{item['gpu']}: {item['reason']}" for item in skipped)
        raise CdiError(f"there is no GPU to describe ({reasons or 'NVML shows none'})")
    devices.append(_device("all", list(everything.values()), host))
    control = [node for node in (_node(path, host) for path in CONTROL_NODES) if node]
    common = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void", *library_edits.get("env", ())],
        "deviceNodes": control,
        "mounts": [*library_edits["mounts"], *_configuration(host), *_firmware(host), *_sockets(host.root)],
    }
    spec = {"cdiVersion": "", "kind": KIND, "devices": devices, "containerEdits": common}
    spec["cdiVersion"] = schema.minimum_version(spec)
    faults = schema.faults(spec)
    if faults:
        raise CdiError("the specification would not be valid: " + "; ".join(faults))
    return Made(spec, skipped, _warnings({node["path"] for node in control}))


def volume_edits(place: str, binaries: Iterable[str]) -> dict:
    """Give containers the libraries by the driver volume in `place`."""
    mounts = [_mount(place, driver_volume.MOUNT_POINT)]
    # PATH can't be completed from here, only replaced: the programs go where every PATH leads.
    mounts += [_mount(f"{place}/bin/{name}", f"{BINARY_DIRECTORY}/{name}") for name in sorted(binaries)]
    env = [f"{name}={value}" for name, value in driver_volume.container_env().items()]
    return {"env": env, "mounts": mounts}


def file_edits(files: Iterable[DriverFile], machine: str) -> dict:
    """Give containers the libraries one by one, under each name, in the directories where loaders look."""
    mounts = []
    for file in files:
        if file.place == "bin":
            mounts.append(_mount(file.source, f"{BINARY_DIRECTORY}/{file.name}"))
            continue
        for directory in LOADER_DIRECTORIES.get((machine, file.place), (f"/usr/{file.place}",)):
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


def _parts(gpu: dict, root: str) -> Iterable[tuple[list[str], list[str], str | None]]:
    """Yield names, paths of nodes, and why it can't be given away, of a GPU or of each of its MIG devices."""
    names = [str(gpu["index"]), *([gpu["uuid"]] if gpu["uuid"] else [])]
    if gpu["health"]["state"] == "lost":
        yield names, [], "; ".join(gpu["health"]["reasons"])
    elif gpu["minor"] is None:
        yield names, [], "its minor number is not known"
    elif not gpu["mig"]["enabled"]:
        yield names, [f"/dev/nvidia{gpu['minor']}", *_drm_nodes(gpu["pci_bus_id"], root)], None
    elif not gpu["mig"]["devices"]:
        yield names, [], "MIG is on, and it has no MIG device"
    else:
        minors = _mig_minors(root)
        for device in gpu["mig"]["devices"]:
            names = [f"{gpu['index']}:{device['index']}"]
            # UUIDs of old drivers hold slashes, and can't be a name.
            if device["uuid"] and re.search(schema.DEVICE_NAME, device["uuid"]):
                names.append(device["uuid"])
            yield names, *_mig_nodes(gpu["minor"], device, minors, root)


def _mig_nodes(minor: int, device: dict, minors: dict[str, int], root: str) -> tuple[list[str], str | None]:
    paths = [f"/dev/nvidia{minor}"]
    instance = f"gpu{minor}/gi{device['gi']}"
    for part in (instance, f"{instance}/ci{device['ci']}"):
        number = minors.get(f"{part}/access", _capability_minor(part, root))
        if number is None:
            return [], f"the kernel tells no access node of {part} in /{MIG_MINORS}"
        paths.append(f"/dev/nvidia-caps/nvidia-cap{number}")
    return paths, None


def _mig_minors(root: str) -> dict[str, int]:
    """Read which capability has which node: lines such as `gpu0/gi1/ci0/access 13`."""
    pairs = (line.split() for line in _text(os.path.join(root, MIG_MINORS)).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _capability_minor(part: str, root: str) -> int | None:
    gpu, _slash, rest = part.partition("/")
    text = _text(os.path.join(root, CAPABILITIES, gpu, "mig", rest, "access"))
    match = re.search(r"^DeviceFileMinor:\s*([0-9]+)", text, re.MULTILINE)
    return int(match.group(1)) if match else None


def _drm_nodes(bus_id: str | None, root: str) -> list[str]:
    """List the nodes of the GPU's graphics side that are there."""
    directory = os.path.join(root, "sys/bus/pci/devices", bus_id or "-", "drm")
    names = [os.path.basename(path) for path in glob.glob(os.path.join(glob.escape(directory), "*"))]
    nodes = sorted(f"/dev/dri/{name}" for name in names if re.fullmatch(r"(card|renderD)[0-9]+", name))
    return [node for node in nodes if os.path.exists(os.path.join(root, node[1:]))]


def _node(path: str, host: Host) -> dict | None:
    """Describe a device node as it is on the host; None where there is none."""
    try:
        status = os.stat(os.path.join(host.root, path[1:]))
    except FileNotFoundError:
        return None
    if not stat.S_ISCHR(status.st_mode):
        raise CdiError(f"{path} is not a character device. Remove it and load the driver again, which makes it anew.")
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
    """Give the firmware of this driver version, from the first directory that the kernel would take it from."""
    kernel = _text(os.path.join(host.root, "proc/sys/kernel/osrelease")).strip()
    custom = _text(os.path.join(host.root, "sys/module/firmware_class/parameters/path")).strip()
    places = [custom.lstrip("/")] if custom else []
    for directory in FIRMWARE_DIRECTORIES:
        places += [f"{directory}/{kernel}", directory] if kernel else [directory]
    for place in places:
        directory = driver_files.real_path(f"/{place}/nvidia/{host.version}", host.driver_root)
        files = sorted(glob.glob(os.path.join(glob.escape(directory), "gsp*.bin"))) if directory else []
        if files:
            target = f"/lib/firmware/nvidia/{host.version}"
            return [_mount(file, f"{target}/{os.path.basename(file)}") for file in files]
    return []


def _sockets(root: str) -> list[dict]:
    """Give the sockets of the driver's daemons, and the directory of MPS, as far as they are there."""
    found = []
    for name in SOCKETS:
        for directory in ("/run", "/var/run"):
            path = f"{directory}/{name}"
            if _is(stat.S_ISSOCK, os.path.join(root, path[1:])):
                found.append(_mount(path, path, SHARED))
                break
    if _is(stat.S_ISDIR, os.path.join(root, MPS_DIRECTORY[1:])):
        found.append(_mount(MPS_DIRECTORY, MPS_DIRECTORY, SHARED))
    return found


def _is(kind, path: str) -> bool:
    try:
        return kind(os.stat(path).st_mode)
    except OSError:
        return False


def _warnings(control: set[str]) -> list[str]:
    told = {
        "/dev/nvidiactl": "nothing of the driver works in a container. Load the module nvidia.",
        "/dev/nvidia-uvm": "CUDA does not work in a container. Load the module nvidia-uvm, then run this again.",
    }
    return [f"{path} is not there: {words}" for path, words in told.items() if path not in control]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read()
    except OSError:
        return ""
