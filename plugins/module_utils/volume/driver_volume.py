# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver volume on disk: one directory per driver version, with bin, lib, lib64 and share.

A volume is either complete or absent: a new one is built in a staging directory and renamed. An existing but damaged
volume is repaired in place, file by file, with renames. Its directory stays the same, so a container that mounts it
sees the repaired files. A process that has a replaced library open keeps the old library.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import filecmp
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import atomic_file, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import whole_number
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume.driver_files import VERSION, DriverFile

DEFAULT_PATH = owned.VOLUMES
KIND = owned.VOLUME_KIND
MOUNT_POINT = "/usr/local/nvidia"
SUBDIRECTORIES = ("bin", "lib", "lib64", "share")
MANIFEST = owned.VOLUME_MANIFEST
MANIFEST_FORMAT = 1
STAGING_PREFIX = owned.VOLUME_STAGING_PREFIX
# Errors of link(2) after which the file is copied: another file system, links unsupported or not permitted, too many.
COPY_ERRORS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES)
NO_SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT)
SELINUX_ATTRIBUTE = "security.selinux"


class VolumeError(Exception):
    """The volume cannot be created, read or removed."""


class Layout(NamedTuple):
    """The content of a complete volume: sources of regular files and targets of links, by relative path."""

    version: str
    files: dict[str, str]
    links: dict[str, str]


class Difference(NamedTuple):
    """The changes that complete a volume, as relative paths. `replace` says what is wrong with each path."""

    add: list[str]
    replace: dict[str, str]
    remove: list[str]

    def __bool__(self) -> bool:
        return bool(self.add or self.replace or self.remove)


def volume_name(version: str) -> str:
    """Return the name of the volume of driver `version` in an engine."""
    return f"{KIND}_{version}"


def volume_directory(path: str, version: str) -> str:
    """Return the directory of the volume of driver `version`."""
    return os.path.join(path, KIND, version)


def mount_spec(version: str) -> str:
    """Return the value of an engine's option `--volume` that mounts the volume of driver `version`."""
    return f"{volume_name(version)}:{MOUNT_POINT}:ro"


def container_env(image: dict[str, str] | None = None) -> dict[str, str]:
    """Return the environment variables with which a container finds the libraries and programs of the volume.

    `image` holds the variables of the image and the user. Their values are extended, unless they contain the volume
    already. PATH is set only if `image` has it, because it would otherwise replace the unknown PATH of the image.
    """
    image = image or {}
    env = {"LD_LIBRARY_PATH": _joined(image.get("LD_LIBRARY_PATH", ""), ("lib64", "lib"))}
    if image.get("PATH"):
        env["PATH"] = _joined(image["PATH"], ("bin",))
    return {name: value for name, value in env.items() if value != image.get(name)}


def _joined(current: str, names: tuple[str, ...]) -> str:
    # The image's own directories come first, because they may hold CUDA's compatibility libraries.
    entries = [entry for entry in current.split(":") if entry]
    existing = {entry.rstrip("/") for entry in entries}
    added = [f"{MOUNT_POINT}/{name}" for name in names]
    return ":".join(entries + [path for path in added if path not in existing])


def layout_of(version: str, files: Iterable[DriverFile]) -> Layout:
    """Return the layout of a volume that holds the driver's files."""
    files = list(files)
    return Layout(
        version,
        {f"{file.subdirectory}/{file.name}": file.source for file in files},
        {f"{file.subdirectory}/{link}": file.name for file in files for link in file.links},
    )


def versions(path: str) -> list[str]:
    """List the versions that have a volume under `path`."""
    try:
        names = os.listdir(os.path.join(path, KIND))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((name for name in names if VERSION.fullmatch(name)), key=version_key)


def version_key(version: str) -> tuple[int, ...]:
    """Return a sort key that orders versions by their numbers."""
    return tuple(whole_number(piece) for piece in version.split("."))


