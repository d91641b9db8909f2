# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files with which OpenGL, EGL, Vulkan, GBM, OptiX and OpenCL find the driver, and its graphics libraries."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import (
    driver_files,
    driver_volume,
    graphics_configuration,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_tree

VERSION = "580.95.05"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
ICD = "usr/share/vulkan/icd.d/nvidia_icd.json"
EGL = "usr/share/glvnd/egl_vendor.d/10_nvidia.json"
GBM = "usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json"
LAYERS = "usr/share/vulkan/implicit_layer.d/nvidia_layers.json"
OPENCL = "etc/OpenCL/vendors/nvidia.icd"
OPTIX = "usr/share/nvidia/nvoptix.bin"
CONTENT = {
    ICD: {"ICD": {"library_path": "libGLX_nvidia.so.0", "api_version": "1.4.312"}},
    EGL: {"ICD": {"library_path": "libEGL_nvidia.so.0"}},
    GBM: {"ICD": {"library_path": "libnvidia-egl-gbm.so.1"}},
    LAYERS: {"layers": [{"library_path": "libGLX_nvidia.so.0"}, {"library_path": "libnvidia-present.so.1"}]},
}


def host(root, *paths, libraries=()):
    """Write a driver with configuration files. A library is a base name, or a file name."""
    driver_tree.ubuntu(root, VERSION)
    for name in libraries:
        base, _so, version = name.partition(".so.")
        soname = {"libnvidia-allocator": "libnvidia-allocator.so.1", "libEGL_nvidia": "libEGL_nvidia.so.0"}.get(
            base, driver_tree.SONAMES.get(base, f"{base}.so.1")
        )
        driver_tree.write_elf(root / LIBRARIES / f"{base}.so.{version or VERSION}", soname=soname, abi=(2, 3, 99))
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(json.dumps(CONTENT[path]) if path in CONTENT else "libnvidia-opencl.so.1\n")
    return root


def share(root, sets=driver_files.SETS):
    return {
        file.name: file.source.replace(f"{root}/", "")
        for file in driver_files.find(VERSION, "x86_64", str(root), sets=sets)
        if file.subdirectory == "share"
    }


def names(root, sets=driver_files.SETS):
    files = driver_files.find(VERSION, "x86_64", str(root), sets=sets)
    return {f"{file.subdirectory}/{name}" for file in files for name in (file.name, *file.links)}


@pytest.mark.parametrize(
    ("libraries", "expected"),
    [
        (["libGLX_nvidia", "libEGL_nvidia"], {"nvidia_icd.json": ICD, "10_nvidia.json": EGL}),
        (["libEGL_nvidia"], {"10_nvidia.json": EGL}),
        (["libEGL_nvidia", "libnvidia-egl-gbm.so.1.1.2"], {"10_nvidia.json": EGL, "15_nvidia_gbm.json": GBM}),
        (["libGLX_nvidia", "libnvidia-present"], {"nvidia_icd.json": ICD, "nvidia_layers.json": LAYERS}),
        (["libnvidia-opencl"], {"nvidia.icd": OPENCL}),
        (["libnvoptix"], {"nvoptix.bin": OPTIX}),
        ([], {}),
    ],
)
def test_a_file_is_used_only_with_all_its_libraries(tmp_path, libraries, expected):
    assert share(host(tmp_path, ICD, EGL, GBM, LAYERS, OPENCL, OPTIX, libraries=libraries)) == expected


@pytest.mark.parametrize(
    ("sets", "expected"), [(["compute"], ["nvidia.icd"]), (["graphics"], ["nvidia_icd.json"]), (["utility"], [])]
)
def test_files_of_the_sets(tmp_path, sets, expected):
    root = host(tmp_path, ICD, OPENCL, libraries=["libGLX_nvidia", "libnvidia-opencl"])
    assert list(share(root, sets)) == expected


