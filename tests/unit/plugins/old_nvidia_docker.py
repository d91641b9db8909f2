# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts with what nvidia-docker 1 and 2 left: a Bolt database, files of containers, and observations."""

from __future__ import annotations

import json
import struct
import typing as t

from ansible_collections.gpufleet.hosts.tests.unit.plugins import container_toolkit_samples as samples

PAGE = 4096
VOLUME = "nvidia_driver_375.66"
ID = "4f" * 32


def checksum(text: bytes) -> int:
    value = 0xCBF29CE484222325
    for octet in text:
        value = ((value ^ octet) * 0x100000001B3) % 2**64
    return value


def leaf(number: int, elements: list[tuple[bytes, bytes, int]]) -> bytes:
    """Return a leaf page. Each element has key, value and flags."""
    head, body = b"", b""
    for index, (key, value, flags) in enumerate(elements):
        position = (len(elements) - index) * 16 + len(body)
        head += struct.pack("<IIII", flags, position, len(key), len(value))
        body += key + value
    return struct.pack("<QHHI", number, 2, len(elements), 0) + head + body


def branch(number: int, pages: list[tuple[bytes, int]]) -> bytes:
    head, body = b"", b""
    for index, (key, page) in enumerate(pages):
        head += struct.pack("<IIQ", (len(pages) - index) * 16 + len(body), len(key), page)
        body += key
    return struct.pack("<QHHI", number, 1, len(pages), 0) + head + body


def meta(number: int, root: int, transaction: int) -> bytes:
    text = struct.pack("<IIIIQQQQQ", 0xED0CDAED, 2, PAGE, 0, root, 0, 2, 9, transaction)
    return struct.pack("<QHHI", number, 4, 0, 0) + text + struct.pack("<Q", checksum(text))


def database(volumes: t.Mapping[str, str], form: str = "leaf") -> bytes:
    """Return a database of volumes with their drivers. `form`: how Bolt stores the bucket, inline, leaf or branch."""
    entries = [
        (name.encode(), json.dumps({"Name": name, "Driver": driver, "Labels": None}, separators=(",", ":")).encode(), 0)
        for name, driver in sorted(volumes.items())
    ]
    # The pages of the older transaction and of deleted volumes are free.
    pages = {2: struct.pack("<QHHI", 2, 16, 2, 0) + struct.pack("<QQ", 7, 8)}
    if form == "inline":
        bucket = struct.pack("<QQ", 0, 0) + leaf(0, entries)
    elif form == "leaf":
        bucket, pages[4] = struct.pack("<QQ", 4, 0), leaf(4, entries)
    else:
        half = len(entries) // 2
        bucket = struct.pack("<QQ", 6, 0)
        pages |= {4: leaf(4, entries[:half]), 5: leaf(5, entries[half:])}
        pages[6] = branch(6, [(entries[0][0], 4), (entries[half][0], 5)])
    pages[3] = leaf(3, [(b"volumes", bucket, 1)])
    # An older transaction without the volumes, and a deleted page that still names the plugin.
    pages[7], pages[8] = leaf(7, []), b'{"Name":"gone","Driver":"nvidia-docker"}'
    pages |= {0: meta(0, 3, 12), 1: meta(1, 7, 11)}
    return b"".join(pages.get(number, b"").ljust(PAGE, b"\0") for number in range(9))


def container(
    name: str, *, volume: str | None = None, runtime: str = "runc", running: bool = False
) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """Return the files of a container: config.v2.json and hostconfig.json."""
    point = {"/usr/local/nvidia": {"Name": volume, "Driver": "nvidia-docker"}} if volume else {}
    config = {"Name": f"/{name}", "State": {"Running": running}, "MountPoints": {**point, "/data": {"Driver": "local"}}}
    return config, {"Runtime": runtime, "VolumeDriver": "nvidia-docker" if volume else ""}


def described(name: str, **more: t.Any) -> dict[str, t.Any]:
    """Describe a container as an observation does."""
    known = {"id": ID, "name": name, "running": False, "runtime": "runc", "volumes": [], "plugin": False}
    return {**known, "plugin": bool(more.get("volumes")), **more}


def traces(**more: t.Any) -> dict[str, t.Any]:
    """Return an observation of a host with nothing but what `more` has."""
    service = {"load_state": "not-found", "active_state": "inactive", "unit_file_state": None}
    empty: dict[str, t.Any] = dict.fromkeys(("files", "hooks", "volumes", "containers", "keys", "saved"))
    return {
        **{name: [] for name in empty},
        "has_user": False,
        "service": service,
        "answers": False,
        "copies": {},
        **more,
    }


def host(packages: t.Mapping[str, str] | None = None, key: str = "debian-12", **more: t.Any) -> dict[str, t.Any]:
    """Describe a host with Docker and old packages. `more`: see `traces`."""
    seen = samples.host(key, {"docker.io": "20.10.24", **(packages or {})})
    seen["package_state"] = {"config_files": [], "unfinished": [], "interrupted": False, "busy": False}
    seen["nvidia_docker"] = traces(**more)
    return seen
