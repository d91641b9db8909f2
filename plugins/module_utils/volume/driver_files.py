# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the user-space files of one version of NVIDIA's driver.

A library belongs to the driver if it is a regular file whose name ends with the driver's version. This excludes stubs,
libraries of other vendors and files of other driver versions. The search starts with the loader's cache (ld.so.cache)
and continues in the usual directories, because the root of a driver container has no cache.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver_versions as host_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import elf, ld_so_cache
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import graphics_configuration

# Base names of libraries, by set. A name can be in several sets. Other libraries of the driver's version belong to the
# set graphics, for example libnvidia-present and libnvidia-vksc-core. New driver branches have new ones.
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
        "libnvidia-api",
        "libnvidia-egl-gbm",
        "libnvidia-egl-wayland",
        "libnvidia-egl-wayland2",
        "libnvidia-egl-xcb",
        "libnvidia-egl-xlib",
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

# Libraries of the driver with a separate version. They count only in a directory with the driver's core libraries.
SEPARATELY_VERSIONED = ("libnvidia-nvvm70", "libnvidia-api")
# Helpers of EGL with a separate version. Distributions also package them separately from the driver.
EGL_HELPERS = "libnvidia-egl-"
# Each of these libraries identifies the driver in a directory and its version.
CORE_LIBRARIES = ("libcuda", "libnvidia-ml")

# Libraries with these names also come from other vendors. NVIDIA's depend on a library that matches NVIDIA_GL.
SHARED_GL = ("libGL", "libEGL", "libGLESv1_CM", "libGLESv2")
NVIDIA_GL = re.compile(r"libnvidia-e?glcore\.so|libGLdispatch\.so")
# The kernel ABI in the libnvidia-tls for kernels with native thread-local storage.
TLS_ABI = (2, 3, 99)

VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+")
# Library names that programs open.
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
    """The driver's files cannot be determined."""


class DriverFile(NamedTuple):
    """A file of the driver: its path on the host, and its subdirectory, name and links in a volume.

    The subdirectory share has the configuration files, see graphics_configuration.py.
    """

    source: str
    subdirectory: str
    name: str
    links: tuple[str, ...] = ()


class _Library(NamedTuple):
    path: str
    base: str
    elf: elf.Elf
    links: tuple[str, ...]


def normal_machine(machine: str) -> str:
    """Return the canonical name of a machine, for example x86_64 for amd64."""
    return MACHINES.get(machine, machine)


def check_sets(sets: Iterable[str]) -> None:
    """Reject sets that select no file."""
    sets = list(sets)
    if not sets:
        raise DriverFilesError(f"sets is empty and selects nothing. Set at least one of {', '.join(LIBRARY_SETS)}.")
    if not set(sets) - {COMPAT32}:
        raise DriverFilesError(
            f"sets={','.join(sets)} selects nothing, because compat32 only adds the 32-bit libraries of other sets. "
            f"Add at least one of {', '.join(LIBRARY_SETS)}."
        )


def is_in_sets(file: DriverFile, sets: Iterable[str]) -> bool:
    """Return whether a file belongs to one of the sets. A 32-bit library also needs the set compat32."""
    sets = frozenset(sets)
    if file.subdirectory == "share":
        return graphics_configuration.is_in_sets(file.name, sets)
    table = BINARY_SETS if file.subdirectory == "bin" else LIBRARY_SETS
    base = file.name.split(".so", 1)[0]
    if file.subdirectory != "bin" and base not in BASES:
        return "graphics" in sets and (file.subdirectory != "lib" or COMPAT32 in sets)
    return any(base in table.get(name, ()) for name in sets) and (file.subdirectory != "lib" or COMPAT32 in sets)


def find(
    version: str,
    machine: str,
    root: str = "/",
    *,
    sets: Iterable[str] = SETS,
    search_path: Iterable[str] = (),
    ignore: Iterable[str] = (),
) -> list[DriverFile]:
    """Find the files of driver `version` under `root`, in the order lib64, lib, bin, share.

    `search_path` lists the directories of PATH, as seen inside `root`. Files below the directories of `ignore` do not
    count.
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
    if "graphics" in sets:
        bases |= {library.base for library in libraries} - BASES | set(damaged) - BASES
    present = {library.base for library in libraries if _is_for(library, machine, 64)}
    for base in sorted(bases.intersection(damaged) - present):
        raise DriverFilesError(
            f"{damaged[base]}. The library is damaged: reinstall the package that contains it. (driver_root={root})"
        )
    missing = [name for name in CORE_LIBRARIES if name not in present]
    mismatched = _other_versions(directories, version, missing)
    if present.isdisjoint(CORE_LIBRARIES) or any(base in bases for base in mismatched):
        raise DriverFilesError(_not_found(version, machine, root, mismatched))
    selected = [library for library in libraries if library.base in bases]
    libraries64 = [library for library in selected if _is_for(library, machine, 64)]
    libraries32 = [library for library in selected if _is_for(library, COMPAT.get(machine), 32)]
    root_length = len(root.rstrip("/"))
    prefixes = {os.path.dirname(os.path.dirname(library.path))[root_length:]: None for library in libraries64}
    found = [
        *_unique_by_name(libraries64, "lib64"),
        *(_unique_by_name(libraries32, "lib") if COMPAT32 in sets else ()),
    ]
    names = {name for file in found for name in (file.name, *file.links)}
    return [
        *found,
        *_binaries(sets, machine, root, [*search_path, *(prefix + "/bin" for prefix in prefixes)]),
        *(DriverFile(path, "share", name) for path, name in graphics_configuration.find(sets, root, names)),
    ]


def library_directories(root: str = "/") -> list[str]:
    """List the directories under `root` that may hold the driver's libraries, those of the loader's cache first."""
    found = {}
    for entry in _cached(root):
        if any(entry.name.startswith(base + ".so") for bases in LIBRARY_SETS.values() for base in bases):
            path = real_path(entry.path, root)
            if path:
                found[os.path.dirname(path)] = None
    for pattern in LIBRARY_DIRECTORIES:
        for directory in sorted(glob.glob(os.path.join(glob.escape(root), pattern))):
            for subdirectory in LIBRARY_SUBDIRECTORIES:
                path = real_path("/" + os.path.relpath(os.path.join(directory, subdirectory), root), root)
                if path and os.path.isdir(path):
                    found[path] = None
    return list(found)


def real_path(path: str, root: str = "/") -> str | None:
    """Resolve the links of `path` inside `root`. Return None if the path does not exist."""
    resolved = host_driver.resolve(root, path)
    return resolved if os.path.exists(resolved) else None


def _cached(root: str) -> list[ld_so_cache.LoaderCacheEntry]:
    # Without a readable cache, the search continues in the usual directories.
    try:
        with open(os.path.join(root, "etc/ld.so.cache"), "rb") as handle:
            return ld_so_cache.parse(handle.read())
    except (OSError, ld_so_cache.LdCacheError):
        return []


def _libraries(directories: Iterable[str], version: str, root: str, damaged: dict[str, str]) -> list[_Library]:
    """List the libraries of driver `version` in the directories, each with the names of the host's links to it.

    Files that have the name of a library but cannot be parsed are added to `damaged`, by base name.
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
            aliases.setdefault(_link_target(alias, links, directory, root), set()).add(alias)
        is_driver_directory = any(f"{base}.so.{version}" in files for base in CORE_LIBRARIES)
        for name in sorted(files):
            base, suffix = name.split(".so.", 1)
            if not _has_version(base, suffix, version, is_driver_directory):
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


