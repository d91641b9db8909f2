# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Generate the CDI specification of a host from its GPUs, the driver's files and the device nodes.

NVIDIA/nvidia-container-toolkit, pkg/nvcdi, internal/discover and internal/edits (v1.20.0, 5505e2f9). Before 1.19,
device nodes have only their paths. `root` is the root directory of the driver and of its device nodes.
"""

from __future__ import annotations

import glob
import mmap
import os
import re
import stat
import struct
from typing import Any

from .gpus import Gpu, Mig, select
from .main import Failure, warn
from .version import at_least

ENGINE_HOOK = "/usr/bin/nvidia-cdi-hook"
CONTROL_NODES = ("/dev/nvidia-modeset", "/dev/nvidia-uvm-tools", "/dev/nvidia-uvm", "/dev/nvidiactl")
LIBRARY_DIRECTORIES = (
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
)
BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
_BINARY_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_CONFIGURATION = (
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "nvidia/nvoptix.bin",
    "OpenCL/vendors/nvidia.icd",
)
READ_ONLY = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
SHARED = ["nosuid", "nodev", "rbind", "rprivate", "noexec"]
ALL = "all"


def at(root: str, path: str) -> str:
    """Return the path of a file of the driver on the host."""
    return os.path.join(root, path.lstrip("/"))


# --- device nodes -----------------------------------------------------------------------------------------------------


def node(path: str, root: str) -> dict[str, Any] | None:
    """Describe a device node, or return None if it does not exist."""
    source = at(root, path)
    try:
        status = os.stat(source)
    except OSError:
        return None
    found: dict[str, Any] = {"path": path, **({"hostPath": source} if source != path else {})}
    if not at_least(1, 19) or not stat.S_ISCHR(status.st_mode):
        return found
    numbers = {"major": os.major(status.st_rdev), "minor": os.minor(status.st_rdev)}
    found.update({key: value for key, value in numbers.items() if value})
    found.update(fileMode=stat.S_IMODE(status.st_mode), permissions="rwm")
    return {**found, "gid": status.st_gid} if status.st_gid else found


def _nodes(paths: list[str], root: str) -> list[dict[str, Any]]:
    found = [(path, node(path, root)) for path in paths]
    for path, description in found:
        if description is None:
            warn(f"Could not locate {path}: pattern {path} not found")
    return [description for _path, description in found if description]


def _edits_of(paths: list[str], root: str) -> dict[str, Any]:
    nodes = _nodes(paths, root)
    edits: dict[str, Any] = {"deviceNodes": nodes}
    groups = {item["gid"] for item in nodes if item.get("gid") and item.get("fileMode", 0o666) & 0o6 != 0o6}
    return {**edits, "additionalGids": sorted(groups)} if groups else edits


def mig_minors(root: str) -> dict[str, int]:
    """Return the minor numbers of the capabilities of MIG devices."""
    try:
        with open(at(root, "/proc/driver/nvidia-caps/mig-minors"), encoding="utf-8") as file:
            pairs = [line.split() for line in file]
    except OSError as error:
        raise Failure(f"error getting MIG capability device paths: {error}") from error
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


def paths_of(gpu: Gpu, mig: Mig | None, root: str) -> list[str]:
    """Return the device nodes of a GPU with its DRM nodes, or those of a MIG device."""
    first = f"/dev/nvidia{gpu.minor}"
    if mig is None:
        directory = at(root, f"/sys/bus/pci/devices/{gpu.bus_id}/drm")
        names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
        return [first, *(f"/dev/dri/{name}" for name in names if re.fullmatch(r"(card|renderD)\d+", name))]
    minors = mig_minors(root)
    instance = f"gpu{gpu.minor}/gi{mig.gi}"
    keys = (f"{instance}/access", f"{instance}/ci{mig.ci}/access")
    missing = [key for key in keys if key not in minors]
    if missing:
        raise Failure(f"failed to get cap device path: {missing[0]} not found")
    return [first, *(f"/dev/nvidia-caps/nvidia-cap{minors[key]}" for key in keys)]


def _links_by_path(gpu: Gpu, nodes: list[str], root: str) -> list[str]:
    found = []
    for kind in ("card", "render"):
        link = f"/dev/dri/by-path/pci-{gpu.bus_id}-{kind}"
        try:
            target = os.readlink(at(root, link))
        except OSError:
            continue
        if os.path.normpath(os.path.join(os.path.dirname(link), target)) in nodes:
            found.append(f"{target}::{link}")
    return found


# --- the driver's files -----------------------------------------------------------------------------------------------


def driver_directories(root: str) -> tuple[str, list[str]]:
    """Return the driver's version and the directories with its libraries."""
    candidates: dict[str, str] = {}
    for directory in LIBRARY_DIRECTORIES:
        candidates.setdefault(os.path.realpath(at(root, directory)), directory)
    directories = list(candidates.values())
    for library in ("libcuda.so", "libnvidia-ml.so"):
        for directory in directories:
            names = sorted(os.path.basename(path) for path in glob.glob(f"{at(root, directory)}/{library}.*.*"))
            if names:
                version = names[0][len(library) + 1 :]
                return version, [
                    place for place in directories if glob.glob(f"{at(root, place)}/lib*.so.{glob.escape(version)}")
                ]
    raise Failure('failed to determine driver version (""): failed to locate "libnvidia-ml.so."')


