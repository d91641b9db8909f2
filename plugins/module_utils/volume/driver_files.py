# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files of a host are the user-space part of one version of NVIDIA's driver.

A library counts when it is a real file whose name ends with the driver's version: that alone keeps stubs, other
vendors' libraries and leftovers of another driver out. Where it lies is found as the loader finds it (ld.so.cache),
then in the directories that drivers are known to use, so that a driver container's root needs no cache.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver as host_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import elf, loader_cache

# Library base names by set. A name may be in several sets.
LIBRARY_SETS = {
    "utility": ("libnvidia-ml", "libnvidia-cfg", "libnvidia-nscq", "libnvidia-sandboxutils"),
    "compute": (
        "libcuda",
        "libcudadebugger",
        "libnvidia-opencl",
        "libnvidia-gpucomp",
        "libnvidia-ptxjitcompiler",
        "libnvidia-fatbinaryloader",
        "libnvidia-allocator",
        "libnvidia-compiler",
        "libnvidia-pkcs11",
        "libnvidia-pkcs11-openssl3",
        "libnvidia-nvvm",
        "libnvidia-nvvm70",
        "libnvidia-tileiras",
    ),
    "video": (
        "libvdpau_nvidia",
        "libnvidia-encode",
        "libnvidia-opticalflow",
        "libnvcuvid",
        "libnvidia-fbc",
        "libnvidia-ifr",
    ),
    "graphics": (
        "libnvidia-eglcore",
        "libnvidia-glcore",
        "libnvidia-tls",
        "libnvidia-glsi",
        "libnvidia-gpucomp",
        "libnvidia-allocator",
        "libnvidia-fbc",
        "libnvidia-ifr",
        "libnvidia-rtcore",
        "libnvoptix",
        "libGLX_nvidia",
        "libEGL_nvidia",
        "libGLESv2_nvidia",
        "libGLESv1_CM_nvidia",
        "libnvidia-glvkspirv",
        "libnvidia-cbl",
        "libnvidia-vulkan-producer",
        "libGL",
        "libEGL",
        "libGLESv1_CM",
        "libGLESv2",
    ),
    "ngx": ("libnvidia-ngx",),
}
BINARY_SETS = {
    "utility": ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nv-fabricmanager"),
    "compute": ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
}
# The 32-bit libraries of the other sets.
COMPAT32 = "compat32"
SETS = (*LIBRARY_SETS, COMPAT32)
BASES = frozenset(base for bases in LIBRARY_SETS.values() for base in bases)

# Libraries of the driver with a version of their own: taken only from beside the driver's own libcuda or libnvidia-ml.
OWN_VERSION = ("libnvidia-nvvm70",)
# Either of them shows that a directory holds a driver, and which one.
WITNESSES = ("libcuda", "libnvidia-ml")

# Names that other vendors use too: NVIDIA's need one of these.
SHARED_GL = ("libGL", "libEGL", "libGLESv1_CM", "libGLESv2")
NVIDIA_GL = re.compile(r"libnvidia-e?glcore\.so|libGLdispatch\.so")
# Of two libnvidia-tls, the one for a kernel with native thread-local storage.
TLS_ABI = (2, 3, 99)

VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+")
# The names under which programs look for a library.
ALIAS = re.compile(r"lib.+\.so(\.[0-9]+)?")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "i686": "i386", "i586": "i386"}
COMPAT = {"x86_64": "i386", "aarch64": "arm"}

LIBRARY_DIRECTORIES = (
    "usr/local/nvidia/lib64",
    "usr/local/nvidia/lib",
    "usr/lib64",
    "usr/lib/*-linux-gnu*",
    "usr/lib",
    "usr/lib32",
    "usr/lib/nvidia-*",
    "usr/lib32/nvidia-*",
    "lib64",
    "lib/*-linux-gnu*",
    "lib",
    "opt/nvidia/lib64",
    "opt/nvidia/lib",
    "home/kubernetes/bin/nvidia/lib64",
)
LIBRARY_SUBDIRECTORIES = ("", "nvidia/current", "nvidia", "vdpau", "tls")
BINARY_DIRECTORIES = (
    "usr/local/sbin",
    "usr/local/bin",
    "usr/sbin",
    "usr/bin",
    "sbin",
    "bin",
    "usr/lib/nvidia/current",
    "usr/local/nvidia/bin",
    "opt/nvidia/bin",
    "opt/bin",
)


class DriverFilesError(Exception):
    """The driver's files can't be told."""


class DriverFile(NamedTuple):
    """A file of the driver: where it is, and under which directory and names a container shall find it."""

    source: str
    place: str
    name: str
    links: tuple[str, ...] = ()