def _has_version(base: str, suffix: str, version: str, is_driver_directory: bool) -> bool:
    """Return whether the name of a library has the version that it must have to be part of the driver."""
    if base in SEPARATELY_VERSIONED:
        return is_driver_directory
    return suffix == version or (base.startswith(EGL_HELPERS) and bool(VERSION.fullmatch(suffix)))


def _link_target(alias: str, links: dict[str, str], directory: str, root: str) -> str:
    """Return the file that a link leads to. `links` holds the links in its directory, with their targets."""
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


def _unique_by_name(libraries: list[_Library], subdirectory: str) -> list[DriverFile]:
    """Return one file per name: the first library with a name wins, and a file wins over a link."""
    chosen: dict[str, _Library] = {}
    for library in libraries:
        chosen.setdefault(os.path.basename(library.path), library)
    files, taken = [], set(chosen)
    for name in sorted(chosen):
        links = sorted(_links(chosen[name]) - taken)
        taken.update(links)
        files.append(DriverFile(chosen[name].path, subdirectory, name, tuple(links)))
    return files


def _links(library: _Library) -> set[str]:
    """Return the names of links: the host's own, the SONAME, and names that applications open directly."""
    links, soname = set(library.links), library.elf.soname
    if soname and soname.startswith("lib") and "/" not in soname:
        links.add(soname)
        if soname.startswith("libcuda") or library.base == "libnvidia-opticalflow":
            links.add(re.sub(r"[0-9.]+$", "", soname))
        if library.base == "libGLX_nvidia":
            links.add("libGLX_indirect.so.0")
        if library.base == "libnvidia-allocator":
            links.add(graphics_configuration.GBM_BACKEND)
    return links


def _binaries(sets: frozenset[str], machine: str, root: str, search_path: Iterable[str]) -> Iterator[DriverFile]:
    directories = [*search_path, *("/" + directory for directory in BINARY_DIRECTORIES)]
    for name in sorted(name for chosen in sets for name in BINARY_SETS.get(chosen, ())):
        for directory in directories:
            path = real_path(os.path.join(directory, name), root)
            if path and _is_program(path, machine):
                yield DriverFile(path, "bin", name)
                break


def _is_program(path: str, machine: str) -> bool:
    # A wrapper script that an administrator installed would not work in a container.
    try:
        return bool(os.stat(path).st_mode & 0o111) and elf.read(path).machine == machine
    except (elf.ElfError, OSError):
        return False


def _other_versions(directories: list[str], version: str, bases: list[str]) -> dict[str, str]:
    """Return, by base name, one library of another driver version."""
    found = {}
    for directory in directories:
        for base in bases:
            for path in sorted(glob.glob(os.path.join(glob.escape(directory), base + ".so.*"))):
                suffix = path.rsplit(".so.", 1)[1]
                if VERSION.fullmatch(suffix) and suffix != version and not os.path.islink(path):
                    found.setdefault(base, path)
    return found


def _not_found(version: str, machine: str, root: str, mismatched: dict[str, str]) -> str:
    """Return the error message for missing libraries. `mismatched` holds libraries of another driver version."""
    if mismatched:
        path = mismatched[min(mismatched)]
        found = path.rsplit(".so.", 1)[1]
        return (
            f"{path} is from driver {found}, but driver {version} is required (driver_version, or the version of the "
            f"loaded kernel module). Reboot the host to load the module of driver {found}, or set "
            f"driver_version={found}. (driver_root={root})"
        )
    return (
        f"found no {machine} libcuda.so.{version} or libnvidia-ml.so.{version} in ld.so.cache or in the usual library "
        f"directories. Install the user-space files of driver {version}, or set driver_root to their root directory. "
        f"(driver_root={root})"
    )
