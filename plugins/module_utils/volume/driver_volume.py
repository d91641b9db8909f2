# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver volume on disk: one directory a driver version, with bin, lib and lib64, whole or absent.

A new volume is staged beside its place and renamed into it. A volume that is there but damaged is mended file by file,
each by a rename: its directory stays the same one, so a container that mounts it sees the mended files, and a process
that has a replaced library open keeps the old one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import filecmp
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.volume.driver_files import DriverFile

DEFAULT_PATH = "/var/lib/gpufleet/volumes"
KIND = "nvidia_driver"
MOUNT_POINT = "/usr/local/nvidia"
PLACES = ("bin", "lib", "lib64")
MANIFEST = ".manifest.json"
MANIFEST_FORMAT = 1
STAGING = ".tmp-"
VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+")
# What link(2) answers where a copy is the way: another file system, no links there, too many of them, not allowed.
COPY_INSTEAD = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES)
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
SELINUX = "security.selinux"


class VolumeError(Exception):
    """The volume can't be made, read or removed."""


class Wanted(NamedTuple):
    """What a volume shall hold: regular files by relative path, and links with their targets."""

    version: str
    files: dict[str, str]
    links: dict[str, str]


class Difference(NamedTuple):
    """What must change to make a volume whole: relative paths, those to replace with what is wrong with them."""

    add: list[str]
    replace: dict[str, str]
    remove: list[str]

    def __bool__(self) -> bool:
        return bool(self.add or self.replace or self.remove)


def volume_name(version: str) -> str:
    """Return the name under which an engine knows the volume of driver `version`."""
    return f"{KIND}_{version}"


def directory(path: str, version: str) -> str:
    """Return the directory of the volume of driver `version`."""
    return os.path.join(path, KIND, version)


def mount_spec(version: str) -> str:
    """Return what an engine's `--volume` takes to mount the volume of driver `version` as containers expect it."""
    return f"{volume_name(version)}:{MOUNT_POINT}:ro"


def container_env(image: dict[str, str] | None = None) -> dict[str, str]:
    """Return the variables by which a container finds the volume's libraries and programs.

    `image` are the variables that the image and the user set: they are kept, and what already names the volume is
    left alone. PATH is set only where `image` says what the PATH is, since a PATH of our own would hide the image's.
    """
    image = image or {}
    env = {"LD_LIBRARY_PATH": _joined(image.get("LD_LIBRARY_PATH", ""), ("lib64", "lib"))}
    if image.get("PATH"):
        env["PATH"] = _joined(image["PATH"], ("bin",))
    return {name: value for name, value in env.items() if value != image.get(name)}


def _joined(current: str, places: tuple[str, ...]) -> str:
    # What the image names first, it means to be found first: CUDA's compatibility libraries for example.
    have = [piece for piece in current.split(":") if piece]
    named = {piece.rstrip("/") for piece in have}
    return ":".join(have + [path for path in (f"{MOUNT_POINT}/{place}" for place in places) if path not in named])


def wanted(version: str, files: Iterable[DriverFile]) -> Wanted:
    """Lay the driver's files out as a volume."""
    files = list(files)
    return Wanted(
        version,
        {f"{file.place}/{file.name}": file.source for file in files},
        {f"{file.place}/{link}": file.name for file in files for link in file.links},
    )


def versions(path: str) -> list[str]:
    """List the versions that have a volume under `path`."""
    try:
        names = os.listdir(os.path.join(path, KIND))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((name for name in names if VERSION.fullmatch(name)), key=version_key)


def version_key(version: str) -> tuple[int, ...]:
    """Order versions by their numbers."""
    return tuple(int(piece) for piece in version.split("."))


def difference(want: Wanted, place: str, label: str | None = None) -> Difference:
    """Compare what is in `place` with what a whole volume holds."""
    have, manifest = _walk(place), _manifest(place)
    add, replace = [], {}
    for relative, source in want.files.items():
        status = have.pop(relative, None)
        if status is None:
            add.append(relative)
            continue
        fault = _fault(os.path.join(place, relative), status, source, manifest.get(relative))
        if fault:
            replace[relative] = fault
    for relative, target in want.links.items():
        status = have.pop(relative, None)
        if status is None:
            add.append(relative)
        elif not stat.S_ISLNK(status.st_mode) or os.readlink(os.path.join(place, relative)) != target:
            replace[relative] = f"is not a link to {target}"
    remove = list(have)
    if os.path.isdir(place):
        for name in ("", *PLACES):
            fault = _directory_fault(os.path.normpath(os.path.join(place, name)), label)
            if fault:
                replace[name or "."] = fault
    return Difference(sorted(add), replace, sorted(remove))


