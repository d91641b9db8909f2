# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of a CDI specification among the files of others."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import stat
import tempfile
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils import cdi_reader

SUFFIXES = (".json", ".yaml")
# Programs of the vendor's toolkit: a specification that calls one is made by it.
VENDOR_PROGRAMS = ("nvidia-cdi-hook", "nvidia-ctk")
MODE = 0o644


class FileError(Exception):
    """The file can't be read, written or removed, or is not ours."""


class Other(NamedTuple):
    """A specification of the same kind that is not ours."""

    path: str
    devices: tuple[str, ...]
    stale: tuple[str, ...]


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


def others(directories: list[str], kind: str, own: str) -> tuple[list[Other], list[str]]:
    """Return the other specifications of `kind`, and what is wrong with files that can't be read."""
    found, broken, seen = [], [], {os.path.realpath(own)}
    for directory in directories:
        for path in sorted(glob.glob(os.path.join(glob.escape(directory), "*"))):
            if not path.endswith(SUFFIXES) or os.path.realpath(path) in seen:
                continue
            seen.add(os.path.realpath(path))
            try:
                spec = cdi_reader.load(read(path))
                if spec["kind"] == kind:
                    found.append(_other(spec, path))
            except (cdi_reader.SpecError, FileError, AttributeError, KeyError, TypeError) as error:
                broken.append(f"{path} can't be read as a CDI specification: {error}")
    return found, broken


def _other(spec: dict, path: str) -> Other:
    devices = spec.get("devices") or []
    edits = [spec.get("containerEdits") or {}, *(device.get("containerEdits") or {} for device in devices)]
    named = [mount["hostPath"] for edit in edits for mount in edit.get("mounts") or ()]
    named += [node.get("hostPath") or node["path"] for edit in edits for node in edit.get("deviceNodes") or ()]
    gone = sorted({name for name in named if not os.path.lexists(name)})
    return Other(path, tuple(str(device["name"]) for device in devices), tuple(gone))


def is_current(path: str, text: str) -> bool:
    """Tell whether the file holds `text`, readable by everybody."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode) == MODE and read(path) == text
    except FileNotFoundError:
        return False


def write(path: str, text: str) -> None:
    """Put the file in place in one step. Engines never see half of it, nor the file beside it."""
    directory, temporary = os.path.dirname(path), None
    made = not os.path.isdir(directory)
    try:
        if made:
            os.mkdir(directory)
            os.chmod(directory, 0o755)
        # The suffix keeps engines, which watch the directory, from reading it.
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=directory)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, MODE)
        os.rename(temporary, path)
    except OSError as error:
        if temporary:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        if made:
            with contextlib.suppress(OSError):
                os.rmdir(directory)
        raise FileError(f"cannot write {path}: {error.strerror}") from error


def remove(path: str) -> None:
    """Remove the file."""
    try:
        os.unlink(path)
    except OSError as error:
        raise FileError(f"cannot remove {path}: {error.strerror}") from error
