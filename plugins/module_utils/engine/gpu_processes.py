# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the containers of all engines and users in the process table, and the GPU nodes that each container has.

An engine lists only its own containers. The process table has the containers of all engines and of all users. Only root
can read the namespaces of other users' processes.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import running_containers as engine_processes
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import container_cgroups

_GPU_MAJOR = 195
_GPU_NODE = re.compile(r"^/dev/nvidia(\d+)$")
_NODES = "/dev/nvidia"
_CONTROL_MINORS = (254, 255)  # nvidia-modeset, nvidiactl
# The directories of /dev that have nodes of GPUs and accelerators.
_DEVICE_DIRECTORIES = ("accel", "dri", "nvidia-caps")
_LOGIN_USER = re.compile(r"/user-(\d+)\.slice/")
# The engines of module `processes` that have another name in messages.
_SHOWN = {"crio": "kubernetes", "k3s": "kubernetes", "snap": "docker"}
_ROOTLESS = ("conmon", "containerd-shim", "dockerd")
_MOST_ANCESTORS = 64
# The kernel gives this number to the first PID namespace (torvalds/linux, include/linux/proc_ns.h).
_FIRST_NAMESPACE = "pid:[4026531836]"

# The major and the minor number of a device node, or None for another file.
Numbers = Callable[[str], "tuple[int, int] | None"]


@dataclass(frozen=True)
class Container:
    """A container in the process table.

    `identifiers`: the IDs of the enclosing containers, then its own. `name` is known for conmon, the monitor of Podman.
    `user`: the user of a rootless engine, else empty. `pod`: the UID of its Kubernetes pod.
    `devices`: the major and minor numbers of the device nodes in its own /dev. Empty if its /dev is that of the host.
    `privileged`: whether it has all capabilities, so that its nodes say nothing.
    """

    engine: str
    identifiers: tuple[str, ...] = ()
    name: str = ""
    user: str = ""
    pod: str = ""
    devices: frozenset[tuple[int, int]] = frozenset()
    privileged: bool = False


@dataclass(frozen=True)
class Process:
    """A process, and its container if it has one. `opened`: those of the requested nodes that it has open."""

    pid: int
    command: str
    user: str
    container: Container | None = None
    opened: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ProcessTable:
    """The containers of a host and the requested processes.

    `rootless_users`: the users with a running daemon or container of a rootless engine.
    `is_complete`: whether these are all processes of the machine. They are not if the host is a container itself.
    """

    containers: tuple[Container, ...] = ()
    processes: Mapping[int, Process] = field(default_factory=dict)
    rootless_users: frozenset[str] = frozenset()
    is_complete: bool = True

    @property
    def pods(self) -> frozenset[str]:
        """Return the UIDs of the pods that have a process."""
        return frozenset(container.pod for container in self.containers if container.pod)


@dataclass(frozen=True)
class GpuUser:
    """A process that has nodes of the driver open, or the first process of a container that has a GPU in its /dev."""

    pid: int
    command: str
    opened: frozenset[str] = frozenset()
    visible: frozenset[str] = frozenset()
    container: Container | None = None