class _Library(NamedTuple):
    path: str
    base: str
    elf: elf.Elf
    links: tuple[str, ...]


def normal_machine(machine: str) -> str:
    """Return the machine's name as this module writes it."""
    return MACHINES.get(machine, machine)


def check_sets(sets: Iterable[str]) -> None:
    """Refuse a choice of sets that chooses nothing."""
    sets = list(sets)
    if not sets:
        raise DriverFilesError(f"sets is empty, which selects nothing: name at least one of {', '.join(LIBRARY_SETS)}")
    if not set(sets) - {COMPAT32}:
        raise DriverFilesError(
            f"sets={','.join(sets)} selects nothing: compat32 adds the 32-bit libraries of the other sets named with it"
        )


def find(
    version: str,
    machine: str,
    root: str = "/",
    *,
    sets: Iterable[str] = SETS,
    search_path: Iterable[str] = (),
    ignore: Iterable[str] = (),
) -> list[DriverFile]:
    """Find the files of driver `version` under `root`, in the order lib64, lib, bin.

    `search_path` are the directories of PATH, as seen inside `root`; nothing under a directory of `ignore` counts.
    """
    sets, machine = frozenset(sets), normal_machine(machine)
    ignored = tuple(os.path.realpath(path) + os.sep for path in ignore)
    directories = [
        directory
        for directory in library_directories(root)
        if not (directory + os.sep).startswith(ignored) and "stubs" not in directory.split(os.sep)
    ]
    damaged: dict[str, str] = {}
    libraries = _libraries(directories, version, root, damaged)
    bases = {base for name in sets for base in LIBRARY_SETS.get(name, ())}
    present = {library.base for library in libraries if _is_for(library, machine, 64)}
    for base in sorted(bases.intersection(damaged) - present):
        raise DriverFilesError(
            f"{damaged[base]}. It is damaged; install the package that it belongs to again. (driver_root={root})"
        )
    strangers = _other_versions(directories, version, [name for name in WITNESSES if name not in present])
    if present.isdisjoint(WITNESSES) or any(base in bases for base in strangers):
        raise DriverFilesError(_absence(version, machine, root, strangers))
    wide = [library for library in libraries if library.base in bases and _is_for(library, machine, 64)]
    narrow = [library for library in libraries if library.base in bases and _is_for(library, COMPAT.get(machine), 32)]
    inside = len(root.rstrip("/"))
    prefixes = {os.path.dirname(os.path.dirname(library.path))[inside:]: None for library in wide}
    return [
        *_one_of_a_name(wide, "lib64"),
        *(_one_of_a_name(narrow, "lib") if COMPAT32 in sets else ()),
        *_binaries(sets, machine, root, [*search_path, *(prefix + "/bin" for prefix in prefixes)]),
    ]


def library_directories(root: str = "/") -> list[str]:
    """List the directories under `root` that may hold the driver's libraries, the loader's own choice first."""
    found = {}
    for entry in _cached(root):
        if any(entry.name.startswith(base + ".so") for bases in LIBRARY_SETS.values() for base in bases):
            path = real_path(entry.path, root)
            if path:
                found[os.path.dirname(path)] = None
    for pattern in LIBRARY_DIRECTORIES:
        for directory in sorted(glob.glob(os.path.join(glob.escape(root), pattern))):
            for below in LIBRARY_SUBDIRECTORIES:
                path = real_path("/" + os.path.relpath(os.path.join(directory, below), root), root)
                if path and os.path.isdir(path):
                    found[path] = None
    return list(found)


def real_path(path: str, root: str = "/") -> str | None:
    """Resolve `path`, whose links are meant inside `root`; None where it leads nowhere."""
    resolved = host_driver.resolve(root, path)
    return resolved if os.path.exists(resolved) else None


def _cached(root: str) -> list[loader_cache.Entry]:
    # A root without a cache, or with one that we can't read, still has the well-known directories.
    try:
        with open(os.path.join(root, "etc/ld.so.cache"), "rb") as handle:
            return loader_cache.parse(handle.read())
    except (OSError, loader_cache.LdCacheError):
        return []


