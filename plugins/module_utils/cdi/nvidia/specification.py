# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the CDI specification of a host's GPUs: the device nodes of each GPU and MIG device, and the shared edits.

The specification has no hooks, because a hook needs a program on the host. It sets no LD_LIBRARY_PATH, because CDI
would replace the value of the image. The libraries are mounted in the default directories of the container's loader.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_document
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import specification_kinds
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia.specification_kinds import KIND
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files, file_mounts
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume.driver_files import DriverFile

_NO_NAME = "the device has no UUID that CDI accepts as a name. Add index to device_names."
# How device names are formed. With each way, a device has one name.
NAMES = ("index", "type-index", "uuid")
DEFAULT_NAMES = ("index", "uuid")
FIRMWARE_DIRECTORIES = ("lib/firmware/updates", "lib/firmware")


class NvidiaCdiHost(NamedTuple):
    """The driver and the settings that the specification depends on, apart from the GPUs."""

    version: str = ""
    machine: str = ""
    root: str = "/"
    driver_root: str = "/"
    numbers: bool = False
    groups: bool = False
    kind: str = KIND
    names: tuple[str, ...] = DEFAULT_NAMES


def build(gpus: list[dict], host: NvidiaCdiHost, library_edits: dict) -> specification_document.CdiResult:
    """Build the specification of `gpus`, which have the form that nvidia_gpu_facts returns."""
    devices, skipped = [], []
    all_nodes: dict[str, dict] = {}
    for gpu in gpus:
        for unit in _allocatable(gpu, host):
            nodes = [specification_document.describe_node(path, host) for path in unit.paths]
            missing = [f"{path} does not exist" for path, node in zip(unit.paths, nodes) if node is None]
            reason = unit.obstacle or next(iter(missing), None)
            if reason:
                skipped.append({"gpu": unit.index, "reason": reason})
                continue
            all_nodes.update({node["path"]: node for node in nodes})
            devices += [_device(name, nodes, host) for name in unit.names]
    if not devices:
        reasons = "; ".join(f"{item['gpu']}: {item['reason']}" for item in skipped)
        raise specification_document.CdiError(
            f"the specification would contain no GPU ({reasons or 'NVML shows none'})"
        )
    devices.append(_device("all", list(all_nodes.values()), host))
    control = [
        node
        for node in (specification_document.describe_node(path, host) for path in nvidia_device_nodes.CONTROL_NODES)
        if node
    ]
    common = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void", *library_edits["env"]],
        "deviceNodes": control,
        "mounts": [*library_edits["mounts"], *_firmware(host)],
    }
    return specification_document.CdiResult(
        specification_document.assemble(devices, common, host), skipped, _warnings({node["path"] for node in control})
    )


def build_feature(feature: str, host: NvidiaCdiHost) -> specification_document.CdiResult:
    """Build the specification of an optional feature, or of the IMEX channels."""
    if feature == specification_kinds.IMEX:
        channels = nvidia_device_nodes.imex_channels(host.root)
        groups = {**{str(number): [path] for number, path in channels.items()}, "all": list(channels.values())}
        fault = f"no IMEX channel exists in {nvidia_device_nodes.IMEX_CHANNELS}. {nvidia_device_nodes.IMEX_ADVICE}"
    else:
        groups = {"all": nvidia_device_nodes.feature_nodes(feature, host.root)}
        fault = nvidia_device_nodes.missing_feature(feature)
    if not groups["all"]:
        raise specification_document.CdiError(f"mode={feature}: {fault}")
    mounts = [
        specification_document.mount(path, path) for path in nvidia_device_nodes.feature_paths(feature, host.root)
    ]
    devices = [
        _device(
            name,
            [node for node in (specification_document.describe_node(path, host) for path in group) if node],
            host,
            mounts,
        )
        for name, group in groups.items()
    ]
    return specification_document.CdiResult(specification_document.assemble(devices, {}, host), [], [])


