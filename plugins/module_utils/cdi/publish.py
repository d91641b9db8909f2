# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write or remove one specification of any kind: never a second one of the same kind, and never a file of others."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_document, specification_reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_files as cdi_file

# CDI allows a dot in a class only since version 0.6.0, which old engines cannot read.
_KIND_PARTS = {
    "vendor": re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"),
    "class": re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z0-9])?"),
}


class CdiPlace(NamedTuple):
    """Where a specification goes. `module` writes it, and is named in the marker beside the file.

    `origin` returns which other program wrote the text of a file, as the end of a sentence, or None.
    """

    kind: str
    path: str
    directories: Sequence[str]
    module: str
    # Whether the module has the option that replaces files of others.
    can_take_over: bool = False
    take_over: bool = False
    origin: Callable[[str], str | None] = lambda _text: None


def error_text(error: Exception, path: str) -> str:
    """Return the message for an error. `path` is the specification."""
    if isinstance(error, OSError):
        return f"{error.filename or path}: {error.strerror or error}"
    return str(error)


def check(place: CdiPlace) -> None:
    """Raise FileError if the kind or the path is invalid."""
    for name, value in zip(("vendor", "class"), place.kind.split("/", 1)):
        if not _KIND_PARTS[name].fullmatch(value):
            raise cdi_file.FileError(
                f"{name}={value} is not a valid {name} of a CDI kind. Use letters, digits, _ and -"
                f"{', and dots' if name == 'vendor' else ''}; start with a letter, and end with a letter or a digit."
            )
    path = place.path
    if not os.path.isabs(path) or not path.endswith(cdi_file.SUFFIXES):
        raise cdi_file.FileError(f"path={path} is not an absolute path that ends with .json or .yaml")
    directories = [os.path.realpath(directory) for directory in place.directories]
    if os.path.realpath(os.path.dirname(path)) not in directories:
        raise cdi_file.FileError(
            f"path={path} is not in spec_dirs={','.join(place.directories)}, so no engine would read the file. Set a "
            "`path` in one of these directories."
        )


def apply(
    place: CdiPlace,
    build: Callable[[], specification_document.CdiResult] | None,
    warn: Callable[[cdi_file.OtherSpec, str], str],
    check_mode: bool,
) -> dict[str, Any]:
    """Write the specification that `build` returns, or remove it. In check mode, only predict the result."""
    kind, path = place.kind, place.path
    before = cdi_file.read(path)
    foreign = None if place.take_over else _foreign_file(place, before)
    if foreign and build is None:
        advice = "Set take_over=true to remove the file anyway." if place.can_take_over else "It was not removed."
        raise cdi_file.FileError(f"{foreign} {advice}")
    result: dict[str, Any] = {
        "path": path,
        "kind": kind,
        "cdi_version": None,
        "devices": [],
        "skipped": [],
        "maintained_by": [],
        "warnings": [],
    }
    after = ""
    if build is not None:
        _refuse_other_kind(path, before, kind)
        built = build()
        result["skipped"] = built.skipped
        devices = [device["name"] for device in built.spec["devices"]]
        others, errors = cdi_file.other_specs(list(place.directories), kind, path)
        result["warnings"] = built.warnings + errors + [warn(other, kind) for other in others]
        result["maintained_by"] = [
            {
                "path": other.path,
                "devices": list(other.devices),
                "missing_devices": [name for name in devices if name not in other.devices],
                "stale": list(other.stale),
            }
            for other in others
        ]
        if not others:
            after = cdi_file.serialize(built.spec)
            result.update(cdi_version=built.spec["cdiVersion"], devices=devices)
    changed = not cdi_file.is_current(path, after) if after else os.path.lexists(path)
    if foreign and changed:
        advice = "Set another `path`, or set take_over=true to replace the file."
        raise cdi_file.FileError(f"{foreign} {advice if place.can_take_over else 'Set another `path`.'}")
    if not check_mode:
        if not after:
            cdi_file.remove(path)
        elif changed or not cdi_file.is_managed(path):
            cdi_file.write(path, after, place.module)
    diff = {"before_header": path, "after_header": path, "before": before, "after": after}
    return {**result, "changed": changed, "diff": diff}


def _refuse_other_kind(path: str, text: str, kind: str) -> None:
    """Raise FileError if this collection wrote a specification of another kind to the file at `path`."""
    try:
        present = specification_reader.load(text)["kind"] if cdi_file.is_managed(path) else kind
    except specification_reader.SpecError:
        return
    if present != kind:
        raise cdi_file.FileError(
            f"path={path} is the specification of {present}, but this task would replace it with a specification of "
            f"{kind}. Set another `path`, or remove the option."
        )


def _foreign_file(place: CdiPlace, text: str) -> str | None:
    """Describe the file if this collection did not create it."""
    path = place.path
    origin = place.origin(text)
    if origin:
        return f"{path} was not created by this module: {origin}."
    if os.path.lexists(path) and not cdi_file.is_managed(path):
        return f"{path} was not created by this module: its marker {cdi_file.marker_path(path)} does not exist."
    return None
