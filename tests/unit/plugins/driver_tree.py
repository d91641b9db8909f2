# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write small valid ELF files, loader caches and driver files for the tests of the driver volume."""

from __future__ import annotations

import os
import struct
from pathlib import Path

MACHINES = {"i386": (3, 32), "arm": (40, 32), "x86_64": (62, 64), "aarch64": (183, 64), "ppc64le": (21, 64)}
CACHE_FLAGS = {"i386": 0x0003, "x86_64": 0x0303, "aarch64": 0x0A03, "arm": 0x0903, "s390x": 0x0403}


def elf_bytes(machine="x86_64", soname=None, needed=(), *, abi=None, filler=b"", shared=True):
    """Return an ELF file with a dynamic section and, if `abi` is set, a note with the kernel ABI."""
    number, bits = MACHINES[machine]
    wide = bits == 64
    header_size, program_size, count = (64, 56, 3) if wide else (52, 32, 3)
    strings, offsets = b"\0", {}
    for name in [*needed, *([soname] if soname else [])]:
        offsets[name] = len(strings)
        strings += name.encode() + b"\0"
    strings_at = header_size + program_size * count
    entry = "<qQ" if wide else "<iI"
    pairs = [(1, offsets[name]) for name in needed]
    pairs += [(14, offsets[soname])] if soname else []
    pairs += [(5, strings_at), (10, len(strings)), (0, 0)]
    dynamic = b"".join(struct.pack(entry, tag, value) for tag, value in pairs)
    dynamic_at = strings_at + len(strings)
    # In real files, another note comes first.
    note = struct.pack("<III", 4, 4, 3) + b"GNU\0" + b"\1\2\3\4"
    note += struct.pack("<III", 4, 16, 1) + b"GNU\0" + struct.pack("<IIII", 0, *abi) if abi else b""
    note_at = dynamic_at + len(dynamic)
    total = note_at + len(note)
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1, 1]) + bytes(9)
    kind = 3 if shared else 2
    if wide:
        head = ident + struct.pack("<HHIQQQIHHHHHH", kind, number, 1, 0, 64, 0, 0, 64, 56, count, 0, 0, 0)
        segments = [(1, 0, total), (2, dynamic_at, len(dynamic)), (4, note_at, len(note))]
        programs = b"".join(struct.pack("<IIQQQQQQ", k, 5, at, at, at, size, size, 8) for k, at, size in segments)
    else:
        head = ident + struct.pack("<HHIIIIIHHHHHH", kind, number, 1, 0, 52, 0, 0, 52, 32, count, 0, 0, 0)
        segments = [(1, 0, total), (2, dynamic_at, len(dynamic)), (4, note_at, len(note))]
        programs = b"".join(struct.pack("<IIIIIIII", k, at, at, at, size, size, 5, 4) for k, at, size in segments)
    return head + programs + strings + dynamic + note + filler


def write_elf(path, machine="x86_64", soname=None, needed=(), *, abi=None, filler=b"", mode=0o644, shared=True):
    """Write an ELF file and its parent directories."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(elf_bytes(machine, soname, needed, abi=abi, filler=filler, shared=shared))
    path.chmod(mode)
    return path


def cache_bytes(entries, old_table=False):
    """Return a loader cache of (name, path, machine) entries, optionally after a table in glibc's old format."""
    old = b""
    if old_table:
        names = b"".join(name.encode() + b"\0" + path.encode() + b"\0" for name, path, _machine in entries)
        old = b"ld.so-1.7.0\0" + struct.pack("<I", len(entries))
        old += b"".join(struct.pack("<iII", 1, 0, 0) for _entry in entries)
        old += bytes(-len(old) % 8)
        assert names  # The strings of the old table would follow the new cache. They are never read.
    strings, table = b"", b""
    strings_at = 48 + 24 * len(entries)
    for name, path, machine in entries:
        name_at = strings_at + len(strings)
        strings += name.encode() + b"\0"
        path_at = strings_at + len(strings)
        strings += path.encode() + b"\0"
        table += struct.pack("<iIIIQ", CACHE_FLAGS[machine], name_at, path_at, 0, 0)
    new = b"glibc-ld.so.cache1.1" + struct.pack("<II", len(entries), len(strings)) + b"\2\0\0\0" + bytes(16)
    return old + new + table + strings


def write_cache(root, entries, old_table=False):
    """Write etc/ld.so.cache below `root`."""
    path = Path(root, "etc/ld.so.cache")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(cache_bytes(entries, old_table))