def test_a_link_to_a_file_is_followed_within_the_driver_root(tmp_path):
    host(tmp_path, libraries=["libGLX_nvidia"])
    driver_tree.link(tmp_path / ICD, "/etc/alternatives/icd")
    driver_tree.link(tmp_path / "etc/alternatives/icd", "/usr/share/nvidia/icd.json")
    (tmp_path / "usr/share/nvidia").mkdir(parents=True)
    (tmp_path / "usr/share/nvidia/icd.json").write_text(json.dumps(CONTENT[ICD]))
    assert share(tmp_path) == {"nvidia_icd.json": "usr/share/nvidia/icd.json"}


def test_a_file_in_two_places_is_used_once(tmp_path):
    host(tmp_path, ICD, libraries=["libGLX_nvidia"])
    (tmp_path / "etc/vulkan/icd.d").mkdir(parents=True)
    (tmp_path / "etc/vulkan/icd.d/nvidia_icd.json").write_text(json.dumps(CONTENT[ICD]))
    assert share(tmp_path) == {"nvidia_icd.json": ICD}
    assert graphics_configuration.mounts(["share/nvidia_icd.json"], "x86_64") == [("share/nvidia_icd.json", f"/{ICD}")]


@pytest.mark.parametrize(
    ("library", "included"),
    [
        # The driver's version: also libraries that this collection does not know.
        (f"libnvidia-future.so.{VERSION}", True),
        ("libnvidia-future.so.570.1.2", False),
        # A version of its own.
        ("libnvidia-egl-gbm.so.1.1.2", True),
        ("libnvidia-egl-wayland2.so.1.0.1", True),
        ("libnvidia-egl-xcb.so.1.0.5", True),
        ("libnvidia-egl-xlib.so.1", False),
        ("libnvidia-api.so.1", True),
        ("libnvidia-other.so.1.1.2", False),
    ],
)
def test_graphics_has_every_library_of_the_driver(tmp_path, library, included):
    root = host(tmp_path, libraries=[library])
    assert (f"lib64/{library}" in names(root, ["graphics"])) is included
    assert f"lib64/{library}" not in names(root, ["compute", "utility", "video", "ngx"])


def test_gbm_finds_the_allocator(tmp_path):
    root = host(tmp_path, libraries=["libnvidia-allocator"])
    (file,) = (
        file
        for file in driver_files.find(VERSION, "x86_64", str(root), sets=["graphics"])
        if file.name.startswith("libnvidia-allocator")
    )
    assert "nvidia-drm_gbm.so" in file.links
    assert graphics_configuration.mounts([f"lib64/{name}" for name in file.links], "x86_64") == [
        ("lib64/nvidia-drm_gbm.so", "/usr/lib/x86_64-linux-gnu/gbm/nvidia-drm_gbm.so"),
        ("lib64/nvidia-drm_gbm.so", "/usr/lib64/gbm/nvidia-drm_gbm.so"),
    ]


def test_the_volume_contains_the_configuration(tmp_path):
    root = host(tmp_path / "host", ICD, libraries=["libGLX_nvidia"])
    layout = driver_volume.layout_of(VERSION, driver_files.find(VERSION, "x86_64", str(root)))
    base = tmp_path / "volumes"
    base.mkdir()
    driver_volume.build(layout, str(base))
    assert json.loads((base / VERSION / "share/nvidia_icd.json").read_text()) == CONTENT[ICD]


GRAPHICS = [
    f"{base}.so.{VERSION}"
    for base in (
        "libEGL_nvidia",
        "libGLX_nvidia",
        "libnvidia-eglcore",
        "libnvidia-glcore",
        "libnvidia-glsi",
        "libnvidia-glvkspirv",
        "libnvidia-tls",
    )
]


@pytest.mark.parametrize(
    ("present", "missing"),
    [
        ([*GRAPHICS, "10_nvidia.json", "nvidia_icd.json"], []),
        ([*GRAPHICS, "10_nvidia.json", "nvidia_icd.aarch64.json"], []),
        ([*GRAPHICS, "10_nvidia.json"], ["nvidia_icd.json"]),
        ([*GRAPHICS[1:], "nvidia_icd.json"], [GRAPHICS[0], "10_nvidia.json"]),
    ],
)
def test_what_a_driver_lacks_for_graphics(present, missing):
    assert graphics_configuration.missing_graphics(present, VERSION) == missing
