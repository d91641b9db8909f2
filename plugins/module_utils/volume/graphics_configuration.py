# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files in which vendor-neutral libraries (OpenCL, GLVND, Vulkan, GBM) find the driver's libraries.

A file is used only if the libraries that it names exist. Otherwise, an application fails in place of using another
driver.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver_versions as host_driver

# The paths on the host by set. The first path of a name is its path in the container. The lists of NVIDIA's toolkit:
# NVIDIA/nvidia-container-toolkit, internal/discover/graphics.go at d34b3046. v1.20.0 lacks 20_nvidia_xcb.json and
# 20_nvidia_xlib.json.
FILES = {
    "compute": ("/etc/OpenCL/vendors/nvidia.icd",),
    "graphics": (
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "/usr/share/egl/egl_external_platform.d/09_nvidia_wayland2.json",
        "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
        "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
        "/usr/share/egl/egl_external_platform.d/20_nvidia_xcb.json",
        "/usr/share/egl/egl_external_platform.d/20_nvidia_xlib.json",
        "/usr/share/vulkan/icd.d/nvidia_icd.json",
        "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json",
        "/usr/share/vulkan/icd.d/nvidia_icd.aarch64.json",
        "/usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
        "/etc/vulkan/icd.d/nvidia_icd.json",
        "/etc/vulkan/implicit_layer.d/nvidia_layers.json",
        "/usr/share/nvidia/nvoptix.bin",
    ),
}
TARGETS = {os.path.basename(path): path for paths in FILES.values() for path in reversed(paths)}
# The data file of OptiX names no library.
_LIBRARIES = {"nvoptix.bin": ["libnvoptix.so.1"]}
_LIBRARY_PATH = re.compile(r'"library_path"\s*:\s*"([^"]+)"')

# The name under which GBM loads libnvidia-allocator: the name of the kernel's DRM driver and _gbm.so.
GBM_BACKEND = "nvidia-drm_gbm.so"
# GBM's directories in containers of the Debian and Red Hat families.
GBM_DIRECTORIES = {
    "x86_64": ("/usr/lib/x86_64-linux-gnu/gbm", "/usr/lib64/gbm"),
    "aarch64": ("/usr/lib/aarch64-linux-gnu/gbm", "/usr/lib64/gbm"),
}

# Without one of these, OpenGL, EGL or Vulkan do not work at all.
_NEEDED_LIBRARIES = (
    "libEGL_nvidia",
    "libGLX_nvidia",
    "libnvidia-eglcore",
    "libnvidia-glcore",
    "libnvidia-glsi",
    "libnvidia-glvkspirv",
    "libnvidia-tls",
)
_VULKAN = ("nvidia_icd.json", "nvidia_icd.x86_64.json", "nvidia_icd.aarch64.json")


def find(sets: Collection[str], root: str, libraries: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the real path and the name of each file of `sets` whose libraries are in `libraries`, once per name."""
    names = set()
    for path in (path for name, paths in FILES.items() if name in sets for path in paths):
        source, name = host_driver.resolve(root, path), os.path.basename(path)
        if name not in names and os.path.isfile(source) and _named_libraries(source, name).issubset(libraries):
            names.add(name)
            yield source, name


def is_in_sets(name: str, sets: Collection[str]) -> bool:
    """Return whether a file belongs to one of the sets."""
    return any(TARGETS.get(name) in paths for chosen, paths in FILES.items() if chosen in sets)


def _named_libraries(path: str, name: str) -> set[str]:
    text = "" if name in _LIBRARIES else read_text("/", path) or ""
    named = _LIBRARIES.get(name) or (text.split() if name.endswith(".icd") else _LIBRARY_PATH.findall(text))
    return {os.path.basename(library) for library in named}


def mounts(names: Iterable[str], machine: str) -> list[tuple[str, str]]:
    """Return paths in a driver volume and their paths in a container. `names` are paths of files and links in a volume.

    All other files of a volume are used from the volume itself.
    """
    found = []
    for name in sorted(names):
        directory, base = os.path.split(name)
        if directory == "share" and base in TARGETS:
            found.append((name, TARGETS[base]))
        elif name == f"lib64/{GBM_BACKEND}":
            found += [(name, f"{place}/{base}") for place in GBM_DIRECTORIES.get(machine, ())]
    return found


def missing_graphics(names: Collection[str], version: str) -> list[str]:
    """Return what a driver lacks for OpenGL, EGL and Vulkan. `names` are the names of its files."""
    missing = [f"{base}.so.{version}" for base in _NEEDED_LIBRARIES if f"{base}.so.{version}" not in names]
    missing += [name for name in ("10_nvidia.json",) if name not in names]
    return missing if any(name in names for name in _VULKAN) else [*missing, _VULKAN[0]]
