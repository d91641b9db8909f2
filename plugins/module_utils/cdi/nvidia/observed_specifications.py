# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CDI specifications of NVIDIA's GPUs in an observation."""

from __future__ import annotations

import hashlib
import os
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists, listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories as cdi_directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import stale_driver_version, stale_gpu_uuids

_KIND = re.compile(r"""(?:^|[{,\s])["']?kind["']?\s*:\s*["']?nvidia\.com/gpu["']?\s*(?:[,}#]|$)""", re.MULTILINE)
_MAX_SIZE = 4 * 1024 * 1024


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
                    "driver_versions": list(stale_driver_version.versions(text)),
                    "uuids": list(stale_gpu_uuids.written(text)),
                    "ours": exists(root, cdi_directories.marker_path(path)),
                    "digest": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(),
                }
                # Two paths can refer to the same directory.
                found.setdefault(os.path.join(resolved, name), entry)
    return list(found.values())