def difference(layout: Layout, directory: str, label: str | None = None) -> Difference:
    """Compare the content of `directory` with the layout of a complete volume."""
    existing, records = _walk(directory), _manifest(directory)
    add, replace = [], {}
    for relative, source in layout.files.items():
        status = existing.pop(relative, None)
        if status is None:
            add.append(relative)
            continue
        fault = _file_fault(os.path.join(directory, relative), status, source, records.get(relative))
        if fault:
            replace[relative] = fault
    for relative, target in layout.links.items():
        status = existing.pop(relative, None)
        if status is None:
            add.append(relative)
        elif not stat.S_ISLNK(status.st_mode) or os.readlink(os.path.join(directory, relative)) != target:
            replace[relative] = f"is not a link to {target}"
    remove = list(existing)
    if os.path.isdir(directory):
        for name in ("", *SUBDIRECTORIES):
            fault = _directory_fault(os.path.normpath(os.path.join(directory, name)), label)
            if fault:
                replace[name or "."] = fault
    return Difference(sorted(add), replace, sorted(remove))


def _walk(volume: str) -> dict[str, os.stat_result]:
    """Return everything in a volume except its subdirectories and its manifest."""
    found, expected = {}, {MANIFEST, *SUBDIRECTORIES}
    for base, directories, files in os.walk(volume):
        for name in files + directories:
            relative = os.path.relpath(os.path.join(base, name), volume)
            if relative not in expected:
                found[relative] = os.lstat(os.path.join(base, name))
        directories[:] = [
            name for name in directories if os.path.relpath(os.path.join(base, name), volume) in SUBDIRECTORIES
        ]
    return found


def _directory_fault(path: str, label: str | None) -> str | None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return "is missing"
    if not stat.S_ISDIR(status.st_mode):
        return "is not a directory"
    if stat.S_IMODE(status.st_mode) != 0o755:
        return f"has mode {stat.S_IMODE(status.st_mode):04o} instead of 0755"
    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        return f"is owned by {status.st_uid}:{status.st_gid} instead of {os.geteuid()}:{os.getegid()}"
    if label and _label_of(path) != label:
        return f"has SELinux label {_label_of(path)} instead of {label}"
    return None


def _file_fault(path: str, status: os.stat_result, source: str, record: dict | None) -> str | None:
    """Say what is wrong with a file of the volume. The content is read only if inode and times do not decide."""
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    original = os.stat(source)
    if os.path.samestat(status, original):
        return None
    if status.st_size != original.st_size:
        return f"has {status.st_size} bytes instead of {original.st_size}"
    if stat.S_IMODE(status.st_mode) != stat.S_IMODE(original.st_mode):
        return f"has mode {stat.S_IMODE(status.st_mode):04o} instead of {stat.S_IMODE(original.st_mode):04o}"
    if record and record.get("stat") == _fingerprint(status) and record.get("source_stat") == _fingerprint(original):
        return None
    return None if filecmp.cmp(path, source, shallow=False) else f"differs from {source}"


def _fingerprint(status: os.stat_result) -> list[int]:
    # A program can set the modification time of a file, but not the change time of the inode.
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _manifest(directory: str) -> dict[str, dict]:
    try:
        with open(os.path.join(directory, MANIFEST), encoding="utf-8") as handle:
            data = json.load(handle)
        return data["files"] if data["format"] == MANIFEST_FORMAT else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def sizes(layout: Layout, directory: str) -> dict[str, int]:
    """Count the bytes of the volume, and how many of them are hard links to files of the host."""
    total = linked = 0
    for relative, source in layout.files.items():
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(os.path.join(directory, relative))
            total += status.st_size
            linked += status.st_size if os.path.samestat(status, os.stat(source)) else 0
    return {"total_bytes": total, "hard_linked_bytes": linked, "copied_bytes": total - linked}


@contextlib.contextmanager
def locked(path: str) -> Iterator[str]:
    """Lock the volumes under `path`. Create their directory, and remove it again if it stays empty."""
    base = os.path.join(path, KIND)
    created, handle = _lock(base)
    try:
        for name in os.listdir(base):
            if name.startswith(STAGING_PREFIX):
                _remove_tree(os.path.join(base, name))
        yield base
    finally:
        _remove_empty(created)
        os.close(handle)