def file_edits(files: Iterable[DriverFile], machine: str) -> dict:
    """Return the edits that mount each library, under each of its names, in the loader's default directories."""
    return {
        "env": [],
        "mounts": [specification_document.mount(*mount) for mount in file_mounts.mounts_of(files, machine)],
    }


def _device(name: str, nodes: list[dict], host: NvidiaCdiHost, mounts: Iterable[dict] = ()) -> dict:
    mounts = list(mounts)
    links = nvidia_device_nodes.DRM_LINKS
    if any(node["path"].startswith("/dev/dri/") for node in nodes) and _is_directory(host.root, links):
        # A hook could create only the links of these nodes. The other links lead nowhere in the container.
        mounts.append(specification_document.mount(links, links))
    return specification_document.describe_device(name, nodes, host, mounts)


class _Unit(NamedTuple):
    """A GPU or a MIG device: its names and nodes, or the reason why it is left out."""

    index: str
    names: list[str]
    paths: list[str]
    obstacle: str | None


def _allocatable(gpu: dict, host: NvidiaCdiHost) -> Iterable[_Unit]:
    """Yield the GPU, or each of its MIG devices."""
    index = str(gpu["index"])
    names = _names("gpu", index, gpu["uuid"], host)
    node = [] if gpu["minor"] is None else [nvidia_device_nodes.gpu_node(gpu["minor"])]
    drm = nvidia_device_nodes.drm_nodes(gpu["pci_bus_id"], host.root)
    if gpu["health"]["state"] == "lost":
        yield _Unit(index, names, [], "; ".join(gpu["health"]["reasons"]))
    elif not node:
        yield _Unit(index, names, [], "the minor number of the GPU is unknown")
    elif not gpu["mig"]["enabled"]:
        yield _Unit(index, names, [*node, *drm], None if names else _NO_NAME)
    elif not gpu["mig"]["devices"]:
        yield _Unit(index, names, [], "MIG is enabled, but the GPU has no MIG device")
    else:
        minors = nvidia_device_nodes.mig_minors(host.root)
        for device in gpu["mig"]["devices"]:
            index = f"{gpu['index']}:{device['index']}"
            names = _names("mig", index, device["uuid"], host)
            keys = nvidia_device_nodes.mig_keys(gpu["minor"], device["gi"], device["ci"])
            absent = [key for key in keys if key not in minors]
            obstacle = (
                f"/proc/driver/nvidia-caps/mig-minors does not list the access node of {absent[0].rpartition('/')[0]}"
                if absent
                else None
            )
            access = [nvidia_device_nodes.capability_node(minors[key]) for key in keys if key in minors]
            graphics = drm if nvidia_device_nodes.has_graphics(device.get("profile")) else []
            yield _Unit(index, names, [*node, *access, *graphics], obstacle or (None if names else _NO_NAME))


def _names(kind: str, index: str, uuid: str | None, host: NvidiaCdiHost) -> list[str]:
    # The MIG UUIDs of old drivers contain slashes, which CDI does not allow in a device name.
    names = {"index": index, "type-index": f"{kind}{index}"}
    if uuid and specification_document.DEVICE_NAME.fullmatch(uuid):
        names["uuid"] = uuid
    return [names[name] for name in dict.fromkeys(host.names) if name in names]


def _firmware(host: NvidiaCdiHost) -> list[dict]:
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
            return [specification_document.mount(file, f"{target}/{os.path.basename(file)}") for file in files]
    return []


def _is_directory(root: str, path: str) -> bool:
    return os.path.isdir(os.path.join(root, path[1:]))


def _warnings(control: set[str]) -> list[str]:
    consequences = {
        "/dev/nvidiactl": "the driver does not work in any container. Load the kernel module nvidia.",
        "/dev/nvidia-uvm": "CUDA does not work in containers. Load the kernel module nvidia-uvm, then run this module "
        "again.",
    }
    return [f"{path} does not exist, so {text}" for path, text in consequences.items() if path not in control]
