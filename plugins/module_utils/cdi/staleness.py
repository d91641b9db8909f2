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

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import exists, listing, read_text

DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
# Engines ignore files with other suffixes.
SUFFIXES = (".json", ".yaml")

_VERSION = r"(\d{3,4}\.\d{2,3}(?:\.\d{1,3})?)(?![\w.])"
_LIBRARY = re.compile(rf"\.so\.{_VERSION}")
# The firmware directory, the driver volume, and an argument of NVIDIA's hook for CUDA compatibility libraries.
_OTHER_SOURCES = re.compile(rf"(?:/nvidia/|/nvidia_driver/|--host-driver-version=){_VERSION}")
_KIND = re.compile(r"""(?:^|[{,\s])["']?kind["']?\s*:\s*["']?nvidia\.com/gpu["']?\s*(?:[,}#]|$)""", re.MULTILINE)
_MAX_SIZE = 4 * 1024 * 1024


def marker_path(path: str) -> str:
    """Return the marker file that identifies the specification at `path` as ours."""
    return os.path.join(os.path.dirname(path), owned.CDI_MARKER.format(os.path.basename(path)))


def versions(text: str) -> tuple[str, ...]:
    """Return the driver versions that a specification names. The result is empty if it names no versioned file."""
    text = text.replace("\\/", "/")  # JSON may escape slashes.
    return tuple(sorted(set(_LIBRARY.findall(text)) or set(_OTHER_SOURCES.findall(text))))


def observed(root: str, directories: list[str] | tuple[str, ...]) -> list[dict]:
    """Return the specifications of kind nvidia.com/gpu with the driver versions that they name."""
    found: dict[str, dict] = {}
    for directory in directories:
        resolved = os.path.realpath(os.path.join(root, directory.lstrip("/")))
        for name in listing(root, directory):
            path = os.path.join(directory, name)
            text = read_text(root, path, _MAX_SIZE) if name.endswith(SUFFIXES) else None
            if text and _KIND.search(text.replace("\\/", "/")):
                entry = {
                    "path": path,
                    "driver_versions": list(versions(text)),
                    "ours": exists(root, marker_path(path)),
                    "digest": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(),
                }
                # Two paths can refer to the same directory.
                found.setdefault(os.path.join(resolved, name), entry)
    return list(found.values())


def stale_message(path: str, named: list[str] | tuple[str, ...], loaded: str | None, *, ours: bool) -> str | None:
    """Return a message if a specification is stale. Return None if it is current or names no version.

    A specification may also mount CUDA compatibility libraries, so one matching version is sufficient.
    """
    if not named or not loaded or loaded in named:
        return None
    remedy = (
        "run nvidia_driver_volume and nvidia_cdi_spec again"
        if ours
        else f"run `nvidia-ctk cdi generate --output={path}`, or remove the file and run nvidia_cdi_spec"
    )
    return (
        f"the CDI specification {path} is stale: it was written for driver {', '.join(named)}, but driver {loaded} is "
        f"loaded; {remedy}"
    )
