# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Allow a container to use device nodes after its cgroup was created, as libnvidia-container does in legacy mode.

Version 1 of cgroups: a line in devices.allow. Version 2: a program in the kernel decides. A longer one replaces it: it
first accepts the new nodes, and then does what the old one did. When the engine or systemd writes the rules of the
container again, for example after `systemctl daemon-reload`, the container loses the nodes, as it does with the
vendor's program.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

from .main import Failure

_BPF = 321 if os.uname().machine == "x86_64" else 280
_LOAD, _ATTACH, _FD_BY_ID, _INFO, _QUERY = 5, 8, 13, 15, 16
_CGROUP_DEVICE_PROGRAM, _CGROUP_DEVICE_HOOK = 15, 6
_MULTI, _REPLACE = 2, 4
_CHARACTER_DEVICE = 2


def allow(pid: int, numbers: Iterable[tuple[int, int]], proc: str = "/proc") -> None:
    """Allow the container with this process to open the character devices with these major and minor numbers."""
    with open(f"{proc}/{pid}/cgroup", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split(":", 2) for line in file]
    first = next((row[2] for row in rows if "devices" in row[1].split(",")), None)
    if first is not None:
        directory = _mounted(first, "cgroup", "devices", proc)
        for major, minor in numbers:
            with open(f"{directory}/devices.allow", "w", encoding="utf-8") as file:
                file.write(f"c {major}:{minor} rw")
        return
    second = next((row[2] for row in rows if row[0] == "0"), None)
    if second is None:
        raise Failure("container error: failed to find the device cgroup")
    _extend(_mounted(second, "cgroup2", "", proc), numbers)


def _mounted(path: str, kind: str, controller: str, proc: str) -> str:
    """Return the directory of a cgroup."""
    with open(f"{proc}/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            head, _dash, tail = line.partition(" - ")
            root, place = head.split()[3:5]
            name, _source, options = tail.split()[:3]
            has_controller = not controller or controller in options.split(",")
            if name == kind and has_controller and (root in ("/", path) or path.startswith(f"{root}/")):
                return place + (path if root == "/" else path[len(root) :])
    raise Failure(f"container error: no {kind} file system contains {path}")


# --- version 2 --------------------------------------------------------------------------------------------------------


def _call(command: int, attributes: bytes) -> tuple[int, bytes]:
    """Call the kernel, and return its result and the attributes that it wrote."""
    library = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    result = library.syscall(_BPF, command, ctypes.byref(buffer), 128)
    if result < 0:
        raise Failure(f"container error: failed to change the device cgroup: {os.strerror(ctypes.get_errno())}")
    return result, buffer.raw


def _extend(directory: str, numbers: Iterable[tuple[int, int]]) -> None:
    group = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        ids = (ctypes.c_uint32 * 64)()
        query = struct.pack("=IIIIQI", group, _CGROUP_DEVICE_HOOK, 0, 0, ctypes.addressof(ids), 64)
        answer = _call(_QUERY, query)[1]
        count = struct.unpack_from("=I", answer, 24)[0]
        # Without a program, the cgroup allows all devices.
        for number in ids[:count]:
            old = _call(_FD_BY_ID, struct.pack("=I", number))[0]
            new = _load(_accepting(numbers) + _instructions(old))
            attach = struct.pack("=IIIII", group, new, _CGROUP_DEVICE_HOOK, _MULTI | _REPLACE, old)
            _call(_ATTACH, attach)
    finally:
        os.close(group)


def _instructions(program: int) -> bytes:
    """Return the instructions of a loaded program."""
    information = ctypes.create_string_buffer(256)
    attributes = struct.pack("=IIQ", program, 256, ctypes.addressof(information))
    _call(_INFO, attributes)
    size = struct.unpack_from("=I", information.raw, 20)[0]
    code = ctypes.create_string_buffer(size)
    ctypes.memset(information, 0, 256)
    struct.pack_into("=I", information, 20, size)
    struct.pack_into("=Q", information, 32, ctypes.addressof(code))
    _call(_INFO, attributes)
    return code.raw


def _load(code: bytes) -> int:
    buffer, license_text = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"Apache")
    addresses = (ctypes.addressof(buffer), ctypes.addressof(license_text))
    return _call(_LOAD, struct.pack("=IIQQ", _CGROUP_DEVICE_PROGRAM, len(code) // 8, *addresses))[0]


def _accepting(numbers: Iterable[tuple[int, int]]) -> bytes:
    """Return instructions that accept the nodes. For others, the program continues behind them."""
    found = b""
    for major, minor in numbers:
        found += b"".join((
            _instruction(0x61, 2, 1, 0),  # r2 = the kind of access and the type of the device
            _instruction(0x54, 2, 0, 0, 0xFFFF),  # keep the type
            _instruction(0x55, 2, 0, 6, _CHARACTER_DEVICE),  # skip the next 6 instructions if it is another type
            _instruction(0x61, 2, 1, 4),  # r2 = the major number
            _instruction(0x55, 2, 0, 4, major),
            _instruction(0x61, 2, 1, 8),  # r2 = the minor number
            _instruction(0x55, 2, 0, 2, minor),
            _instruction(0xB7, 0, 0, 0, 1),  # return 1
            _instruction(0x95, 0, 0, 0),
        ))  # fmt: skip
    return found


def _instruction(code: int, to: int, source: int, offset: int, value: int = 0) -> bytes:
    return struct.pack("=BBhi", code, source << 4 | to, offset, value)