def libraries(root: str) -> tuple[str, list[str]]:
    """Return the driver's version and its libraries."""
    version, directories = driver_directories(root)
    found = []
    for directory in directories:
        for place in (directory, f"{directory}/vdpau"):
            for pattern in (f"*.so.{glob.escape(version)}", "libnvidia-nvvm70.so.*"):
                found += [f"{place}/{os.path.basename(path)}" for path in glob.glob(f"{at(root, place)}/{pattern}")]
    return version, [path for path in sorted({*found}) if not os.path.islink(at(root, path))]


def soname(path: str) -> str:
    """Return the SONAME of a 64-bit library, or its file name."""
    name = os.path.basename(path)
    try:
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        table, size, count = struct.unpack_from("<Q", data, 32) + struct.unpack_from("<HH", data, 54)
        segments = [struct.unpack_from("<IIQQQQQQ", data, table + size * number) for number in range(count)]
        start, length = next((one[2], one[5]) for one in segments if one[0] == 2)
        entries = dict(struct.unpack_from("<qQ", data, start + 16 * number) for number in range(length // 16))
        if 14 not in entries:
            return name
        loaded = next(one for one in segments if one[0] == 1 and one[3] <= entries[5] < one[3] + one[5])
        begin = loaded[2] + entries[5] - loaded[3] + entries[14]
        return data[begin : data.find(b"\0", begin)].decode()
    except (OSError, struct.error, StopIteration, ValueError, KeyError):
        return name


def library_links(paths: list[str], root: str) -> list[str]:
    """Return the symbolic links that containers need beside the libraries, as TARGET::LINK."""
    found = []
    for path in paths:
        directory, name = os.path.split(path)
        if name.startswith("libcuda.so."):
            found.append(f"libcuda.so.1::{directory}/libcuda.so")
        elif name.startswith("libnvidia-opticalflow.so."):
            found.append(f"libnvidia-opticalflow.so.1::{directory}/libnvidia-opticalflow.so")
        elif name.startswith("libGLX_nvidia.so."):
            found.append(f"{name}::{directory}/libGLX_indirect.so.0")
        if not at_least(1, 18):
            continue
        target = soname(at(root, path))
        plain = re.sub(r"(\.so)\..*", r"\1", target)
        for link, to in ((target, name), (plain, target)):
            if link != to and os.path.islink(at(root, f"{directory}/{link}")):
                found.append(f"{to}::{directory}/{link}")
    return list(dict.fromkeys(found))


def _mount(path: str, root: str, options: list[str] | None = None) -> dict[str, Any]:
    return {"hostPath": at(root, path), "containerPath": path, "options": list(options or READ_ONLY)}


def mounts(paths: list[str], version: str, root: str) -> list[dict[str, Any]]:
    """Return the mounts of libraries, firmware, programs, settings and sockets."""
    found = [_mount(path, root) for path in paths]
    release = os.uname().release
    custom = _first_line(at(root, "/sys/module/firmware_class/parameters/path"))
    places = [*([custom] if custom else []), f"/lib/firmware/updates/{release}", "/lib/firmware/updates",
              f"/lib/firmware/{release}", "/lib/firmware"]  # fmt: skip
    for place in places:
        files = sorted(glob.glob(f"{at(root, place)}/nvidia/{glob.escape(version)}/gsp*.bin"))
        found += [_mount(f"{place}/nvidia/{version}/{os.path.basename(path)}", root) for path in files]
    for name in BINARIES:
        place = next((item for item in _BINARY_DIRECTORIES if os.access(at(root, f"{item}/{name}"), os.X_OK)), None)
        if place:
            found.append(_mount(f"{place}/{name}", root))
    for name in _CONFIGURATION:
        place = next((item for item in ("/etc", "/usr/share") if os.path.isfile(at(root, f"{item}/{name}"))), None)
        if place:
            found.append(_mount(f"{place}/{name}", root))
    for name in ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket"):
        place = next((item for item in ("/run", "/var/run") if os.path.exists(at(root, f"{item}/{name}"))), None)
        if place:
            found.append(_mount(f"{place}/{name}", root, SHARED))
    if os.path.isdir(at(root, "/tmp/nvidia-mps")):
        found.append(_mount("/tmp/nvidia-mps", root, SHARED))
    return found


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().strip()
    except OSError:
        return ""


# --- the specification ------------------------------------------------------------------------------------------------


def hook(program: str, *arguments: str) -> dict[str, Any]:
    """Return a hook that runs before the container starts. nvidia-ctk has the hooks below its command `hook`."""
    name = os.path.basename(program)
    argv = [name, *(["hook"] if name == "nvidia-ctk" else []), *arguments]
    return {"hookName": "createContainer", "path": program, "args": argv, "env": ["NVIDIA_CTK_DEBUG=false"]}


def common_edits(program: str, root: str, ldconfig: str = "") -> dict[str, Any]:
    """Return the edits of every container with a GPU. `program` runs the hooks."""
    version, found = libraries(root)
    links = library_links(found, root)
    folders = dict.fromkeys(os.path.dirname(path) for path in found)
    arguments = [word for folder in folders for word in ("--folder", folder)]
    hooks = [
        *([hook(program, "create-symlinks", *(word for link in links for word in ("--link", link)))] if links else []),
        hook(program, "enable-cuda-compat", f"--host-driver-version={version}"),
        hook(program, "update-ldcache", *(["--ldconfig-path", ldconfig] if ldconfig else []), *arguments),
        hook(program, "disable-device-node-modification"),
        *([hook(program, "update-application-profile")] if at_least(1, 20) else []),
    ]
    variables = ["NVIDIA_VISIBLE_DEVICES=void"]
    if at_least(1, 18):
        variables.insert(0, f"NVIDIA_CTK_LIBCUDA_DIR={':'.join(folders)}")
    return {
        "env": variables,
        "deviceNodes": _nodes(list(CONTROL_NODES), root),
        "hooks": hooks,
        "mounts": mounts(found, version, root),
    }


def device_edits(gpu: Gpu, mig: Mig | None, program: str, root: str) -> dict[str, Any]:
    """Return the edits of a GPU or of a MIG device."""
    paths = paths_of(gpu, mig, root)
    edits = _edits_of(paths, root)
    links = _links_by_path(gpu, paths, root) if mig is None else []
    if links:
        edits["hooks"] = [hook(program, "create-symlinks", *(word for link in links for word in ("--link", link)))]
    return edits


def _selected(gpus: tuple[Gpu, ...], identifiers: list[str]) -> list[tuple[Gpu, Mig | None]]:
    if ALL not in identifiers:
        return [select(gpus, identifier) for identifier in identifiers]
    whole = [(gpu, None) for gpu in gpus if gpu.migs is None]
    return [*whole, *((gpu, mig) for gpu in gpus for mig in gpu.migs or ())]


def _name(gpu: Gpu, mig: Mig | None, strategy: str) -> str:
    if strategy == "uuid":
        return mig.uuid if mig else gpu.uuid
    prefixes = ("gpu", "mig") if strategy == "type-index" else ("", "")
    return f"{prefixes[1]}{gpu.index}:{mig.index}" if mig else f"{prefixes[0]}{gpu.index}"


def generate(
    gpus: tuple[Gpu, ...],
    identifiers: list[str],
    *,
    kind: str = "nvidia.com/gpu",
    program: str = ENGINE_HOOK,
    strategies: tuple[str, ...] = ("index", "uuid"),
    ldconfig: str = "",
    has_all: bool = True,
    root: str = "/",
) -> dict[str, Any]:
    """Return the specification of the devices that `identifiers` name: indexes, UUIDs, all or none."""
    devices = []
    if "none" in identifiers:
        devices = [{"name": "none", "containerEdits": {"env": ["NVCT_EMPTY_DEVICE="]}}]
    else:
        for gpu, mig in _selected(gpus, identifiers):
            edits = device_edits(gpu, mig, program, root)
            names = [_name(gpu, mig, strategy) for strategy in strategies]
            devices += [{"name": name, "containerEdits": edits} for name in names]
    if has_all and devices and "none" not in identifiers and ALL not in [device["name"] for device in devices]:
        devices.append({"name": ALL, "containerEdits": merged([device["containerEdits"] for device in devices])})
    if not devices:
        raise Failure("failed to create device CDI specs: no devices found")
    edits = common_edits(program, root, ldconfig)
    has_groups = any("additionalGids" in device["containerEdits"] for device in devices)
    version = "0.7.0" if has_groups else "0.5.0"
    return {"cdiVersion": version, "kind": kind, "devices": devices, "containerEdits": edits}


def merged(many: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the union of edits."""
    result: dict[str, Any] = {}
    for edits in many:
        for key, items in edits.items():
            known = result.setdefault(key, [])
            known += [item for item in items if item not in known]
    return result
