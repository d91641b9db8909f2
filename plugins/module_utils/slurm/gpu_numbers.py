# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which device nodes are behind the numbers with which Slurm names the GPUs of a node."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import (
    auto_detection,
    configuration_files,
    gpu_types,
    reported_gres,
)


def numbered_files(gres_conf: str, node: str, node_gres: str) -> dict[int, frozenset[str]] | None:
    """Return the device nodes behind each number of a GPU, from the explicit lines of gres.conf and the node's Gres.

    slurmd numbers the GPUs in the order of the types in the Gres, and those of a type in the order of the lines. None
    if the files do not tell: AutoDetect is on, lines come from another file, or the Gres lacks the types.
    """
    if configuration_files.includes(gres_conf):
        return None
    lines = [line for line in configuration_files.parse(gres_conf) if configuration_files.applies(line, node)]
    if auto_detection.effective(lines) != "off":
        return None
    found: list[tuple[str, frozenset[str]]] = []
    for line in lines:
        if line.options.get("name", "").lower() != gpu_types.NAME:
            continue
        kind = line.options.get("type", "")
        if "multiplefiles" in line.options:
            paths = frozenset(configuration_files.expand(line.options["multiplefiles"]))
            # The GPU of several MIG devices stands in all of their lines.
            found.append((kind, frozenset(path for path in paths if "/nvidia-caps/" in path) or paths))
        elif "file" in line.options:
            found += [(kind, frozenset([path])) for path in configuration_files.expand(line.options["file"])]
        else:
            return None
    kinds = list(reported_gres.parse(node_gres)) or list(dict.fromkeys(kind for kind, _paths in found))
    if not {kind for kind, _paths in found} <= set(kinds):
        if len({kind for kind, _paths in found}) > 1:
            return None
        kinds = [kind for kind, _paths in found]
    found.sort(key=lambda one: kinds.index(one[0]))
    return dict(enumerate(paths for _kind, paths in found))