def _lock(base: str) -> tuple[list[str], int]:
    created: list[str] = []
    try:
        while True:
            created += _create_directories(base)
            handle = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(handle, fcntl.LOCK_EX)
            # While this run waited for the lock, another run may have removed the directory.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(base)):
                    return created, handle
            os.close(handle)
    except OSError as error:
        _remove_empty(created)
        raise VolumeError(_cannot_write(base, error)) from error


def _create_directories(path: str) -> list[str]:
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    missing.reverse()
    for directory in missing:
        os.mkdir(directory)
        os.chmod(directory, 0o755)
    return missing


def _remove_empty(directories: list[str]) -> None:
    for directory in reversed(directories):
        with contextlib.suppress(OSError):
            os.rmdir(directory)


def _cannot_write(path: str, error: OSError) -> str:
    name = error.filename2 or error.filename or path
    return f"cannot write {name}: {error.strerror}. Set `path` to a directory on a local, writable file system."


def check_destination(layout: Layout, directory: str, changes: Difference) -> None:
    """Fail, also in check mode, if the volume cannot be written to `directory`."""
    parent = directory
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent):
        raise VolumeError(_cannot_write(parent, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))))
    if not os.access(parent, os.W_OK | os.X_OK):
        read_only = os.statvfs(parent).f_flag & os.ST_RDONLY
        number = errno.EROFS if read_only else errno.EACCES
        raise VolumeError(_cannot_write(parent, OSError(number, os.strerror(number))))
    status, device = os.statvfs(parent), os.stat(parent).st_dev
    if any(os.stat(source).st_dev != device for source in layout.files.values()):
        free = status.f_bavail * status.f_frsize
        if free < _bytes_to_copy(layout, changes):
            raise VolumeError(_no_space(layout, directory, changes, f", but only {free // 2**20} MiB are free"))


def _bytes_to_copy(layout: Layout, changes: Difference) -> int:
    return sum(
        os.stat(source).st_size
        for relative, source in layout.files.items()
        if relative in changes.add or relative in changes.replace
    )


def _no_space(layout: Layout, directory: str, changes: Difference, free: str = "") -> str:
    return (
        f"no space left for the volume of driver {layout.version} at {directory}: the copies need "
        f"{_bytes_to_copy(layout, changes) // 2**20 + 1} MiB{free}. Free space, or set `driver_volume_path` to a "
        "directory on the driver's own file system, where hard links take no space."
    )


def build(
    layout: Layout, base: str, label: str | None = None, link: Callable[[str, str], None] = os.link
) -> Difference:
    """Create or repair the volume under `base`, which the caller has locked. Return the changes."""
    directory = os.path.join(base, layout.version)
    changes = difference(layout, directory, label)
    if not changes:
        return changes
    check_destination(layout, directory, changes)
    staging = None
    try:
        staging = tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=base)
        _stage(layout, staging, directory, label, link)
        if os.path.isdir(directory) and not os.path.islink(directory):
            _repair(layout, staging, directory, changes.remove, label)
        else:
            _write_manifest(layout, staging, staging, label)
            if os.path.lexists(directory):
                os.unlink(directory)
            atomic_file.sync(staging)
            os.rename(staging, directory)
        atomic_file.sync(base)
    except OSError as error:
        if error.errno in NO_SPACE_ERRORS:
            raise VolumeError(_no_space(layout, directory, changes)) from error
        raise VolumeError(_cannot_write(directory, error)) from error
    finally:
        if staging and os.path.lexists(staging):
            _remove_tree(staging)
    return changes


def _stage(layout: Layout, staging: str, directory: str, label: str | None, link: Callable[[str, str], None]) -> None:
    """Create the files and links of a complete volume in `staging`. Intact files of `directory` are linked."""
    records = _manifest(directory)
    for name in ("", *SUBDIRECTORIES):
        _make_directory(os.path.join(staging, name), label)
    for relative, source in layout.files.items():
        path, existing = os.path.join(staging, relative), os.path.join(directory, relative)
        if os.path.lexists(existing) and not _file_fault(existing, os.lstat(existing), source, records.get(relative)):
            _link_or_copy(existing, path, label, os.link)
        else:
            _link_or_copy(source, path, label, link)
    for relative, target in layout.links.items():
        path = os.path.join(staging, relative)
        os.symlink(target, path)
        _set_label(path, label)
    for name in SUBDIRECTORIES:
        atomic_file.sync(os.path.join(staging, name))


