# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show the accelerators of vendors other than NVIDIA on a simulated host: files in sysfs, and device nodes.

A tree is a dictionary: `files` maps paths to contents, `directories` are empty ones, and `nodes` are character devices
with `path`, `major`, `minor`, `mode` and the name of the `group`.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import shutil
import stat
from pathlib import Path

# Directories of the kernel that get simulated files, with the name of the layer. sysfs itself is read-only.
MOUNTED = {
    "/sys/class": "sysclass",
    "/sys/devices/platform": "sysplatform",
    "/sys/devices/virtual": "sysvirtual",
    "/sys/module": "sysmodule",
}
# Roots that belong to the tree as a whole. Another tree replaces them.
_REPLACED = ("/sys/class/kfd", "/sys/class/neuron_device", "/sys/class/accel", "/dev/dri", "/dev/accel")
_SHOWN = "trees.json"


def show(tree: dict, at, run: str) -> None:
    """Write a tree, and remove what the previous one had. `at` maps a path of the host, `run` is a directory."""
    record = at(f"{run}/{_SHOWN}")
    with contextlib.suppress(FileNotFoundError):
        _remove(json.loads(record.read_text(encoding="utf-8")), at)
    for path in _REPLACED:
        shutil.rmtree(at(path), ignore_errors=True)
    for path in tree.get("directories", ()):
        at(path).mkdir(parents=True, exist_ok=True)
    for path, text in tree.get("files", {}).items():
        place = at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode("latin-1"))
    for one in tree.get("nodes", ()):
        _node(at(one["path"]), one)
    record.write_text(json.dumps(tree), encoding="utf-8")


def _remove(tree: dict, at) -> None:
    paths = [*tree.get("files", {}), *(one["path"] for one in tree.get("nodes", ()))]
    for path in paths:
        with contextlib.suppress(OSError):
            at(path).unlink()
    for path in sorted(tree.get("directories", ()), key=len, reverse=True):
        with contextlib.suppress(OSError):
            at(path).rmdir()


def _node(place: Path, one: dict) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        place.unlink()
    try:
        group = grp.getgrnam(one["group"]).gr_gid
    except KeyError:
        group = 0
    os.mknod(place, one["mode"] | stat.S_IFCHR, os.makedev(one["major"], one["minor"]))
    place.chmod(one["mode"])
    os.chown(place, 0, group)