def device_numbers(path: str) -> tuple[int, int] | None:
    """Return the numbers of a character device. A link is not followed, because its target is a path of the host."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (os.major(status.st_rdev), os.minor(status.st_rdev)) if stat.S_ISCHR(status.st_mode) else None


def read(
    root: str,
    pids: Collection[int] = (),
    numbers: Numbers | None = None,
    *,
    nodes: Collection[str] = (),
    compute_node: str | None = None,
) -> ProcessTable:
    """Read the process table. It contains the processes `pids`, and those that have one of the `nodes` open.

    `compute_node`: a node that a program on a GPU also has open, and a monitor of GPUs has not.
    """
    return _Reader(root, numbers or device_numbers).table(frozenset(pids), frozenset(nodes), compute_node)


def gpu_users(root: str, numbers: Numbers | None = None) -> list[GpuUser]:
    """Return the processes that have nodes of the driver open, and the containers that have a GPU in /dev.

    A container with a GPU that no process has open yet counts, too: its GPU is gone after the driver was reloaded.
    """
    return _Reader(root, numbers or device_numbers).gpu_users()


class _Reader:
    """Read each mount namespace once, because all processes of a container share one."""

    def __init__(self, root: str, numbers: Numbers) -> None:
        self._root = root
        self._numbers = numbers
        self._host_mounts = self._link(1, "ns/mnt")
        self._host_dev = self._dev_mount(1)
        # The host can be a container itself.
        self._host_identifiers = set(container_cgroups.container_ids(self._text(1, "cgroup")))
        self._host_lxc = set(container_cgroups.lxc_names(self._text(1, "cgroup")))
        self._host_capabilities = self._bounding_set(1)
        self._containers: dict[str, Container | None] = {}

    def table(self, pids: frozenset[int], nodes: frozenset[str], compute_node: str | None) -> ProcessTable:
        processes, rootless = {}, set()
        for pid in self._pids():
            container = self._container(pid)
            command = self._text(pid, "comm").strip()
            if command.startswith(_ROOTLESS):
                user = self._user(pid)
                if user:
                    rootless.add(_user_name(user))
            opened = self._open_files(pid) if nodes else frozenset()
            opened = opened & nodes if compute_node is None or compute_node in opened else frozenset()
            if pid in pids or opened:
                processes[pid] = Process(pid, command, _user_name(self._user(pid)), container, opened)
        return ProcessTable(
            tuple(container for container in self._containers.values() if container is not None),
            processes,
            frozenset(rootless),
            self._link(1, "ns/pid") == _FIRST_NAMESPACE,
        )

    def gpu_users(self) -> list[GpuUser]:
        found, seen = [], set()
        for pid in self._pids():
            opened = frozenset(node for node in self._open_files(pid) if node.startswith(_NODES))
            container, visible = self._container(pid), frozenset()
            mounts = self._link(pid, "ns/mnt")
            if container is not None and mounts not in seen:
                seen.add(mounts)
                visible = self._visible(pid, container)
            if opened or visible:
                found.append(GpuUser(pid, self._text(pid, "comm").strip(), opened, visible, container))
        return found

    def _pids(self) -> list[int]:
        return sorted(int(name) for name in listing(self._root, "/proc") if name.isdigit())

    def _visible(self, pid: int, container: Container) -> frozenset[str]:
        """Return the GPUs in the /dev of a container, which can be that of the host, under the driver's names."""
        names = listing(self._root, f"/proc/{pid}/root/dev")
        named = {f"/dev/{name}" for name in names if _GPU_NODE.match(f"/dev/{name}")}
        minors = (minor for major, minor in container.devices if major == _GPU_MAJOR and minor not in _CONTROL_MINORS)
        return frozenset({*named, *(f"{_NODES}{minor}" for minor in minors)})

    def _open_files(self, pid: int) -> frozenset[str]:
        return frozenset(self._link(pid, f"fd/{name}") or "" for name in listing(self._root, f"/proc/{pid}/fd"))

    def _container(self, pid: int) -> Container | None:
        mounts = self._link(pid, "ns/mnt")
        if mounts is None or mounts == self._host_mounts:
            return None
        if mounts not in self._containers:
            self._containers[mounts] = self._describe(pid)
        return self._containers[mounts]

    def _describe(self, pid: int) -> Container | None:
        """Describe the container of a process. Return None for a service or a sandbox with mounts of its own."""
        groups = self._text(pid, "cgroup")
        identifiers = tuple(one for one in container_cgroups.container_ids(groups) if one not in self._host_identifiers)
        lxc = [one for one in container_cgroups.lxc_names(groups) if one not in self._host_lxc]
        engine, identifier, name = ("lxc", "", lxc[0]) if lxc else self._monitor(pid)
        if identifiers:
            engine = container_cgroups.engine_name(groups) or engine or "containerd"
        elif identifier:
            identifiers = (identifier,)
        elif not lxc:
            return None
        capabilities = self._bounding_set(pid)
        return Container(
            engine=engine,
            identifiers=identifiers,
            name=name,
            user=self._rootless_user(pid, groups),
            pod=container_cgroups.pod_uid(groups),
            devices=self._devices(pid),
            privileged=bool(capabilities) and capabilities & self._host_capabilities == self._host_capabilities,
        )

    def _monitor(self, pid: int) -> tuple[str, str, str]:
        """Return engine, ID and name from the command line of the monitor that started the container."""
        # Not the process itself: the monitors of rootless engines have a mount namespace of their own, too.
        for _ancestor in range(_MOST_ANCESTORS):
            fields = self._text(pid, "stat").rpartition(")")[2].split()
            pid = int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0
            if pid <= 1:
                break
            words = self._text(pid, "cmdline").split("\0")
            engine = engine_processes.engine_of(words)
            if engine is not None:
                known = dict(zip(words, words[1:]))
                is_conmon = os.path.basename(words[0]) == "conmon"
                identifier = known.get("-c" if is_conmon else "-id", "")
                return _SHOWN.get(engine, engine), identifier, known.get("-n", "") if is_conmon else ""
        return "", "", ""

    def _rootless_user(self, pid: int, groups: str) -> str:
        """Return the user of a rootless engine. A root of its own makes a container rootless, not only another user."""
        lines = [line.split() for line in self._text(pid, "uid_map").splitlines()]
        maps = [[int(word) for word in words] for words in lines if len(words) == 3 and all(map(str.isdigit, words))]
        login = _LOGIN_USER.search(groups)
        if not maps or maps[0][1] == 0 or (login is None and not any(count == 1 for _inside, _outside, count in maps)):
            return ""
        if login:
            return _user_name(int(login.group(1)))
        # Rootless engines map the user as a range of one ID, and the subordinate IDs as another range.
        return _user_name(next(outside for _inside, outside, count in maps if count == 1))

    def _devices(self, pid: int) -> frozenset[tuple[int, int]]:
        """Return the numbers of the device nodes in the container's own /dev."""
        device = self._dev_mount(pid)
        if device is not None and device == self._host_dev:
            return frozenset()
        base = os.path.join(self._root, f"proc/{pid}/root/dev")
        directories = [base, *(os.path.join(base, name) for name in _DEVICE_DIRECTORIES)]
        paths = [
            os.path.join(directory, name)
            for directory in directories
            if not os.path.islink(directory)
            for name in listing(directory, "")
        ]
        return frozenset(numbers for path in paths if (numbers := self._numbers(path)))

    def _dev_mount(self, pid: int) -> str | None:
        """Return the device of the file system that is mounted at /dev."""
        lines = [line.split(" ") for line in self._text(pid, "mountinfo").splitlines()]
        return next((line[2] for line in reversed(lines) if len(line) > 4 and line[4] == "/dev"), None)

    def _bounding_set(self, pid: int) -> int:
        found = re.search(r"^CapBnd:\s*([0-9a-f]+)$", self._text(pid, "status"), re.MULTILINE)
        return int(found.group(1), 16) if found else 0

    def _user(self, pid: int) -> int:
        found = re.search(r"^Uid:\s*\d+\s+(\d+)", self._text(pid, "status"), re.MULTILINE)
        return int(found.group(1)) if found else 0

    def _text(self, pid: int, name: str) -> str:
        return read_text(self._root, f"/proc/{pid}/{name}") or ""

    def _link(self, pid: int, name: str) -> str | None:
        try:
            return os.readlink(os.path.join(self._root, f"proc/{pid}/{name}"))
        except OSError:
            return None


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
