# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image for the proof, from files of the host: its Python with the modules and libraries that the program loads.

The archive has the format of `docker save`, which Docker, Podman and containerd read. It needs no registry.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import elf

REPOSITORY = "localhost/gpufleet-container-proof"
_DIRECTORIES = ("dev", "etc", "etc/ld.so.conf.d", "proc", "root", "run", "sys", "tmp", "usr", "var")
_FILES = {
    "etc/group": "root:x:0:\n",
    "etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
}
# Tools for containers read from these files where the distribution has its libraries: NVIDIA/nvidia-container-toolkit,
# internal/ldconfig/ldconfig.go (d34b304).
_COPIED = ("/etc/debian_version", "/etc/os-release")
_MOST_LINKS = 40
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class ImageError(Exception):
    """The image cannot be built, with the reason."""


class ArchiveEntry(NamedTuple):
    """A file or a symbolic link of the image. `source`: the file of the host. `target`: of a link."""

    source: str | None = None
    target: str | None = None


def entries(paths: Iterable[str], root: str = "/") -> dict[str, ArchiveEntry]:
    """Return the image's entries by path, for files of the host. Each link on the way to a file stays a link."""
    found: dict[str, ArchiveEntry] = {}
    for path in paths:
        _resolve(root, path, found)
    return found


def _resolve(root: str, path: str, found: dict[str, ArchiveEntry]) -> None:
    rest, done = [part for part in path.split("/") if part], ""
    for _count in range(_MOST_LINKS * 10):
        if not rest:
            found[done] = ArchiveEntry(source=os.path.join(root, done))
            return
        part = rest.pop(0)
        if part in (".", ".."):
            done = os.path.dirname(done) if part == ".." else done
            continue
        done = os.path.join(done, part)
        full = os.path.join(root, done)
        if os.path.islink(full):
            target = os.readlink(full)
            found[done] = ArchiveEntry(target=target)
            base = "" if target.startswith("/") else os.path.dirname(done)
            rest, done = [*(piece for piece in target.split("/") if piece), *rest], base
    raise ImageError(f"{path} has too many symbolic links")


def with_loader_names(paths: Iterable[str]) -> list[str]:
    """Add the names under which the dynamic loader searches for the files: their SONAMEs, and the loader itself."""
    found = set(paths)
    for path in list(found):
        try:
            soname, loader = elf.read(path).soname, elf.interpreter(path)
        except (elf.ElfError, OSError):
            continue  # a Python module
        beside = os.path.join(os.path.dirname(path), soname or "")
        if soname and os.path.realpath(beside) == os.path.realpath(path):
            found.add(beside)
        if loader and os.path.exists(loader):
            found.add(loader)
    return sorted(found)


def write(paths: Iterable[str], directory: str, machine: str, root: str = "/") -> tuple[str, str]:
    """Write the archive below `directory`. Return its path and the name of the image, which contains its digest."""
    layer = os.path.join(directory, "layer.tar")
    try:
        copied = [path for path in _COPIED if os.path.exists(os.path.join(root, path.lstrip("/")))]
        _write_layer(layer, entries([*paths, *copied], root))
        digest = _digest(layer)
        name = f"{REPOSITORY}:{digest[:12]}"
        config = {
            "architecture": _ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "config": {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created_by": "gpufleet.hosts.gpu_container_proof"}],
        }
        text = json.dumps(config, sort_keys=True).encode()
        config_name = f"{hashlib.sha256(text).hexdigest()}.json"
        manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
        path = os.path.join(directory, "image.tar")
        with tarfile.open(path, "w") as archive:
            _add_text(archive, config_name, text)
            archive.add(layer, "layer.tar")
            _add_text(archive, "manifest.json", json.dumps(manifest).encode())
    except OSError as error:
        raise ImageError(f"{error.filename or directory}: {error.strerror}") from error
    os.unlink(layer)
    return path, name


def _write_layer(path: str, found: dict[str, ArchiveEntry]) -> None:
    parents = {parent for name in found for parent in _parents(name)} - set(found)
    with tarfile.open(path, "w") as archive:
        for name in sorted({*_DIRECTORIES, *parents} - set(found)):
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(member)
        for name, text in sorted(_FILES.items()):
            _add_text(archive, name, text.encode())
        for name, entry in sorted(found.items()):
            member = tarfile.TarInfo(name)
            if entry.source is None:
                member.type, member.linkname = tarfile.SYMTYPE, entry.target or ""
                archive.addfile(member)
                continue
            with open(entry.source, "rb") as stream:
                status = os.fstat(stream.fileno())
                member.size, member.mode = status.st_size, 0o755 if status.st_mode & 0o111 else 0o644
                archive.addfile(member, stream)


def _parents(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _add_text(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o644
    archive.addfile(member, io.BytesIO(data))


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
