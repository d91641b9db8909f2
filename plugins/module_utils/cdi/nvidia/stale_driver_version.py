# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver version that a CDI specification was written for, and whether it differs from the loaded driver.

The functions search the text of a specification, because parsing a long file as YAML takes longer than the rest of an
observation.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists, listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories as cdi_directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_reader

VENDOR = "nvidia.com"
# The kind of the GPUs in the files of NVIDIA's toolkit.
KIND = f"{VENDOR}/gpu"
# Programs of the toolkit. A specification that calls one of them comes from the toolkit.
TOOLKIT_PROGRAMS = ("nvidia-cdi-hook", "nvidia-ctk")
# The unit of this collection that writes a specification.
REFRESH_UNIT = os.path.basename(owned.CDI_UNIT)

_VERSION = r"(\d{3,4}\.\d{2,3}(?:\.\d{1,3})?)(?![\w.])"
_LIBRARY = re.compile(rf"\.so\.{_VERSION}")
# The firmware directory, the driver volume, and an argument of NVIDIA's hook for CUDA compatibility libraries.
_OTHER_SOURCES = re.compile(rf"(?:/nvidia/|/nvidia_driver/|--host-driver-version=){_VERSION}")
_KIND = re.compile(r"""(?:^|[{,\s])["']?kind["']?\s*:\s*["']?nvidia\.com/gpu["']?\s*(?:[,}#]|$)""", re.MULTILINE)
# The names of devices that are UUIDs of GPUs and MIG devices.
_UUID = re.compile(r"""\bname["']?\s*:\s*["']?((?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b""")
_MAX_SIZE = 4 * 1024 * 1024


def versions(text: str) -> tuple[str, ...]:
    """Return the driver versions that a specification names. The result is empty if it names no versioned file."""
    text = text.replace("\\/", "/")  # JSON may escape slashes.
    return tuple(sorted(set(_LIBRARY.findall(text)) or set(_OTHER_SOURCES.findall(text))))


def read(directories: Sequence[str], root: str = "/") -> specification_reader.Specs:
    """Read all specifications, with the driver versions that they name."""
    return specification_reader.read(directories, root, versions)


def toolkit_origin(text: str) -> str | None:
    """Return that NVIDIA's toolkit wrote a specification, as the end of a sentence, or None."""
    if not any(program in text for program in TOOLKIT_PROGRAMS):
        return None
    return f"it calls {' or '.join(TOOLKIT_PROGRAMS)}, so it comes from NVIDIA's toolkit"


def uuids(text: str) -> tuple[str, ...]:
    """Return the UUIDs that are names of devices. The result is empty if the specification names devices otherwise."""
    return tuple(sorted(set(_UUID.findall(text))))


def observed(root: str, directories: list[str] | tuple[str, ...]) -> list[dict]:
    """Return the specifications of kind nvidia.com/gpu with the driver versions and UUIDs that they name."""
    found: dict[str, dict] = {}
    for directory in directories:
        resolved = os.path.realpath(os.path.join(root, directory.lstrip("/")))
        for name in listing(root, directory):
            path = os.path.join(directory, name)
            text = read_text(root, path, _MAX_SIZE) if name.endswith(cdi_directories.SUFFIXES) else None
            if text and _KIND.search(text.replace("\\/", "/")):
                entry = {
                    "path": path,
                    "driver_versions": list(versions(text)),
                    "uuids": list(uuids(text)),
                    "ours": exists(root, cdi_directories.marker_path(path)),
                    "digest": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(),
                }
                # Two paths can refer to the same directory.
                found.setdefault(os.path.join(resolved, name), entry)
    return list(found.values())


def stale_message(
    path: str, named: list[str] | tuple[str, ...], loaded: str | None, *, ours: bool, command: str | None = None
) -> str | None:
    """Return a message if a specification is stale. Return None if it is current or names no version.

    A specification may also mount CUDA compatibility libraries, so one matching version is sufficient. `command` writes
    the specification again, if it is not the usual one.
    """
    if not named or not loaded or loaded in named:
        return None
    return (
        f"the CDI specification {path} is stale: it was written for driver {', '.join(named)}, but driver {loaded} is "
        f"loaded; {remedy(path, command, ours=ours)}"
    )


def changed_message(
    path: str, named: list[str], present: Collection[str], *, ours: bool, command: str | None = None
) -> str | None:
    """Return a message if a specification names other devices than those that are present.

    Both are UUIDs. Return None if one of them is empty, because then they are not known.
    """
    gone, new = sorted(set(named) - set(present)), sorted(set(present) - set(named))
    if not named or not present or not (gone or new):
        return None
    parts = [*([f"it names {', '.join(gone)}, which no longer exists"] if len(gone) == 1 else [])]
    if len(gone) > 1:
        parts.append(f"it names {', '.join(gone)}, which no longer exist")
    if new:
        parts.append(f"it lacks {', '.join(new)}")
    return f"the CDI specification {path} is stale: {', and '.join(parts)}; {remedy(path, command, ours=ours)}"


def different_message(path: str, differences: str, *, ours: bool, command: str | None = None) -> str:
    """Return the message for a specification whose nodes differ from those of the host."""
    return f"the CDI specification {path} is stale: {differences}; {remedy(path, command, ours=ours)}"


def remedy(path: str, command: str | None, *, ours: bool) -> str:
    """Return what writes a specification again. `command`: if it is not the usual one."""
    if command:
        return f"run `{command}`"
    if ours and cdi_directories.real(path) == owned.CDI_REFRESHED:
        return f"run `systemctl restart {REFRESH_UNIT}`"
    if ours:
        return "run nvidia_cdi_spec again"
    return f"run `nvidia-ctk cdi generate --output={path}`, or remove the file and run nvidia_cdi_spec"


def duplicates(specs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each pair of specifications with the same devices.

    In one directory, engines reject both. Otherwise, the one in /var/run/cdi overrides the other.
    """
    found = []
    ordered = sorted(specs, key=lambda spec: (not _is_of_boot(spec["path"]), cdi_directories.real(spec["path"])))
    for number, first in enumerate(ordered):
        for second in ordered[number + 1 :]:
            one, other = first["path"], second["path"]
            known = set(first["uuids"]), set(second["uuids"])
            if all(known) and not known[0] & known[1]:
                continue
            if os.path.dirname(cdi_directories.real(one)) == os.path.dirname(cdi_directories.real(other)):
                found.append(
                    f"the CDI specifications {one} and {other} describe the same GPUs, so engines reject these "
                    "devices; remove one of the files"
                )
            elif _is_of_boot(one):
                found.append(
                    f"the CDI specification {one} overrides {other}, which engines use as soon as the first file is "
                    f"missing, for example after a reboot; remove {other}"
                )
    return found


def _is_of_boot(path: str) -> bool:
    return cdi_directories.real(path).startswith("/run/cdi/")
