# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process table as files, for the tests of the holders of GPUs."""

from __future__ import annotations

import json
import re
from pathlib import Path

# No user of the test machine has this ID, so its name is the number.
ALICE = 4242001
DEFAULT_CAPABILITIES = "00000000a80425fb"
ALL_CAPABILITIES = "000001ffffffffff"
CAPABILITIES_MAJOR = 507
_HOST_MOUNTS = "mnt:[1]"


def identifier(number: int) -> str:
    """Return the ID of a container."""
    return f"{number:064x}"


class ProcessTree:
    """The files in /proc of a host, and the files of a kubelet."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/devices", f"Character devices:\n195 nvidia\n{CAPABILITIES_MAJOR} nvidia-caps\n")
        self.process(1, "systemd", cgroup="/init.scope")
        self.pid_namespace(4026531836)

    def write(self, path: str, text: str = "") -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def pid_namespace(self, number: int) -> None:
        """Set the PID namespace of the host. The number of the first one is the same on every machine."""
        link = self.root / "proc/1/ns/pid"
        link.unlink(missing_ok=True)
        link.symlink_to(f"pid:[{number}]")

    def process(
        self,
        pid: int,
        command: str = "python3",
        *,
        cgroup: str = "/system.slice/ssh.service",
        parent: int = 1,
        user: int = 0,
        words: tuple[str, ...] = (),
        mounts: str = _HOST_MOUNTS,
        dev: str = "0:5",
        capabilities: str = ALL_CAPABILITIES,
        uid_map: str = "0 0 4294967295",
        opened: tuple[str, ...] = (),
    ) -> None:
        base = f"proc/{pid}"
        self.write(f"{base}/comm", f"{command}\n")
        self.write(f"{base}/cmdline", "\0".join(words or (command,)) + "\0")
        self.write(f"{base}/cgroup", f"0::{cgroup}\n")
        self.write(f"{base}/stat", f"{pid} ({command}) S {parent} {pid} {pid}")
        self.write(
            f"{base}/status", f"Name:\t{command}\nUid:\t{user}\t{user}\t{user}\t{user}\nCapBnd:\t{capabilities}\n"
        )
        self.write(f"{base}/mountinfo", f"20 1 254:1 / / rw - ext4 x rw\n21 20 {dev} / /dev rw - tmpfs x rw\n")
        self.write(f"{base}/uid_map", f"{uid_map}\n")
        self.write(f"{base}/ns/none")
        (self.root / base / "ns/mnt").symlink_to(mounts)
        for number, target in enumerate(opened):
            self.write(f"{base}/fd/none")
            (self.root / base / f"fd/{number}").symlink_to(target)

    def container(
        self, pid: int, *nodes: str, cgroup: str = "", command: str = "python3", dev: str = "0:99", **options
    ) -> None:
        """Add a container with one process and with device nodes in its /dev."""
        options.setdefault("capabilities", DEFAULT_CAPABILITIES)
        group = cgroup or f"/system.slice/docker-{identifier(pid)}.scope"
        self.process(pid, command, cgroup=group, mounts=f"mnt:[{pid}]", dev=dev, **options)
        for node in ("null", "nvidiactl", *nodes):
            self.write(f"proc/{pid}/root/dev/{node}")

    def rootless_podman(self, pid: int, *nodes: str, name: str, user: int = ALICE, in_cgroup: bool = True) -> None:
        """Add a container of a user's Podman, with its monitor."""
        slice_ = f"/user.slice/user-{user}.slice/user@{user}.service/user.slice"
        words = ("/usr/bin/conmon", "--api-version", "1", "-c", identifier(pid), "-u", identifier(pid))
        words += ("-n", name, "--exit-command", "/usr/bin/podman", "--exit-command-arg", "--root")
        # Podman's monitors of a user run in a mount namespace of their own, with the host's /dev.
        self.process(pid + 1, "conmon", cgroup=f"{slice_}/x.scope", user=user, words=words, mounts=f"mnt:[{user}]")
        self.container(
            pid,
            *nodes,
            cgroup=f"{slice_}/libpod-{identifier(pid)}.scope/container" if in_cgroup else "/",
            parent=pid + 1,
            user=user,
            uid_map=f"0 {user} 1\n1 100000 65536",
        )

    def checkpoint(self, *entries: dict, offered: dict | None = None, names: tuple[str, ...] = ()) -> None:
        data = {"PodDeviceEntries": list(entries), "RegisteredDevices": offered or {}}
        path = "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
        self.write(path, json.dumps({"Data": data, "Checksum": 1}))
        for name in names:
            self.write(f"var/log/pods/{name}/trainer/0.log")


def numbers(path: str) -> tuple[int, int] | None:
    """Return the numbers that the driver's nodes have, from their names: the tests are not root."""
    if path.endswith("/nvidiactl"):
        return 195, 255
    found = re.search(r"/(?:nvidia|nvidia-cap)(\d+)$", path)
    if found is None:
        return None
    return CAPABILITIES_MAJOR if "nvidia-cap" in path else 195, int(found.group(1))
