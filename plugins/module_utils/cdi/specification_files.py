# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read, write and remove the file of a CDI specification, and find other specifications of the same devices."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import stat
import tempfile
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.directories import SUFFIXES, marker_path

# The directories in which engines look for specifications.
DIRECTORIES = ("etc/cdi", "run/cdi")
MODE = 0o644
MARKER_TEXT = "The Ansible module gpufleet.hosts.{} manages {} and may replace or remove it.\n"


class FileError(Exception):
    """The file cannot be read, written or removed, or this module did not create it."""


class OtherSpec(NamedTuple):
    """Another specification of the same kind. `managed` means that this module created it under another name."""

    path: str
    devices: tuple[str, ...]
    stale: tuple[str, ...]
    managed: bool


def serialize(spec: dict) -> str:
    """Return the content of the file of a specification."""
    return json.dumps(spec, indent=2) + "\n"


def read(path: str) -> str:
    """Return the content of the file, or an empty string if it does not exist."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from error


def is_managed(path: str) -> bool:
    """Return whether this module manages the file at `path`."""
    return os.path.isfile(marker_path(path))


def files(directories: list[str]) -> list[str]:
    """List the specifications in the directories. A directory that is listed under two names counts once."""
    found = {}
    for directory in directories:
        for path in sorted(glob.glob(os.path.join(glob.escape(directory), "*"))):
            if path.endswith(SUFFIXES):
                found.setdefault(_canonical(path), path)
    return list(found.values())


def _canonical(path: str) -> str:
    """Resolve the links in the directory of a path, but not a link at its end."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def other_specs(directories: list[str], kind: str, own: str) -> tuple[list[OtherSpec], list[str]]:
    """Return the specifications of `kind` except the file at `own`, and errors for files that cannot be read."""
    found, errors = [], []
    for path in files(directories):
        if _canonical(path) == _canonical(own):
            continue
        try:
            spec = specification_reader.load(read(path))
            if spec["kind"] == kind:
                found.append(_other_spec(spec, path))
        except (specification_reader.SpecError, FileError) as error:
            errors.append(f"{path} cannot be read as a CDI specification: {error}")
    return found, errors


def _other_spec(spec: dict, path: str) -> OtherSpec:
    devices = tuple(str(device["name"]) for device in spec.get("devices") or [])
    stale = sorted({name for name in _host_paths(spec) if not os.path.lexists(name)})
    return OtherSpec(path, devices, tuple(stale), is_managed(path))


def _host_paths(spec: dict) -> list[str]:
    """List the files and device nodes of the host that a specification refers to."""
    edits = [device.get("containerEdits") or {} for device in spec.get("devices") or []]
    edits.append(spec.get("containerEdits") or {})
    mounts = [mount["hostPath"] for edit in edits for mount in edit.get("mounts") or ()]
    return mounts + [node.get("hostPath") or node["path"] for edit in edits for node in edit.get("deviceNodes") or ()]


def host_paths_in(path: str) -> list[str]:
    """List the host paths that the file at `path` refers to.

    An invalid specification yields everything in it that looks like a path.
    """
    try:
        text = read(path)
    except FileError:
        return []
    try:
        return _host_paths(specification_reader.load(text))
    except specification_reader.SpecError:
        return re.findall(r"/[^\s\"',\0]+", text)


def referring_to(directory: str, root: str = "/") -> list[str]:
    """List the specifications that refer to a directory or something in it, directly or through links."""
    inside = os.path.realpath(directory) + os.sep
    return [
        path
        for path in files([os.path.join(root, name) for name in DIRECTORIES])
        if any((os.path.realpath(name) + os.sep).startswith(inside) for name in host_paths_in(path))
    ]


def is_current(path: str, text: str) -> bool:
    """Return whether the file has the content `text` and the right mode."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode) == MODE and read(path) == text
    except FileNotFoundError:
        return False


def write(path: str, text: str, module: str) -> None:
    """Write the file of `module` and its marker. The file is replaced atomically, so engines never read part of it."""
    directory = os.path.dirname(path)
    creates_directory = not os.path.isdir(directory)
    managed = is_managed(path)
    try:
        if creates_directory:
            os.mkdir(directory)
            os.chmod(directory, 0o755)
        if not managed:
            # The marker comes first, so that an interrupted run leaves no specification without a marker.
            _write(marker_path(path), MARKER_TEXT.format(module, os.path.basename(path)))
        _write(path, text)
    except OSError as error:
        if not managed:
            with contextlib.suppress(OSError):
                os.unlink(marker_path(path))
        if creates_directory:
            with contextlib.suppress(OSError):
                os.rmdir(directory)
        raise FileError(f"cannot write {path}: {error.strerror}") from error


def _write(path: str, text: str) -> None:
    temporary = None
    try:
        # Engines watch the directory. They ignore files with this suffix.
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=os.path.dirname(path))
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, MODE)
        os.rename(temporary, path)
    except OSError:
        if temporary:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        raise


def remove(path: str) -> None:
    """Remove the file, then its marker."""
    try:
        for name in (path, marker_path(path)):
            if os.path.lexists(name):
                os.unlink(name)
    except OSError as error:
        raise FileError(f"cannot remove {path}: {error.strerror}") from error