def _walk(place: str) -> dict[str, os.stat_result]:
    """Return everything in the volume but its own directories and its manifest."""
    found, ours = {}, {MANIFEST, *PLACES}
    for base, directories, files in os.walk(place):
        for name in files + directories:
            relative = os.path.relpath(os.path.join(base, name), place)
            if relative not in ours:
                found[relative] = os.lstat(os.path.join(base, name))
        directories[:] = [name for name in directories if os.path.relpath(os.path.join(base, name), place) in PLACES]
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
        return f"belongs to {status.st_uid}:{status.st_gid} instead of {os.geteuid()}:{os.getegid()}"
    if label and _label_of(path) != label:
        return f"has SELinux label {_label_of(path)} instead of {label}"
    return None


def _fault(path: str, status: os.stat_result, source: str, record: dict | None) -> str | None:
    """Say what is wrong with a file of the volume. Content is read only where inode and times can't tell."""
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    original = os.stat(source)
    if os.path.samestat(status, original):
        return None
    if status.st_size != original.st_size:
        return f"has {status.st_size} bytes instead of {original.st_size}"
    if stat.S_IMODE(status.st_mode) != stat.S_IMODE(original.st_mode):
        return f"has mode {stat.S_IMODE(status.st_mode):04o} instead of {stat.S_IMODE(original.st_mode):04o}"
    if record and record.get("stat") == _stamp(status) and record.get("source_stat") == _stamp(original):
        return None
    return None if filecmp.cmp(path, source, shallow=False) else f"differs from {source}"


def _stamp(status: os.stat_result) -> list[int]:
    # The time of the last change of the inode can't be set by hand, unlike that of the content.
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _manifest(place: str) -> dict[str, dict]:
    try:
        with open(os.path.join(place, MANIFEST), encoding="utf-8") as handle:
            data = json.load(handle)
        return data["files"] if data["format"] == MANIFEST_FORMAT else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def sizes(want: Wanted, place: str) -> dict[str, int]:
    """Count the volume's bytes, those that the host's own files hold anyway told apart."""
    total = linked = 0
    for relative, source in want.files.items():
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(os.path.join(place, relative))
            total += status.st_size
            linked += status.st_size if os.path.samestat(status, os.stat(source)) else 0
    return {"total_bytes": total, "hard_linked_bytes": linked, "copied_bytes": total - linked}


@contextlib.contextmanager
def locked(path: str) -> Iterator[str]:
    """Hold the volumes under `path` for ourselves; make the directory, and take it away again if nothing came of it."""
    base = os.path.join(path, KIND)
    made, handle = _lock(base)
    try:
        for name in os.listdir(base):
            if name.startswith(STAGING):
                _remove_tree(os.path.join(base, name))
        yield base
    finally:
        for directory_made in reversed(made):
            with contextlib.suppress(OSError):
                os.rmdir(directory_made)
        os.close(handle)


def _lock(base: str) -> tuple[list[str], int]:
    made: list[str] = []
    try:
        while True:
            made += _make_directories(base)
            handle = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(handle, fcntl.LOCK_EX)
            # Another run may have given up and removed the directory while we waited.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(base)):
                    return made, handle
            os.close(handle)
    except OSError as error:
        for directory_made in reversed(made):
            with contextlib.suppress(OSError):
                os.rmdir(directory_made)
        raise VolumeError(_cannot_write(base, error)) from error


def _make_directories(path: str) -> list[str]:
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    made = []
    for directory_missing in reversed(missing):
        os.mkdir(directory_missing)
        os.chmod(directory_missing, 0o755)
        made.append(directory_missing)
    return made


def _cannot_write(path: str, error: OSError) -> str:
    name = error.filename2 or error.filename or path
    return f"cannot write {name}: {error.strerror}. Give a `path` on a local, writable file system."


def refuse_hopeless(want: Wanted, place: str, changes: Difference) -> None:
    """Fail where it can be told beforehand, in check mode too, that the volume can't be written to `place`."""
    there = place
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        raise VolumeError(_cannot_write(there, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))))
    if not os.access(there, os.W_OK | os.X_OK):
        read_only = os.statvfs(there).f_flag & os.ST_RDONLY
        number = errno.EROFS if read_only else errno.EACCES
        raise VolumeError(_cannot_write(there, OSError(number, os.strerror(number))))
    status, device = os.statvfs(there), os.stat(there).st_dev
    if any(os.stat(source).st_dev != device for source in want.files.values()):
        free = status.f_bavail * status.f_frsize
        if free < _bytes_to_copy(want, changes):
            raise VolumeError(_no_space(want, place, changes) + f" {free // 2**20} MiB are free.")


def _bytes_to_copy(want: Wanted, changes: Difference) -> int:
    return sum(
        os.stat(source).st_size
        for relative, source in want.files.items()
        if relative in changes.add or relative in changes.replace
    )


def _no_space(want: Wanted, place: str, changes: Difference) -> str:
    return (
        f"no space left for the volume of driver {want.version} at {place}: copies take "
        f"{_bytes_to_copy(want, changes) // 2**20 + 1} MiB. Free that much, or set `path` on the driver's own file "
        "system, where hard links do."
    )


