# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of CDI specifications of all vendors: a document, its devices, nodes and mounts, and their comparison."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

# Old engines read only old versions: device names that begin with a digit need 0.5.0, additionalGids needs 0.7.0.
VERSION = "0.5.0"
VERSION_WITH_GROUPS = "0.7.0"
DEVICE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
READ_ONLY = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
Numbers = tuple[int, int]


class CdiError(Exception):
    """The specification cannot be built."""


class CdiHost(NamedTuple):
    """The settings of a specification. A vendor can have more of them."""

    root: str = "/"
    numbers: bool = False
    groups: bool = False
    kind: str = ""


class CdiResult(NamedTuple):
    """A specification, and the GPUs that it leaves out, each with the reason."""

    spec: dict
    skipped: list[dict]
    warnings: list[str]


@dataclass(frozen=True)
class CdiNode:
    """A device node in a specification. `numbers` is None if the engine reads them from the host's node `path`."""

    path: str
    numbers: Numbers | None = None


@dataclass(frozen=True)
class Comparison:
    """The differences of a CDI device, and why others could not be found. Only with neither is the device fresh."""

    differences: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def assemble(devices: list[dict], common: dict, host: Any) -> dict:
    """Return the specification of devices, with the edits that all of them share."""
    has_groups = any("additionalGids" in device["containerEdits"] for device in devices)
    return {
        "cdiVersion": VERSION_WITH_GROUPS if has_groups else VERSION,
        "kind": host.kind,
        "devices": devices,
        "containerEdits": common,
    }


def mount(source: str, target: str, options: list[str] | None = None) -> dict:
    return {"hostPath": source, "containerPath": target, "options": list(options or READ_ONLY)}


def describe_device(name: str, nodes: list[dict], host: Any, mounts: Sequence[dict] = ()) -> dict:
    """Return a device with its nodes, mounts and, on request, the groups of its nodes."""
    edits: dict = {"deviceNodes": nodes}
    if mounts:
        edits["mounts"] = list(mounts)
    groups = sorted({node["gid"] for node in nodes if node.get("gid") and not node["fileMode"] & stat.S_IWOTH})
    if host.groups and groups:
        edits["additionalGids"] = groups
    return {"name": name, "containerEdits": edits}


def describe_node(path: str, host: Any) -> dict | None:
    """Describe a device node of the host; None if it does not exist."""
    try:
        status = os.stat(os.path.join(host.root, path[1:]))
    except FileNotFoundError:
        return None
    if not stat.S_ISCHR(status.st_mode):
        raise CdiError(f"{path} is not a character device. Remove it and reload the driver, which creates it again.")
    node: dict = {"path": path}
    if host.numbers:
        node |= {"type": "c", "major": os.major(status.st_rdev), "minor": os.minor(status.st_rdev)}
    node |= {"fileMode": stat.S_IMODE(status.st_mode), "permissions": "rwm"}
    node |= {key: value for key, value in (("uid", status.st_uid), ("gid", status.st_gid)) if value}
    return node
