# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Podman for a host that has no container engine: a root file system on a tmpfs, in private mount namespaces.

The outer namespace belongs to this process and its children. The kernel removes its mounts when these processes end. In
the inner namespace, the new root is moved to `/`, and podman runs there. A chroot is not sufficient: the root of the
mount namespace is then still the host's root, and `podman exec` enters that root.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

CLONE_NEWNS = 0x00020000
MS_MOVE = 0x2000
PR_SET_PDEATHSIG = 1
SIZE = "4g"
# Where the new root has directories of the host, read-only.
HOST = "/host"
# A directory of the system in which modules find programs.
SYSTEM_PROGRAMS = Path("/usr/local/sbin")
# A driver below its own prefix must be visible at the same path in the new root.
DRIVER_PREFIX = Path("/usr/local/nvidia")
# Podman's default limits cannot be set without CAP_SYS_RESOURCE.
CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
netns = "none"

[network]
network_backend = "netavark"

[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
"""
STORAGE_CONF = """\
[storage]
driver = "vfs"
runroot = "/run/containers/storage"
graphroot = "/var/lib/containers/storage"
"""
WRAPPER = """\
#!/bin/sh
# Podman of the acceptance bundle, in its own root file system.
exec {command} "$@"
"""


class EngineRootError(Exception):
    """The root file system cannot be set up. The message contains the failed step."""


def private_mounts() -> None:
    """Leave the host's mount namespace. Only this process and its children see later mounts."""
    _unshare()
    _run("mount", "--make-rslave", "/")


def mount_tmpfs(directory: Path) -> None:
    """Mount an empty file system over a directory, visible only to this process and its children."""
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "acceptance", directory)


def unmount(directory: Path) -> None:
    """Unmount a directory. Ignore errors, because the directory may not be mounted."""
    subprocess.run(["umount", str(directory)], capture_output=True, check=False)


class EngineRoot:
    """The root file system, and the process that keeps its mount namespace alive."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.programs = root.with_name(root.name + ".bin")
        self.hidden = root.with_name(root.name + ".sbin")
        self._keeper: int | None = None
        self._is_shown = False

    def set_up(self, archive: Path, shared: Sequence[Path] = (), of_host: Sequence[Path] = ()) -> None:
        """Unpack the archive, mount what podman needs, and write a `podman` for PATH.

        `shared` are directories that must have the same content inside and outside, because podman opens files in them.
        `of_host` are directories that containers may read below HOST.
        """
        root = self.root
        root.mkdir(parents=True)
        self.programs.mkdir()
        # Mount a tmpfs, because podman's layer store requires that its root is a mount point.
        _run("mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=755", "acceptance", root)
        _run("tar", "--extract", "--file", archive, "--directory", root, "--numeric-owner")
        for directory in ("/proc", "/sys", "/dev"):
            self._bind(Path(directory))
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "acceptance-run", root / "run")
        if DRIVER_PREFIX.is_dir():
            self._bind(DRIVER_PREFIX)
        for directory in shared:
            directory.mkdir(parents=True, exist_ok=True)
            self._bind(directory)
        for directory in of_host:
            self._show(directory)
        self._configure()
        self._keeper = self._keep()
        wrapper = self.programs / "podman"
        wrapper.write_text(WRAPPER.format(command=" ".join(self.enter("/usr/bin/podman"))), encoding="utf-8")
        wrapper.chmod(0o755)
        self._show_programs()

    def _show_programs(self) -> None:
        """Show the programs, to this process only, in a directory of the system. Modules search no others."""
        self.hidden.mkdir()
        _run("mount", "--bind", SYSTEM_PROGRAMS, self.hidden)
        for entry in SYSTEM_PROGRAMS.iterdir():
            link = self.programs / entry.name
            if not link.exists():
                link.symlink_to(self.hidden / entry.name)
        _run("mount", "--bind", self.programs, SYSTEM_PROGRAMS)
        self._is_shown = True

    def enter(self, *argv: str) -> list[str]:
        """Return the command that runs a program in the root."""
        return ["nsenter", f"--mount=/proc/{self._keeper}/ns/mnt", "--", *argv]

    def _bind(self, directory: Path) -> None:
        target = self.root / directory.relative_to("/")
        target.mkdir(parents=True, exist_ok=True)
        _run("mount", "--rbind", directory, target)
        _run("mount", "--make-rslave", target)

    def _show(self, directory: Path) -> None:
        """Mount a directory of the host read-only, without the file systems below it."""
        target = self.root / HOST.lstrip("/") / directory.relative_to("/")
        target.mkdir(parents=True, exist_ok=True)
        _run("mount", "--bind", directory, target)
        _run("mount", "-o", "remount,bind,ro", target)
        _run("mount", "--make-private", target)

    def _configure(self) -> None:
        configuration = self.root / "etc/containers"
        configuration.mkdir(parents=True, exist_ok=True)
        for name, text in (
            ("containers.conf", CONTAINERS_CONF),
            ("storage.conf", STORAGE_CONF),
            ("policy.json", '{"default": [{"type": "insecureAcceptAnything"}]}\n'),
        ):
            (configuration / name).write_text(text, encoding="utf-8")

    def _keep(self) -> int:
        """Start the process that keeps the inner mount namespace alive, and wait until the new root is in place."""
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write_end)
            with os.fdopen(read_end) as stream:
                problem = stream.read()
            if problem:
                os.waitpid(pid, 0)
                raise EngineRootError(problem)
            return pid
        try:
            os.close(read_end)
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            # Close inherited pipes, because another process may wait for their end.
            devnull = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(devnull, descriptor)
            _unshare()
            _run("mount", "--make-rprivate", "/")
            os.chdir(self.root)
            _check("mount --move", _libc().mount(b".", b"/", None, MS_MOVE, None))
            os.chroot(".")
            os.chdir("/")
            os.close(write_end)
            while True:
                signal.pause()
        except Exception as error:
            os.write(write_end, f"{error}".encode())
        finally:
            os._exit(1)

    def take_down(self) -> None:
        """End the inner namespace, unmount the root and remove it. The end of the outer namespace also unmounts it."""
        if self._keeper is not None:
            os.kill(self._keeper, signal.SIGKILL)
            os.waitpid(self._keeper, 0)
            self._keeper = None
        subprocess.run(["umount", "--recursive", "--lazy", str(self.root)], capture_output=True, check=False)
        if self._is_shown:
            unmount(SYSTEM_PROGRAMS)
            unmount(self.hidden)
        shutil.rmtree(self.programs, ignore_errors=True)
        if self.root.is_dir() and not os.path.ismount(self.root):
            # Remove only an empty directory, so that no files of a remaining mount are deleted.
            self.root.rmdir()


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(what: str, result: int) -> None:
    if result != 0:
        raise EngineRootError(f"{what}: {os.strerror(ctypes.get_errno())}. Root with CAP_SYS_ADMIN is required.")


def _unshare() -> None:
    _check("unshare the mount namespace", _libc().unshare(ctypes.c_int(CLONE_NEWNS)))


def _run(*argv: str | Path) -> None:
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise EngineRootError(f"{' '.join(words)}: {words[0]} is not installed on this host") from error
    if done.returncode != 0:
        raise EngineRootError(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()}")