def _libraries(directories: Iterable[str], version: str, root: str, damaged: dict[str, str]) -> list[_Library]:
    """List the libraries of driver `version` in the directories, with the names under which the host links to them.

    What bears the name of one, and is no library, goes into `damaged`: base name and what is wrong.
    """
    found: list[_Library] = []
    aliases: dict[str, set[str]] = {}
    for directory in directories:
        files, links = [], {}
        with os.scandir(directory) as listing:
            for item in listing:
                if item.is_symlink():
                    links[item.name] = os.readlink(item.path)
                elif item.name.startswith("lib") and ".so." in item.name and item.is_file():
                    files.append(item.name)
        for alias in filter(ALIAS.fullmatch, links):
            aliases.setdefault(_end_of(alias, links, directory, root), set()).add(alias)
        home = any(f"{base}.so.{version}" in files for base in WITNESSES)
        for name in sorted(files):
            base, suffix = name.split(".so.", 1)
            if base not in BASES or not (home if base in OWN_VERSION else suffix == version):
                continue
            path = os.path.join(directory, name)
            try:
                header = elf.read(path)
            except (elf.ElfError, OSError) as error:
                damaged[base] = str(error)
                continue
            if header.shared and _is_nvidia(base, header):
                found.append(_Library(path, base, header, ()))
    return [library._replace(links=tuple(aliases.get(library.path, ()))) for library in found]


def _end_of(alias: str, links: dict[str, str], directory: str, root: str) -> str:
    """Return the file that a link leads to, by other links of its directory, or out of it and by way of `root`."""
    target = alias
    for _step in range(len(links)):
        if target not in links:
            break
        target = links[target]
    if "/" not in target:
        return os.path.join(directory, target)
    return real_path(os.path.join("/", os.path.relpath(directory, root), target), root) or target


def _is_nvidia(base: str, header: elf.Elf) -> bool:
    if base in SHARED_GL:
        return any(NVIDIA_GL.match(needed) for needed in header.needed)
    if base == "libnvidia-tls":
        return header.kernel_abi == TLS_ABI
    return True


def _is_for(library: _Library, machine: str | None, bits: int) -> bool:
    return library.elf.machine == machine and library.elf.bits == bits


def _one_of_a_name(libraries: list[_Library], place: str) -> list[DriverFile]:
    """Turn the libraries into files of one directory: the first of a name wins, and a file wins over a link."""
    chosen: dict[str, _Library] = {}
    for library in libraries:
        chosen.setdefault(os.path.basename(library.path), library)
    files, taken = [], set(chosen)
    for name in sorted(chosen):
        links = sorted(_links(name, chosen[name]) - taken)
        taken.update(links)
        files.append(DriverFile(chosen[name].path, place, name, tuple(links)))
    return files


def _links(name: str, library: _Library) -> set[str]:
    """Name the links that programs look for: the SONAME, what the host has, and what applications open by hand."""
    links, soname = set(library.links), library.elf.soname
    if soname and soname.startswith("lib") and "/" not in soname:
        links.add(soname)
        if soname.startswith("libcuda") or library.base == "libnvidia-opticalflow":
            links.add(re.sub(r"[0-9.]+$", "", soname))
        if library.base == "libGLX_nvidia":
            links.add("libGLX_indirect.so.0")
    return links - {name}


def _binaries(sets: frozenset[str], machine: str, root: str, search_path: Iterable[str]) -> Iterator[DriverFile]:
    directories = [*search_path, *("/" + directory for directory in BINARY_DIRECTORIES)]
    for name in sorted(name for chosen in sets for name in BINARY_SETS.get(chosen, ())):
        for directory in directories:
            path = real_path(os.path.join(directory, name), root)
            if path and _is_program(path, machine):
                yield DriverFile(path, "bin", name)
                break


def _is_program(path: str, machine: str) -> bool:
    # A wrapper script of the administrator's would not work in a container.
    try:
        return bool(os.stat(path).st_mode & 0o111) and elf.read(path).machine == machine
    except (elf.ElfError, OSError):
        return False


def _other_versions(directories: list[str], version: str, bases: list[str]) -> dict[str, str]:
    """Return, by base name, a library that belongs to another version of the driver."""
    found = {}
    for directory in directories:
        for base in bases:
            for path in sorted(glob.glob(os.path.join(glob.escape(directory), base + ".so.*"))):
                suffix = path.rsplit(".so.", 1)[1]
                if VERSION.fullmatch(suffix) and suffix != version and not os.path.islink(path):
                    found.setdefault(base, path)
    return found


def _absence(version: str, machine: str, root: str, strangers: dict[str, str]) -> str:
    """Say what is there instead of the libraries of `version`."""
    if strangers:
        path = strangers[min(strangers)]
        found = path.rsplit(".so.", 1)[1]
        return (
            f"{path} is from driver {found}, but the driver asked for is {version} (the loaded kernel module's, unless "
            f"driver_version says another). Reboot the host so that the module of {found} is loaded, or set "
            f"driver_version={found}. (driver_root={root})"
        )
    return (
        f"no {machine} libcuda.so.{version} or libnvidia-ml.so.{version} is known to ld.so.cache or lies where drivers "
        f"put them. Install the user-space part of driver {version}, or say with driver_root where it is. "
        f"(driver_root={root})"
    )