def build(want: Wanted, base: str, label: str | None = None, link: Callable[[str, str], None] = os.link) -> Difference:
    """Make the volume under `base` whole, inside `locked`; return what was changed."""
    place = os.path.join(base, want.version)
    changes = difference(want, place, label)
    if not changes:
        return changes
    refuse_hopeless(want, place, changes)
    staging = None
    try:
        staging = tempfile.mkdtemp(prefix=STAGING, dir=base)
        _stage(want, staging, place, label, link)
        if os.path.isdir(place) and not os.path.islink(place):
            _mend(want, staging, place, changes.remove, label)
        else:
            _write_manifest(want, staging, staging, label)
            if os.path.lexists(place):
                os.unlink(place)
            _sync(staging)
            os.rename(staging, place)
        _sync(base)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise VolumeError(_no_space(want, place, changes)) from error
        raise VolumeError(_cannot_write(place, error)) from error
    finally:
        if staging and os.path.lexists(staging):
            _remove_tree(staging)
    return changes


def _stage(want: Wanted, staging: str, place: str, label: str | None, link: Callable[[str, str], None]) -> None:
    """Put the files and links of a whole volume in `staging`; what is sound in `place` is taken from there."""
    old = _manifest(place)
    for name in ("", *PLACES):
        _make_directory(os.path.join(staging, name), label)
    for relative, source in want.files.items():
        path, there = os.path.join(staging, relative), os.path.join(place, relative)
        if os.path.lexists(there) and not _fault(there, os.lstat(there), source, old.get(relative)):
            _link_or_copy(there, path, label, os.link)
        else:
            _link_or_copy(source, path, label, link)
    for relative, target in want.links.items():
        path = os.path.join(staging, relative)
        os.symlink(target, path)
        _set_label(path, label)
    for name in PLACES:
        _sync(os.path.join(staging, name))


def _mend(want: Wanted, staging: str, place: str, remove: list[str], label: str | None) -> None:
    """Move what is in `staging` over what is in `place`, name by name, then take away what does not belong."""
    for name in ("", *PLACES):
        path = os.path.normpath(os.path.join(place, name))
        if os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path)):
            os.unlink(path)
        _make_directory(path, label)
    for name in PLACES:
        for entry in os.listdir(os.path.join(staging, name)):
            path = os.path.join(place, name, entry)
            if os.path.isdir(path) and not os.path.islink(path):
                _remove_tree(path)
            # Where both names are one file already, this does nothing.
            os.rename(os.path.join(staging, name, entry), path)
    for relative in remove:
        _remove_tree(os.path.join(place, relative))
    # What is still staged is linked from `place` too: its record would not outlive the removal of the second name.
    for name in PLACES:
        _remove_tree(os.path.join(staging, name))
    _write_manifest(want, place, staging, label)
    os.rename(os.path.join(staging, MANIFEST), os.path.join(place, MANIFEST))
    for name in ("", *PLACES):
        _sync(os.path.join(place, name))


def _write_manifest(want: Wanted, place: str, into: str, label: str | None) -> None:
    records = {
        relative: {
            "source": source,
            "stat": _stamp(os.lstat(os.path.join(place, relative))),
            "source_stat": _stamp(os.stat(source)),
        }
        for relative, source in want.files.items()
    }
    path = os.path.join(into, MANIFEST)
    with open(path, "w", encoding="utf-8") as handle:
        json.dump({"format": MANIFEST_FORMAT, "version": want.version, "files": records}, handle, sort_keys=True)
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
        if error.errno not in COPY_INSTEAD:
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
    """Remove the volume of driver `version`, inside `locked`: it vanishes in one step."""
    place = os.path.join(base, version)
    away = None
    try:
        away = tempfile.mkdtemp(prefix=STAGING, dir=base)
        try:
            os.rename(place, os.path.join(away, version))
        except OSError as error:
            # A directory of an overlay's lower layer can't be moved: it goes piece by piece.
            if error.errno != errno.EXDEV:
                raise
            _remove_tree(place)
    except OSError as error:
        raise VolumeError(
            f"cannot remove {error.filename or place}: {error.strerror}. See what holds it, then run this again."
        ) from error
    finally:
        if away:
            _remove_tree(away)


def _remove_tree(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _label_of(path: str) -> str | None:
    try:
        return os.getxattr(path, SELINUX, follow_symlinks=False).rstrip(b"\0").decode()
    except OSError:
        return None


def _set_label(path: str, label: str | None) -> None:
    if not label:
        return
    try:
        os.setxattr(path, SELINUX, label.encode() + b"\0", follow_symlinks=False)
    except OSError as error:
        raise VolumeError(
            f"cannot give {path} the SELinux label {label}: {error.strerror}. Install container-selinux, whose policy "
            "knows the type, or name another with selinux_type."
        ) from error
