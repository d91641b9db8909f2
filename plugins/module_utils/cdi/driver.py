# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For which driver version a CDI specification was written, and whether that driver is still the loaded one.

Works on the text of a specification: parsing a long one as YAML takes longer than the rest of an observation.
"""

from __future__ import annotations

import os
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import exists, listing, read_text

DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
# Engines read no others.
SUFFIXES = (".json", ".yaml")

_VERSION = r"(\d{3,4}\.\d{2,3}(?:\.\d{1,3})?)(?![\w.])"
_LIBRARY = re.compile(rf"\.so\.{_VERSION}")
# Firmware, this collection's driver volume, and what NVIDIA's hook for CUDA compatibility libraries is called with.
_ELSEWHERE = re.compile(rf"(?:/nvidia/|/nvidia_driver/|--host-driver-version=){_VERSION}")
_KIND = re.compile(r"""(?:^|[{,\s])["']?kind["']?\s*:\s*["']?nvidia\.com/gpu["']?\s*(?:[,}#]|$)""", re.MULTILINE)
_LARGEST_FILE = 4 * 1024 * 1024


def mark_of(path: str) -> str:
    """Return where it is noted that the file at `path` is ours.

    Beside it, under a name that engines don't read: a specification has no place for such a note before CDI 0.6.0.
    """
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.gpufleet")


def versions(text: str) -> tuple[str, ...]:
    """Return the driver versions that a specification names; none where it names no versioned file."""
    text = text.replace("\\/", "/")  # JSON may escape slashes.
    return tuple(sorted(set(_LIBRARY.findall(text)) or set(_ELSEWHERE.findall(text))))


def observed(root: str, directories: list[str] | tuple[str, ...]) -> list[dict]:
    """List the specifications of kind nvidia.com/gpu with the driver versions that they name."""
    found: dict[str, dict] = {}
    for directory in directories:
        place = os.path.realpath(os.path.join(root, directory.lstrip("/")))
        for name in listing(root, directory):
            path = os.path.join(directory, name)
            text = read_text(root, path, _LARGEST_FILE) if name.endswith(SUFFIXES) else None
            if text and _KIND.search(text.replace("\\/", "/")):
                entry = {"path": path, "driver_versions": list(versions(text)), "ours": exists(root, mark_of(path))}
                # One directory may have two names.
                found.setdefault(os.path.join(place, name), entry)
    return list(found.values())


def complaint(path: str, named: list[str] | tuple[str, ...], loaded: str | None, *, ours: bool) -> str | None:
    """Say that a specification is stale and what to do, None where it is not or where nothing tells.

    One version of several is enough: a specification may mount CUDA's compatibility libraries as well.
    """
    if not named or not loaded or loaded in named:
        return None
    remedy = (
        "run nvidia_driver_volume and nvidia_cdi_spec again"
        if ours
        else f"run `nvidia-ctk cdi generate --output={path}`, or remove the file and run nvidia_cdi_spec"
    )
    return (
        f"the CDI specification {path} is stale: it was written for driver {', '.join(named)}, and driver {loaded} is "
        f"loaded; {remedy}"
    )
