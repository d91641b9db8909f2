# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The versions of the NVIDIA driver: the loaded module, the libraries, and the modules on disk.

The versions differ after an upgrade. The module reads files, and runs `modinfo` for compressed modules only.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Callable, Iterator

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.nvidia_names import NVML_LIBRARY
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import next_boot

Run = Callable[[list], tuple]

VERSION = re.compile(r"\b(\d{3}\.\d{2,3}(?:\.\d{1,3})?)\b")

# The dynamic loader's directories, then the directories of driver containers, cloud images and WSL.
LIBRARY_DIRECTORIES = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "usr/lib/wsl/lib",
    "usr/local/nvidia/lib64",
    "usr/local/nvidia/lib",
    "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "run/nvidia/driver/usr/lib64",
    "home/kubernetes/bin/nvidia/lib64",
    "opt/nvidia/lib64",
)
# Library directories below the user's `driver_root`.
PREFIX_DIRECTORIES = (
    "lib64",
    "lib",
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib",
    "",
)

_MODULE_FILE = re.compile(r"(?:^|/)(nvidia[\w-]*)\.ko(?:\.(?:gz|xz|zst))?$")
# nvidia.ko, or Debian's names for branches installed side by side, but not nvidia-uvm and the other modules.
_MODULE_NAME = re.compile(r"^nvidia(?:-(?:current|tesla|legacy|open)(?:-[0-9a-z]+)*)?$")
_OTHER_MODULES = ("-uvm", "-drm", "-modeset", "-peermem", "-fs")
_REDIRECT = re.compile(r"^\s*(?:install\s+nvidia\s.*?-i\s+|alias\s+nvidia\s+)(nvidia[\w-]*)", re.MULTILINE)
_MAX_LINKS = 40
_FIELDS: dict = {}


def read(root: str = "/", run: Run | None = None, kernel: str | None = None) -> dict:
    """Return the driver versions of a host: those of `loaded_and_library`, and of the modules on disk.

    `on_disk` and `on_disk_next` are the versions of the module files for `running_kernel` and `next_kernel`. Unknown
    values are None.
    """
    running = kernel or running_kernel(root)
    upcoming = next_boot.next_boot(root, next_boot.bootable(root)) or running
    on_disk = module_on_disk(root, running, run)
    return {
        **loaded_and_library(root),
        "running_kernel": running,
        "next_kernel": upcoming,
        "on_disk": on_disk,
        "on_disk_next": on_disk if upcoming == running else module_on_disk(root, upcoming, run),
    }


def loaded_and_library(root: str = "/") -> dict:
    """Return `loaded` and `kernel_module_flavor` of the loaded module, `library` and `library_path` of user space."""
    loaded, flavor = loaded_module(root)
    path = find_library(root)
    return {
        "loaded": loaded,
        "kernel_module_flavor": flavor,
        "library": library_version(root, path),
        "library_path": path,
    }


def loaded_module(root: str = "/") -> tuple[str | None, str | None]:
    """Return the version and the flavor ("open" or "proprietary") of the loaded module."""
    line = (read_text(root, "proc/driver/nvidia/version") or "").partition("\n")[0]
    match = VERSION.search(line)
    version = (read_text(root, "sys/module/nvidia/version") or "").strip() or (match.group(1) if match else None)
    if "NVRM" in line:
        return version, "open" if "Open Kernel Module" in line else "proprietary"
    return version, None


def find_library(root: str = "/", prefix: str | None = None) -> str | None:
    """Return the path of the NVML library, relative to `root`.

    With a `prefix` (the driver's root directory), search only there. Otherwise, search the usual directories.
    """
    if prefix is not None:
        places = [os.path.join(prefix, directory) for directory in PREFIX_DIRECTORIES]
    else:
        places = [os.path.join("/", directory) for directory in LIBRARY_DIRECTORIES]
    for place in places:
        path = os.path.join(place, NVML_LIBRARY)
        if os.path.exists(resolve(root, path)):
            return path
    return None


def library_version(root: str, path: str | None) -> str | None:
    """Return the driver version in the name of a library's real file."""
    if path is None:
        return None
    return version_suffix(resolve(root, path))


def version_suffix(path: str) -> str | None:
    """Return the driver version at the end of a file name: libnvidia-ml.so.580.95.05 → 580.95.05."""
    match = VERSION.search(os.path.basename(path).partition(".so.")[2])
    return match.group(1) if match else None


