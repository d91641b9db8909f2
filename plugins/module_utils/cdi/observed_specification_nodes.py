# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device nodes of CDI specifications in an observation."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.specification_document import CdiNode

_MAX_SIZE = 4 * 1024 * 1024


def of_specification(root: str, path: str) -> dict[str, list[str]] | None:
    """Return the nodes of each device of a specification, and under "" those of the whole file.

    A node is its path, and its numbers if the file has them: "/dev/dri/card0 226:0". None: the file
    cannot be parsed.
    """
    try:
        spec = _load(read_text(root, path, _MAX_SIZE) or "")
    except (specification_reader.SpecError, RecursionError):
        return None
    parts = [("", spec), *((str(device["name"]), device) for device in spec.get("devices") or ())]
    return {
        name: [_text(node) for node in specification_reader.written_nodes(part.get("containerEdits") or {})]
        for name, part in parts
    }


def _load(text: str) -> dict:
    """Parse a specification. YAML libraries take several times longer than the parser for plain YAML."""
    if not text.lstrip().startswith("{"):
        try:
            found = specification_reader.load_plain_yaml(text)
        except (specification_reader.SpecError, ValueError):
            return specification_reader.load(text)
        if isinstance(found, dict) and isinstance(found.get("devices"), list):
            return specification_reader.checked(found)
    return specification_reader.load(text)


def _text(node: CdiNode) -> str:
    return f"{node.path} {joined(node.numbers)}" if node.numbers else node.path


def joined(numbers: Sequence[int]) -> str:
    return ":".join(map(str, numbers))
