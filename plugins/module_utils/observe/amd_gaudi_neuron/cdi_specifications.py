# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CDI specifications of all kinds except NVIDIA's in an observation."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories as cdi_directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import observed_specification_nodes

_KIND = re.compile(r"""(?:^|[{,\s])["']?kind["']?\s*:\s*["']?([A-Za-z][\w.-]*/[A-Za-z][\w.-]*)""")


def observed(root: str, directories: Iterable[str]) -> list[dict[str, Any]]:
    """Return the CDI specifications of all kinds except NVIDIA's, with the device nodes of each device."""
    found: dict[str, dict] = {}
    for directory in directories:
        resolved = os.path.realpath(os.path.join(root, directory.lstrip("/")))
        for name in listing(root, directory):
            path = f"{directory}/{name}"
            text = read_text(root, path) if name.endswith(cdi_directories.SUFFIXES) else None
            kind = _KIND.search((text or "").replace("\\/", "/"))
            if text and kind and kind[1] != "nvidia.com/gpu":
                found.setdefault(
                    os.path.join(resolved, name),
                    {
                        "path": path,
                        "kind": kind[1],
                        "ours": os.path.lexists(os.path.join(root, cdi_directories.marker_path(path).lstrip("/"))),
                        "digest": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(),
                        "nodes": observed_specification_nodes.of_specification(root, path),
                    },
                )
    return list(found.values())