def running_kernel(root: str = "/") -> str | None:
    """Return the release of the running kernel. For a root other than `/`, read it from that root's procfs."""
    if os.path.realpath(root) == "/":
        return os.uname().release
    return (read_text(root, "proc/sys/kernel/osrelease") or "").strip() or None


def module_on_disk(root: str, kernel: str | None, run: Run | None = None) -> str | None:
    """Return the version of the module file that `modprobe nvidia` loads under a kernel."""
    path = module_file(root, kernel)
    if path is None:
        return None
    if path.endswith(".ko"):
        return module_file_version(path)
    # Ansible's run_command fails the task if the program is missing, so check first.
    modinfo = run and shutil.which("modinfo", path=pinned_environment.PATH)
    if not modinfo:
        return None
    return module_fields(path, run, modinfo).get("version") or None


def module_fields(path: str, run: Run, modinfo: str = "modinfo") -> dict[str, str]:
    """Return the fields that modinfo shows for a module file, such as `version` and `license`.

    A compressed module of the driver takes modinfo half a second of CPU time, so the answer is kept for the same file.
    """
    try:
        state = os.stat(path)
    except OSError:
        return {}
    file = (path, state.st_ino, state.st_size, state.st_mtime_ns)
    if file not in _FIELDS:
        rc, out, _err = run([modinfo, path])
        if rc != 0:
            return {}
        fields: dict[str, str] = {}
        for line in out.splitlines():
            name, colon, value = line.partition(":")
            if colon:
                fields.setdefault(name.strip(), value.strip())
        _FIELDS[file] = fields
    return _FIELDS[file]


def module_file(root: str, kernel: str | None) -> str | None:
    """Return the module file that `modprobe nvidia` loads under a kernel."""
    if not kernel:
        return None
    directory = os.path.join(root, "lib/modules", kernel)
    found: dict[str, str] = {}
    for line in (read_text(root, f"lib/modules/{kernel}/modules.dep") or "").splitlines():
        if "nvidia" not in line:
            continue
        path = line.partition(":")[0]
        match = _MODULE_FILE.search(path)
        if match and _is_driver(match.group(1)):
            found.setdefault(match.group(1), os.path.join(directory, path))
    existing = {name: path for name, path in found.items() if os.path.exists(path)}
    for name in (*_redirects(root), "nvidia", *sorted(existing)):
        if name in existing:
            return existing[name]
    return None


def module_file_version(path: str) -> str | None:
    """Return `version=` from the .modinfo section of an uncompressed module, without reading the whole file."""
    # Most hosts have compressed modules only, so the program behind nvidia_gpu_facts rarely needs this.
    from ansible_collections.gpufleet.hosts.plugins.module_utils.host import elf  # noqa: PLC0415

    try:
        section = elf.section(path, ".modinfo")
    except (OSError, elf.ElfError):
        return None
    for entry in section.split(b"\0"):
        if entry.startswith(b"version="):
            return entry[len(b"version=") :].decode("ascii", "replace") or None
    return None


def resolve(root: str, path: str) -> str:
    """Follow symlinks like a process with the root directory `root`, and return the path outside it."""
    current = os.path.normpath("/" + path)
    for _step in range(_MAX_LINKS):
        followed = _follow_one(root, current)
        if followed is None:
            break
        current = followed
    return os.path.join(root, current.lstrip("/"))


def _follow_one(root: str, path: str) -> str | None:
    parts = path.strip("/").split("/")
    for length in range(1, len(parts) + 1):
        head = "/" + "/".join(parts[:length])
        try:
            target = os.readlink(os.path.join(root, head.lstrip("/")))
        except OSError:
            continue
        return os.path.normpath(os.path.join(os.path.dirname(head), target, *parts[length:]))
    return None


def is_module_file(path: str) -> bool:
    """Return whether a path is that of the driver's main module."""
    match = _MODULE_FILE.search(path)
    return bool(match and _is_driver(match.group(1)))


def _is_driver(name: str) -> bool:
    return bool(_MODULE_NAME.match(name)) and not name.endswith(_OTHER_MODULES)


def _redirects(root: str) -> Iterator[str]:
    """Return the modules that modprobe's configuration loads instead of `nvidia` (Debian: nvidia-current)."""
    for directory in ("etc/modprobe.d", "run/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d"):
        for path in sorted(glob.glob(os.path.join(glob.escape(root), directory, "*.conf"))):
            relative = resolve(root, os.path.relpath(path, root))
            for match in _REDIRECT.finditer(read_text("/", relative) or ""):
                yield match.group(1)