def link(path, target):
    """Create a symlink and its parent directories."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(target, path)


SONAMES = {
    "libcuda": "libcuda.so.1",
    "libnvidia-ml": "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm": "libnvidia-nvvm.so.4",
    "libnvidia-opticalflow": "libnvidia-opticalflow.so.1",
    "libnvcuvid": "libnvcuvid.so.1",
    "libGLX_nvidia": "libGLX_nvidia.so.0",
    "libEGL_nvidia": "libEGL_nvidia.so.0",
    "libvdpau_nvidia": "libvdpau_nvidia.so.1",
}


def library(directory, base, version, machine="x86_64", links=True, **more):
    """Write <base>.so.<version> and the link with its SONAME."""
    soname = SONAMES.get(base, f"{base}.so.{version}")
    name = f"{base}.so.{version}"
    # The filler makes the content of each library unique.
    path = write_elf(
        Path(directory, name),
        machine,
        soname,
        filler=more.pop("filler", f"{base} {version} {machine}".encode()),
        **more,
    )
    if links and soname != name:
        link(Path(directory, soname), name)
    return path


def program(path, machine="x86_64"):
    """Write an executable."""
    return write_elf(path, machine, filler=str(path).encode(), mode=0o755, shared=False)


def debian(root, version):
    """A Debian host: most libraries are links to /etc/alternatives, and 32-bit libraries are installed."""
    real = "usr/lib/{}/nvidia/current"
    entries = []
    for triplet, machine in (("x86_64-linux-gnu", "x86_64"), ("i386-linux-gnu", "i386")):
        for base in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"):
            library(Path(root, real.format(triplet)), base, version, machine)
            soname = SONAMES[base]
            alternative = f"/etc/alternatives/nvidia--{soname}-{triplet}"
            link(Path(root, "usr/lib", triplet, soname), alternative)
            link(Path(root, alternative[1:]), "/" + real.format(triplet) + "/" + soname)
            entries.append((soname, f"/lib/{triplet}/{soname}", machine))
        library(Path(root, "usr/lib", triplet), "libnvidia-glcore", version, machine)
    link(Path(root, "lib"), "usr/lib")
    program(Path(root, "usr/lib/nvidia/current/nvidia-smi"))
    link(Path(root, "usr/bin/nvidia-smi"), "/etc/alternatives/nvidia--nvidia-smi")
    link(Path(root, "etc/alternatives/nvidia--nvidia-smi"), "/usr/lib/nvidia/current/nvidia-smi")
    program(Path(root, "usr/bin/nvidia-cuda-mps-control"))
    program(Path(root, "usr/sbin/nvidia-cuda-mps-server"))
    write_cache(root, entries)


def ubuntu(root, version):
    """An Ubuntu host: everything in the multiarch directory, no 32-bit libraries."""
    place = Path(root, "usr/lib/x86_64-linux-gnu")
    for base in ("libcuda", "libnvidia-ml", "libnvidia-nvvm", "libnvidia-opticalflow", "libnvcuvid"):
        library(place, base, version)
    library(place / "vdpau", "libvdpau_nvidia", version)
    program(Path(root, "usr/bin/nvidia-smi"))
    write_cache(
        root,
        [(f"{base}.so.1", f"/lib/x86_64-linux-gnu/{base}.so.1", "x86_64") for base in ("libcuda", "libnvidia-ml")],
        old_table=True,
    )
    link(Path(root, "lib"), "usr/lib")


def enterprise(root, version):
    """An EL host: /usr/lib64, with 32-bit libraries in /usr/lib."""
    for base in ("libcuda", "libnvidia-ml", "libGLX_nvidia"):
        library(Path(root, "usr/lib64"), base, version)
    library(Path(root, "usr/lib"), "libcuda", version, "i386")
    program(Path(root, "usr/bin/nvidia-smi"))
    program(Path(root, "usr/bin/nvidia-persistenced"))
    write_cache(root, [("libcuda.so.1", "/lib64/libcuda.so.1", "x86_64")])
    link(Path(root, "lib64"), "usr/lib64")


def prefixed(root, version):
    """A host with the driver in /usr/local/nvidia, outside the loader's cache."""
    for base in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"):
        library(Path(root, "usr/local/nvidia/lib64"), base, version)
    program(Path(root, "usr/local/nvidia/bin/nvidia-smi"))


def arm64(root, version):
    """An aarch64 host."""
    for base in ("libcuda", "libnvidia-ml"):
        library(Path(root, "usr/lib/aarch64-linux-gnu"), base, version, "aarch64")
    program(Path(root, "usr/bin/nvidia-smi"), "aarch64")
    write_cache(root, [("libcuda.so.1", "/lib/aarch64-linux-gnu/libcuda.so.1", "aarch64")])
    link(Path(root, "lib"), "usr/lib")


def loaded(root, version):
    """Mark the kernel module of `version` as loaded."""
    path = Path(root, "sys/module/nvidia/version")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(version + "\n")