def _repair(layout: Layout, staging: str, directory: str, remove: list[str], label: str | None) -> None:
    """Rename the entries of `staging` over those of `directory`, then remove the entries that do not belong there."""
    for name in ("", *SUBDIRECTORIES):
        path = os.path.normpath(os.path.join(directory, name))
        if os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path)):
            os.unlink(path)
        _make_directory(path, label)
    for name in SUBDIRECTORIES:
        for entry in os.listdir(os.path.join(staging, name)):
            path = os.path.join(directory, name, entry)
            if os.path.isdir(path) and not os.path.islink(path):
                _remove_tree(path)
            # If both names are links to the same file, the rename does nothing.
            os.rename(os.path.join(staging, name, entry), path)
    for relative in remove:
        _remove_tree(os.path.join(directory, relative))
    # Remove the remaining staged links before the manifest is written, because removing a link changes the change time
    # of the inode, which the manifest records.
    for name in SUBDIRECTORIES:
        _remove_tree(os.path.join(staging, name))
    _write_manifest(layout, directory, staging, label)
    os.rename(os.path.join(staging, MANIFEST), os.path.join(directory, MANIFEST))
    for name in ("", *SUBDIRECTORIES):
        atomic_file.sync(os.path.join(directory, name))


def _write_manifest(layout: Layout, directory: str, into: str, label: str | None) -> None:
    records = {
        relative: {
            "source": source,
            "stat": _fingerprint(os.lstat(os.path.join(directory, relative))),
            "source_stat": _fingerprint(os.stat(source)),
        }
        for relative, source in layout.files.items()
    }
    path = os.path.join(into, MANIFEST)
    with open(path, "w", encoding="utf-8") as handle:
        json.dump({"format": MANIFEST_FORMAT, "version": layout.version, "files": records}, handle, sort_keys=True)
        handle.flush()
        os.fsync(handle.fileno())
    os.chmod(path, 0o644)
    _set_label(path, label)


def _make_directory(path: str, label: str | None) -> None:
    if not os.path.isdir(path):
        os.mkdir(path)
    os.chown(path, os.geteuid(), os.getegid())
    os.chmod(path, 0o755)
    _set_label(path, label)


def _link_or_copy(source: str, path: str, label: str | None, link: Callable[[str, str], None]) -> None:
    try:
        link(source, path)
        return
    except OSError as error:
        if error.errno not in COPY_ERRORS:
            raise
    with open(source, "rb") as read, open(path, "xb") as write:
        shutil.copyfileobj(read, write, 1024 * 1024)
        write.flush()
        os.fsync(write.fileno())
    status = os.stat(source)
    os.chmod(path, stat.S_IMODE(status.st_mode))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    _set_label(path, label)


def remove(base: str, version: str) -> None:
    """Remove the volume of driver `version` atomically. The caller has locked `base`."""
    directory = os.path.join(base, version)
    trash = None
    try:
        trash = tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=base)
        try:
            os.rename(directory, os.path.join(trash, version))
        except OSError as error:
            # A directory in the lower layer of an overlay cannot be renamed, so its files are removed one by one.
            if error.errno != errno.EXDEV:
                raise
            _remove_tree(directory)
    except OSError as error:
        raise VolumeError(
            f"cannot remove {error.filename or directory}: {error.strerror}. Stop the processes that use this path, "
            "then run this module again."
        ) from error
    finally:
        if trash:
            _remove_tree(trash)


def _remove_tree(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _label_of(path: str) -> str | None:
    try:
        return os.getxattr(path, SELINUX_ATTRIBUTE, follow_symlinks=False).rstrip(b"\0").decode()
    except OSError:
        return None


def _set_label(path: str, label: str | None) -> None:
    if not label:
        return
    try:
        os.setxattr(path, SELINUX_ATTRIBUTE, label.encode() + b"\0", follow_symlinks=False)
    except OSError as error:
        raise VolumeError(
            f"cannot set the SELinux label of {path} to {label}: {error.strerror}. Install container-selinux, whose "
            "policy defines the type, or set selinux_type to another type."
        ) from error
