# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replace a file of the host atomically, and report before a change why it would fail."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import struct

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import atomic_file
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import is_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DaemonConfigError

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a symbolic link that points to itself",
}
# linux/fs.h: the request for the attributes of a file, and the attributes that chattr calls i and a.
_GET_ATTRIBUTES = 0x80000000 | struct.calcsize("l") << 16 | ord("f") << 8 | 1
_ATTRIBUTES = {0x10: ("immutable", "i"), 0x20: ("append-only", "a")}


def refuse_special(path: str, shown: str) -> None:
    """Raise an error if the path is not a regular file. A missing file is accepted."""
    try:
        kind = stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return  # reported when the file is read
    if kind == stat.S_IFREG:
        return
    advice = "Remove it, or set path to a file."
    if kind == stat.S_IFDIR:
        advice = (
            "Docker creates such a directory for a container that mounts a file that does not exist. Remove the "
            "directory, or set path to a file."
        )
    raise DaemonConfigError(
        f"{_named(path, shown)} is {_KINDS.get(kind, 'not a file')}, not a regular file. Nothing was changed. {advice}"
    )


def refuse_fixed(path: str, shown: str) -> None:
    """Raise an error if the file cannot be replaced or removed."""
    directory = os.path.dirname(path)
    while not os.path.isdir(directory) and directory != os.path.dirname(directory):
        directory = os.path.dirname(directory)
    problem = _attribute_problem(path) or _attribute_problem(directory) or _place_problem(path, directory)
    if problem:
        raise DaemonConfigError(f"{_named(path, shown)} cannot be changed: {problem} Nothing was changed.")


def replace(path: str, text: str, new_mode: int) -> None:
    """Replace a file atomically. Keep its mode, owner, ACL and SELinux context. A new file gets `new_mode`."""
    former = os.stat(path) if os.path.exists(path) else None

    def prepare(temporary: str) -> None:
        if former:
            with contextlib.suppress(PermissionError):  # only root can give files away
                os.chown(temporary, former.st_uid, former.st_gid)
            _copy_attributes(path, temporary)
        os.chmod(temporary, stat.S_IMODE(former.st_mode) if former else new_mode)

    atomic_file.put(path, text.encode("utf-8"), prepare)


def _copy_attributes(source: str, target: str) -> None:
    """Copy the extended attributes. They contain the ACL and the SELinux context."""
    with contextlib.suppress(OSError):
        for name in os.listxattr(source):
            with contextlib.suppress(OSError):
                os.setxattr(target, name, os.getxattr(source, name))


def _named(path: str, shown: str) -> str:
    return shown if path == os.path.normpath(shown) else f"{shown}, a link to {path},"


def _attribute_problem(path: str) -> str:
    attributes = _attributes(path)
    for bit, (name, letter) in _ATTRIBUTES.items():
        if attributes & bit:
            return f"{path} is {name}. Run chattr -{letter} {path}, or leave the file as it is."
    return ""


def _attributes(path: str) -> int:
    """Return the attributes that chattr sets, 0 if the file system has none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return 0
    try:
        found = fcntl.ioctl(handle, _GET_ATTRIBUTES, bytes(struct.calcsize("l")))
        return int(struct.unpack("i", found[: struct.calcsize("i")])[0])
    except OSError:
        return 0
    finally:
        os.close(handle)


def _place_problem(path: str, directory: str) -> str:
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        return (
            f"{directory} is on a read-only file system. If the host runs from an image, change the file in the "
            "image. Otherwise, remount the file system read-write."
        )
    if not os.access(directory, os.W_OK | os.X_OK):
        return f"directory {directory} is not writable. " + (
            f"Check its mode and attributes: ls -ld {directory}." if is_root() else "Set become: true."
        )
    if path in _mount_points():
        return (
            "the file is a mount point, and a mounted file cannot be replaced. Unmount the file, or change its source."
        )
    return ""


def _mount_points() -> list[str]:
    lines = (read_text("/", "/proc/self/mountinfo") or "").splitlines()
    return [re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[4]) for line in lines]
