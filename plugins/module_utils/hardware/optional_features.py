# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a container needs for the optional features of the driver: device nodes, mounts and environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes

MPS = "mps"
FEATURES = tuple(sorted((*nvidia_device_nodes.FEATURE_NODES, MPS)))
# NVIDIA/nvidia-container-toolkit, internal/discover/ipc.go at v1.20.0.
PIPE_DIRECTORY = "/tmp/nvidia-mps"
PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
# The program through which all clients of MPS use the GPUs.
MPS_SERVER = "nvidia-cuda-mps-server"
MPS_DAEMON = "nvidia-cuda-mps-control"
# The socket of the daemon, as its log names it.
_MPS_SOCKET = "control"


class FeatureError(Exception):
    """A feature that this host does not have."""


@dataclass(frozen=True)
class Extras:
    """What a container gets in addition to its GPUs.

    `shares_ipc`: it needs the IPC namespace of the host. `ignored`: commands of processes that use GPUs for it.
    """

    devices: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    shares_ipc: bool = False
    ignored: tuple[str, ...] = ()


def extras(features: Iterable[str], channels: Iterable[int], env: Mapping[str, str], root: str = "/") -> Extras:
    """Return what a container needs. `env` is the environment of the user, which may name the directory of MPS."""
    devices: list[str] = []
    volumes: list[str] = []
    names = set(features)
    for name in sorted(names - {MPS}):
        nodes = nvidia_device_nodes.feature_nodes(name, root)
        if not nodes:
            raise FeatureError(f"features={name}: {nvidia_device_nodes.missing_feature(name)}")
        devices += nodes
        volumes += [f"{path}:{path}:ro" for path in nvidia_device_nodes.feature_paths(name, root)]
    devices += _imex_nodes(channels, root)
    if MPS not in names:
        return Extras(tuple(devices), tuple(volumes))
    directory = env.get(PIPE_VARIABLE) or PIPE_DIRECTORY
    obstacle = _mps_obstacle(directory, root)
    if obstacle:
        raise FeatureError(
            f"features=mps: {obstacle}. Start the MPS daemon with `nvidia-cuda-mps-control -d`, or set {PIPE_VARIABLE} "
            "in env to the directory of your daemon."
        )
    volumes.append(f"{directory}:{directory}")
    return Extras(tuple(devices), tuple(volumes), {PIPE_VARIABLE: directory}, shares_ipc=True, ignored=(MPS_SERVER,))


def _mps_obstacle(directory: str, root: str) -> str | None:
    """Return why no daemon of MPS serves a directory, or None. The directory can remain after the daemon has ended."""
    path = os.path.join(root, directory.lstrip("/"))
    if not os.path.isdir(path):
        return f"the directory {directory} does not exist"
    if not os.path.exists(os.path.join(path, _MPS_SOCKET)):
        return f"{directory} has no socket {_MPS_SOCKET}, so no MPS daemon uses it"
    sockets = [line.split()[-1] for line in (read_text(root, "proc/net/unix") or "").splitlines() if line.strip()]
    if os.path.normpath(f"{directory}/{_MPS_SOCKET}") in sockets:
        return None
    # A daemon in a container has its own network namespace, which hides its sockets.
    processes = [name for name in listing(root, "proc") if name.isdigit()]
    commands = ((read_text(root, f"proc/{name}/cmdline") or "").partition("\0")[0] for name in processes)
    if not processes or any(os.path.basename(command) == MPS_DAEMON for command in commands):
        return None
    return f"{directory} remains of an MPS daemon that has ended: no process {MPS_DAEMON} runs"


def _imex_nodes(channels: Iterable[int], root: str) -> list[str]:
    channels = sorted(set(channels))
    present = nvidia_device_nodes.imex_channels(root) if channels else {}
    for channel in channels:
        if channel not in present:
            known = ", ".join(map(str, present)) or "none"
            raise FeatureError(
                f"imex_channels: channel {channel} does not exist in {nvidia_device_nodes.IMEX_CHANNELS}, which has "
                f"{known}. {nvidia_device_nodes.IMEX_ADVICE}"
            )
    return [present[channel] for channel in channels]
