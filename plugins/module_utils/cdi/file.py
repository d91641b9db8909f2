# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of a CDI specification among the files of others."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import stat
import tempfile
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.driver import SUFFIXES, mark_of

# Programs of the vendor's toolkit: a specification that calls one is made by it.
VENDOR_PROGRAMS = ("nvidia-cdi-hook", "nvidia-ctk")
MODE = 0o644
MARK_TEXT = "{} is made by the Ansible module gpufleet.hosts.nvidia_cdi_spec, which replaces it and removes it.\n"


class FileError(Exception):
    """The file can't be read, written or removed, or is not ours."""


class Other(NamedTuple):
    """Another specification of the same kind; `ours` is one that this module made under another name."""

    path: str
    devices: tuple[str, ...]
    stale: tuple[str, ...]
    ours: bool


def text_of(spec: dict) -> str:
    """Return a specification as it is written."""
    return json.dumps(spec, indent=2) + "\n"


def read(path: str) -> str:
    """Return what the file holds, nothing where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from error


def is_vendors(text: str) -> bool:
    """Tell whether a specification is made by the vendor's toolkit."""
    return any(program in text for program in VENDOR_PROGRAMS)


def is_marked(path: str) -> bool:
    """Tell whether the file at `path` is ours."""
    return os.path.isfile(mark_of(path))


def files(directories: list[str]) -> list[str]:
    """List the specifications in the directories; one directory under two names is one."""
    found = {}
    for directory in directories:
        for path in sorted(glob.glob(os.path.join(glob.escape(directory), "*"))):
            if path.endswith(SUFFIXES):
                found.setdefault(_place(path), path)
    return list(found.values())


def _place(path: str) -> str:
    """Return which file of a directory is meant, whatever the directory is called and the file links to."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def others(directories: list[str], kind: str, own: str) -> tuple[list[Other], list[str]]:
    """Return the other specifications of `kind`, and what is wrong with files that can't be read."""
    found, broken = [], []
    for path in files(directories):
        if _place(path) == _place(own):
            continue
        try:
            spec = reader.load(read(path))
            if spec["kind"] == kind:
                found.append(_other(spec, path))
        except (reader.SpecError, FileError) as error:
            broken.append(f"{path} can't be read as a CDI specification: {error}")
    return found, broken


def _other(spec: dict, path: str) -> Other:
    gone = sorted({name for name in _named(spec) if not os.path.lexists(name)})
    return Other(path, tuple(str(device["name"]) for device in spec.get("devices") or []), tuple(gone), is_marked(path))


def _named(spec: dict) -> list[str]:
    """List the files and device nodes of the host that a specification names."""
    edits = [device.get("containerEdits") or {} for device in spec.get("devices") or []]
    edits.append(spec.get("containerEdits") or {})
    mounts = [mount["hostPath"] for edit in edits for mount in edit.get("mounts") or ()]
    return mounts + [node.get("hostPath") or node["path"] for edit in edits for node in edit.get("deviceNodes") or ()]


def named_in(path: str) -> list[str]:
    """List what the specification at `path` names of the host; where it is none, all in it that looks like a path."""
    try:
        text = read(path)
    except FileError:
        return []
    try:
        return _named(reader.load(text))
    except reader.SpecError:
        return re.findall(r"/[^\s\"',\0]+", text)


def is_current(path: str, text: str) -> bool:
    """Tell whether the file holds `text`, readable by everybody."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode) == MODE and read(path) == text
    except FileNotFoundError:
        return False


def write(path: str, text: str) -> None:
    """Put the file in place in one step, and the note beside it. Engines never see half of it."""
    directory = os.path.dirname(path)
    made = not os.path.isdir(directory)
    marked = is_marked(path)
    try:
        if made:
            os.mkdir(directory)
            os.chmod(directory, 0o755)
        if not marked:
            # First, so that a run that is cut off does not leave a file that nobody owns.
            _write(mark_of(path), MARK_TEXT.format(os.path.basename(path)))
        _write(path, text)
    except OSError as error:
        if not marked:
            with contextlib.suppress(OSError):
                os.unlink(mark_of(path))
        if made:
            with contextlib.suppress(OSError):
                os.rmdir(directory)
        raise FileError(f"cannot write {path}: {error.strerror}") from error


def _write(path: str, text: str) -> None:
    temporary = None
    try:
        # The suffix keeps engines, which watch the directory, from reading it.
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
    """Remove the file, then the note."""
    try:
        for name in (path, mark_of(path)):
            if os.path.lexists(name):
                os.unlink(name)
    except OSError as error:
        raise FileError(f"cannot remove {path}: {error.strerror}") from error
