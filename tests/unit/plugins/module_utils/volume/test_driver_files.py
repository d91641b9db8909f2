# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_tree

VERSION = "580.95.05"


def found(root, machine="x86_64", version=VERSION, **more):
    files = driver_files.find(version, machine, str(root), **more)
    return {
        f"{file.subdirectory}/{file.name}": (Path(file.source).relative_to(root).as_posix(), list(file.links))
        for file in files
    }


def test_files_behind_debians_alternatives_are_found(tmp_path):
    driver_tree.debian(tmp_path, VERSION)
    wide, narrow = (f"usr/lib/{triplet}" for triplet in ("x86_64-linux-gnu", "i386-linux-gnu"))
    assert found(tmp_path) == {
        f"{subdirectory}/{base}.so.{VERSION}": (f"{directory}{below}/{base}.so.{VERSION}", links)
        for subdirectory, directory in (("lib64", wide), ("lib", narrow))
        for base, below, links in (
            ("libcuda", "/nvidia/current", ["libcuda.so", "libcuda.so.1"]),
            ("libnvidia-ml", "/nvidia/current", ["libnvidia-ml.so.1"]),
            ("libnvidia-ptxjitcompiler", "/nvidia/current", ["libnvidia-ptxjitcompiler.so.1"]),
            ("libnvidia-glcore", "", []),
        )
    } | {
        "bin/nvidia-smi": ("usr/lib/nvidia/current/nvidia-smi", []),
        "bin/nvidia-cuda-mps-control": ("usr/bin/nvidia-cuda-mps-control", []),
        "bin/nvidia-cuda-mps-server": ("usr/sbin/nvidia-cuda-mps-server", []),
    }


@pytest.mark.parametrize(
    ("tree", "machine", "expected"),
    [
        (
            driver_tree.ubuntu,
            "x86_64",
            {
                "lib64": [
                    "libcuda",
                    "libnvcuvid",
                    "libnvidia-ml",
                    "libnvidia-nvvm",
                    "libnvidia-opticalflow",
                    "libvdpau_nvidia",
                ],
                "lib": [],
                "bin": ["nvidia-smi"],
            },
        ),
        (
            driver_tree.enterprise,
            "x86_64",
            {
                "lib64": ["libGLX_nvidia", "libcuda", "libnvidia-ml"],
                "lib": ["libcuda"],
                "bin": ["nvidia-persistenced", "nvidia-smi"],
            },
        ),
        (
            driver_tree.prefixed,
            "x86_64",
            {"lib64": ["libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"], "lib": [], "bin": ["nvidia-smi"]},
        ),
        (driver_tree.arm64, "arm64", {"lib64": ["libcuda", "libnvidia-ml"], "lib": [], "bin": ["nvidia-smi"]}),
    ],
)
@pytest.mark.parametrize("cached", [True, False])
def test_every_directory_layout_is_searched_with_and_without_a_cache(tmp_path, tree, machine, expected, cached):
    tree(tmp_path, VERSION)
    if not cached:
        (tmp_path / "etc/ld.so.cache").unlink(missing_ok=True)
    names = {"lib64": [], "lib": [], "bin": []}
    for name in found(tmp_path, machine):
        subdirectory, file = name.split("/")
        names[subdirectory].append(file.replace(f".so.{VERSION}", ""))
    assert names == expected


def test_links_that_applications_open_directly_are_included(tmp_path):
    driver_tree.ubuntu(tmp_path, VERSION)
    driver_tree.enterprise(tmp_path, VERSION)
    files = found(tmp_path)
    assert files[f"lib64/libnvidia-opticalflow.so.{VERSION}"][1] == [
        "libnvidia-opticalflow.so",
        "libnvidia-opticalflow.so.1",
    ]
    assert files[f"lib64/libGLX_nvidia.so.{VERSION}"][1] == ["libGLX_indirect.so.0", "libGLX_nvidia.so.0"]
    assert files[f"lib64/libnvidia-nvvm.so.{VERSION}"][1] == ["libnvidia-nvvm.so.4"]


def test_a_directory_that_only_the_cache_lists_is_searched(tmp_path):
    directory = tmp_path / "srv/driver/lib"
    driver_tree.library(directory, "libcuda", VERSION)
    driver_tree.library(directory, "libnvidia-ml", VERSION)
    driver_tree.program(tmp_path / "srv/driver/bin/nvidia-smi")
    with pytest.raises(driver_files.DriverFilesError):
        found(tmp_path)
    driver_tree.write_cache(tmp_path, [("libcuda.so.1", "/srv/driver/lib/libcuda.so.1", "x86_64")])
    assert list(found(tmp_path)) == [
        f"lib64/libcuda.so.{VERSION}",
        f"lib64/libnvidia-ml.so.{VERSION}",
        "bin/nvidia-smi",
    ]


def test_stubs_in_the_cache_are_ignored(tmp_path):
    driver_tree.ubuntu(tmp_path, VERSION)
    real = found(tmp_path)
    gdk, toolkit = tmp_path / "usr/src/gdk/nvml/lib", tmp_path / "usr/local/cuda/lib64/stubs"
    driver_tree.write_elf(gdk / "libnvidia-ml.so.1", soname="libnvidia-ml.so.1")
    driver_tree.write_elf(toolkit / "libcuda.so", soname="libcuda.so.1")
    # A stub with the name of the real library.
    driver_tree.library(toolkit, "libcuda", VERSION, filler=b"stub")
    driver_tree.write_cache(
        tmp_path,
        [
            ("libnvidia-ml.so.1", "/usr/src/gdk/nvml/lib/libnvidia-ml.so.1", "x86_64"),
            ("libcuda.so.1", "/usr/local/cuda/lib64/stubs/libcuda.so.1", "x86_64"),
            ("libcuda.so.1", "/lib/x86_64-linux-gnu/libcuda.so.1", "x86_64"),
        ],
    )
    assert found(tmp_path) == real


@pytest.mark.parametrize(
    ("needed", "included"),
    [
        (["libc.so.6", f"libnvidia-glcore.so.{VERSION}"], True),
        ([f"libnvidia-eglcore.so.{VERSION}"], True),
        (["libGLdispatch.so.0"], True),
        (["libglapi.so.0", "libX11.so.6"], False),
    ],
)
@pytest.mark.parametrize("base", ["libGL", "libEGL", "libGLESv1_CM", "libGLESv2"])
def test_gl_libraries_of_other_vendors_are_ignored(tmp_path, base, needed, included):
    driver_tree.ubuntu(tmp_path, VERSION)
    directory = tmp_path / "usr/lib/x86_64-linux-gnu"
    driver_tree.write_elf(directory / "libGL.so.1.2.0", soname="libGL.so.1", needed=["libglapi.so.0"])
    driver_tree.write_elf(directory / f"{base}.so.{VERSION}", soname=f"{base}.so.1", needed=needed)
    files = found(tmp_path)
    assert (f"lib64/{base}.so.{VERSION}" in files) is included
    assert "lib64/libGL.so.1.2.0" not in files


@pytest.mark.parametrize(("abi", "included"), [((2, 3, 99), True), ((2, 2, 5), False), (None, False)])
def test_the_tls_library_for_native_threads_is_included(tmp_path, abi, included):
    driver_tree.ubuntu(tmp_path, VERSION)
    directory = tmp_path / "usr/lib/x86_64-linux-gnu"
    driver_tree.write_elf(directory / f"libnvidia-tls.so.{VERSION}", soname=f"libnvidia-tls.so.{VERSION}", abi=abi)
    assert (f"lib64/libnvidia-tls.so.{VERSION}" in found(tmp_path)) is included


def test_the_matching_one_of_two_tls_libraries_is_included(tmp_path):
    driver_tree.ubuntu(tmp_path, VERSION)
    directory = tmp_path / "usr/lib/x86_64-linux-gnu"
    name = f"libnvidia-tls.so.{VERSION}"
    driver_tree.write_elf(directory / name, soname=name, abi=(2, 2, 5))
    driver_tree.write_elf(directory / "tls" / name, soname=name, abi=(2, 3, 99))
    assert found(tmp_path)[f"lib64/{name}"][0] == f"usr/lib/x86_64-linux-gnu/tls/{name}"


def test_files_of_another_version_are_ignored(tmp_path):
    driver_tree.ubuntu(tmp_path, VERSION)
    expected = found(tmp_path)
    directory = tmp_path / "usr/lib/x86_64-linux-gnu"
    for base in ("libnvidia-ptxjitcompiler", "libcuda"):
        driver_tree.library(directory, base, "570.133.20", links=False)
    assert found(tmp_path) == expected


def test_a_link_with_another_version_in_its_name_is_not_a_mismatch(tmp_path):
    driver_tree.library(tmp_path / "usr/lib64", "libcuda", VERSION)
    driver_tree.link(tmp_path / "usr/lib64/libnvidia-ml.so.570.133.20", f"libcuda.so.{VERSION}")
    assert list(found(tmp_path)) == [f"lib64/libcuda.so.{VERSION}"]


def test_a_driver_of_another_machine_is_not_a_mismatch(tmp_path):
    driver_tree.arm64(tmp_path, VERSION)
    with pytest.raises(driver_files.DriverFilesError, match=f"found no x86_64 libcuda.so.{VERSION}"):
        found(tmp_path)


def test_an_executable_with_the_name_of_a_library_is_ignored(tmp_path):
    driver_tree.ubuntu(tmp_path, VERSION)
    expected = found(tmp_path)
    driver_tree.program(tmp_path / f"usr/lib/x86_64-linux-gnu/libnvidia-opencl.so.{VERSION}")
    assert found(tmp_path) == expected


def test_links_that_are_not_library_names_are_ignored(tmp_path):
    driver_tree.ubuntu(tmp_path, VERSION)
    expected = found(tmp_path)
    driver_tree.link(tmp_path / "usr/lib/x86_64-linux-gnu/libcuda.so.1.old", f"libcuda.so.{VERSION}")
    assert found(tmp_path) == expected


def test_a_file_wins_over_a_link_of_the_same_name(tmp_path):
    driver_tree.ubuntu(tmp_path, VERSION)
    name = f"libnvidia-ml.so.{VERSION}"
    driver_tree.write_elf(tmp_path / f"usr/lib/x86_64-linux-gnu/libnvidia-cfg.so.{VERSION}", soname=name)
    files = found(tmp_path)
    assert files[f"lib64/libnvidia-cfg.so.{VERSION}"][1] == []
    assert files[f"lib64/{name}"][0] == f"usr/lib/x86_64-linux-gnu/{name}"


def test_a_program_that_is_not_executable_is_ignored(tmp_path):
    driver_tree.ubuntu(tmp_path, VERSION)
    (tmp_path / "usr/bin/nvidia-smi").chmod(0o644)
    assert "bin/nvidia-smi" not in found(tmp_path)


def test_the_separately_versioned_nvvm_comes_from_the_driver_directory(tmp_path):
    driver_tree.enterprise(tmp_path, VERSION)
    driver_tree.write_elf(tmp_path / "usr/lib64/libnvidia-nvvm70.so.4", soname="libnvidia-nvvm70.so.4")
    driver_tree.write_elf(tmp_path / "opt/nvidia/lib64/libnvidia-nvvm70.so.3", soname="libnvidia-nvvm70.so.3")
    names = [name for name in found(tmp_path) if "nvvm70" in name]
    assert names == ["lib64/libnvidia-nvvm70.so.4"]


@pytest.mark.parametrize(
    ("sets", "libraries", "binaries"),
    [
        (["utility"], ["lib64/libnvidia-ml"], ["nvidia-smi"]),
        (
            ["compute"],
            ["lib64/libcuda", "lib64/libnvidia-ptxjitcompiler"],
            ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server"],
        ),
        (["graphics"], ["lib64/libnvidia-glcore"], []),
        (["utility", "compat32"], ["lib/libnvidia-ml", "lib64/libnvidia-ml"], ["nvidia-smi"]),
        (["ngx"], [], []),
    ],
)
def test_sets_select_libraries_and_programs(tmp_path, sets, libraries, binaries):
    driver_tree.debian(tmp_path, VERSION)
    files = found(tmp_path, sets=sets)
    assert sorted(name.split(".so.")[0] for name in files if not name.startswith("bin/")) == libraries
    assert [name[4:] for name in files if name.startswith("bin/")] == binaries


def test_a_library_of_another_machine_is_ignored(tmp_path):
    driver_tree.ubuntu(tmp_path, VERSION)
    driver_tree.library(tmp_path / "usr/lib/aarch64-linux-gnu", "libnvidia-ptxjitcompiler", VERSION, "aarch64")
    assert f"lib64/libnvidia-ptxjitcompiler.so.{VERSION}" not in found(tmp_path)


def test_the_loader_cache_has_priority(tmp_path):
    driver_tree.prefixed(tmp_path, VERSION)
    driver_tree.enterprise(tmp_path, VERSION)
    assert found(tmp_path)[f"lib64/libcuda.so.{VERSION}"][0] == f"usr/lib64/libcuda.so.{VERSION}"


def test_programs_come_from_path_first_and_wrapper_scripts_are_ignored(tmp_path):
    driver_tree.ubuntu(tmp_path, VERSION)
    driver_tree.program(tmp_path / "srv/tools/nvidia-smi")
    script = tmp_path / "usr/local/bin/nvidia-smi"
    script.parent.mkdir(parents=True)
    script.write_text('#!/bin/sh\nexec /usr/bin/nvidia-smi "$@"\n')
    script.chmod(0o755)
    assert found(tmp_path)["bin/nvidia-smi"][0] == "usr/bin/nvidia-smi"
    assert found(tmp_path, search_path=["/srv/tools"])["bin/nvidia-smi"][0] == "srv/tools/nvidia-smi"


def test_ignored_directories_are_not_searched(tmp_path):
    driver_tree.ubuntu(tmp_path, VERSION)
    volumes = tmp_path / "var/lib/gpufleet/volumes/nvidia_driver"
    driver_tree.library(volumes / VERSION / "lib64", "libnvidia-ptxjitcompiler", VERSION)
    entry = ("libnvidia-ptxjitcompiler.so.1", f"/var/lib/gpufleet/volumes/nvidia_driver/{VERSION}/lib64/", "x86_64")
    driver_tree.write_cache(tmp_path, [(entry[0], entry[1] + entry[0], entry[2])])
    assert f"lib64/libnvidia-ptxjitcompiler.so.{VERSION}" in found(tmp_path)
    assert f"lib64/libnvidia-ptxjitcompiler.so.{VERSION}" not in found(tmp_path, ignore=[str(volumes)])


@pytest.mark.parametrize("base", ["libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"])
@pytest.mark.parametrize("content", [b"", b"z\n", driver_tree.elf_bytes(soname="libcuda.so.1")[:100]])
def test_a_damaged_library_is_reported(tmp_path, base, content):
    driver_tree.debian(tmp_path, VERSION)
    path = tmp_path / f"usr/lib/x86_64-linux-gnu/nvidia/current/{base}.so.{VERSION}"
    path.write_bytes(content)
    with pytest.raises(driver_files.DriverFilesError, match=rf"{path}: .*damaged: reinstall the package"):
        found(tmp_path)


def test_a_damaged_library_outside_the_sets_is_ignored(tmp_path):
    driver_tree.debian(tmp_path, VERSION)
    (tmp_path / f"usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.{VERSION}").write_bytes(b"")
    assert f"lib64/libnvidia-ml.so.{VERSION}" in found(tmp_path, sets=["utility"])


def test_an_intact_copy_replaces_a_damaged_library(tmp_path):
    driver_tree.enterprise(tmp_path, VERSION)
    driver_tree.prefixed(tmp_path, VERSION)
    (tmp_path / f"usr/lib64/libcuda.so.{VERSION}").write_bytes(b"")
    assert found(tmp_path)[f"lib64/libcuda.so.{VERSION}"][0] == f"usr/local/nvidia/lib64/libcuda.so.{VERSION}"


def test_a_directory_with_the_name_of_a_library_is_ignored(tmp_path):
    driver_tree.ubuntu(tmp_path, VERSION)
    (tmp_path / f"usr/lib/x86_64-linux-gnu/libnvidia-opencl.so.{VERSION}").mkdir()
    assert "opencl" not in " ".join(found(tmp_path))


@pytest.mark.parametrize("soname", ["../../etc/passwd", "libcuda.so.1/../x"])
def test_a_soname_cannot_lead_out_of_the_volume(tmp_path, soname):
    driver_tree.write_elf(tmp_path / f"usr/lib64/libcuda.so.{VERSION}", soname=soname)
    assert found(tmp_path) == {f"lib64/libcuda.so.{VERSION}": (f"usr/lib64/libcuda.so.{VERSION}", [])}


def test_a_cycle_of_links_ends(tmp_path):
    driver_tree.ubuntu(tmp_path, VERSION)
    directory = tmp_path / "usr/lib/x86_64-linux-gnu"
    driver_tree.link(directory / "libcuda.so", "libcuda.so.0")
    driver_tree.link(directory / "libcuda.so.0", "libcuda.so")
    assert found(tmp_path)[f"lib64/libcuda.so.{VERSION}"][1] == ["libcuda.so", "libcuda.so.1"]


def test_a_missing_driver_is_reported(tmp_path):
    with pytest.raises(driver_files.DriverFilesError) as error:
        found(tmp_path)
    for words in (f"libcuda.so.{VERSION}", f"libnvidia-ml.so.{VERSION}", "Install", f"driver_root={tmp_path}"):
        assert words in str(error.value)


@pytest.mark.parametrize("tree", [driver_tree.ubuntu, driver_tree.debian, driver_tree.enterprise, driver_tree.prefixed])
def test_a_version_mismatch_names_both_versions_and_a_file(tmp_path, tree):
    tree(tmp_path, "570.133.20")
    with pytest.raises(driver_files.DriverFilesError) as error:
        found(tmp_path)
    text = str(error.value)
    assert re.search(r"libcuda\.so\.570\.133\.20 is from driver 570\.133\.20", text)
    assert VERSION in text
    assert "driver_version=570.133.20" in text


def test_a_partial_upgrade_is_a_version_mismatch(tmp_path):
    driver_tree.library(tmp_path / "usr/lib64", "libnvidia-ml", VERSION)
    driver_tree.library(tmp_path / "usr/lib64", "libcuda", "570.133.20")
    with pytest.raises(driver_files.DriverFilesError, match=r"libcuda\.so\.570\.133\.20 is from driver"):
        found(tmp_path)
    assert f"lib64/libnvidia-ml.so.{VERSION}" in found(tmp_path, sets=["utility"])


def test_a_damaged_cache_is_ignored(tmp_path):
    driver_tree.ubuntu(tmp_path, VERSION)
    expected = found(tmp_path)
    (tmp_path / "etc/ld.so.cache").write_bytes(b"glibc-ld.so.cache1.1\xff\xff")
    assert found(tmp_path) == expected


@pytest.mark.parametrize(
    ("sets", "message"), [([], "sets is empty and selects nothing"), (["compat32"], "sets=compat32 selects nothing")]
)
def test_sets_that_select_nothing_are_an_error(sets, message):
    with pytest.raises(driver_files.DriverFilesError, match=message):
        driver_files.check_sets(sets)


@pytest.mark.parametrize(
    ("alias", "target"),
    [
        # Absolute, inside the root of the driver.
        ("usr/lib64/libnvidia-ml.so", f"/usr/lib64/libnvidia-ml.so.{VERSION}"),
        ("usr/lib64/libnvidia-ml.so", "/usr/lib64/libnvidia-ml.so.1"),
        ("usr/lib64/libnvidia-ml.so", f"../lib64/libnvidia-ml.so.{VERSION}"),
        # From another directory of the loader.
        ("usr/lib/libnvidia-ml.so", f"../lib64/libnvidia-ml.so.{VERSION}"),
        ("usr/lib/libnvidia-ml.so", f"/lib64/libnvidia-ml.so.{VERSION}"),
    ],
)
def test_links_of_the_host_are_kept_wherever_they_lead(tmp_path, alias, target):
    driver_tree.enterprise(tmp_path, VERSION)
    driver_tree.link(tmp_path / alias, target)
    files = found(tmp_path)
    assert files[f"lib64/libnvidia-ml.so.{VERSION}"][1] == ["libnvidia-ml.so", "libnvidia-ml.so.1"]
    assert files[f"lib/libcuda.so.{VERSION}"][1] == ["libcuda.so", "libcuda.so.1"]


def test_an_absolute_soname_link_leads_to_a_relative_one(tmp_path):
    driver_tree.library(tmp_path / "usr/lib64", "libcuda", VERSION, links=False)
    driver_tree.link(tmp_path / "usr/lib64/libcuda.so.1", f"/usr/lib64/libcuda.so.{VERSION}")
    driver_tree.write_cache(tmp_path, [("libcuda.so.1", "/usr/lib64/libcuda.so.1", "x86_64")])
    assert found(tmp_path) == {
        f"lib64/libcuda.so.{VERSION}": (f"usr/lib64/libcuda.so.{VERSION}", ["libcuda.so", "libcuda.so.1"])
    }


def test_a_regular_file_with_the_soname_is_ignored(tmp_path):
    """The file is a stub or a stray copy. The link in the volume leads to the real library."""
    driver_tree.enterprise(tmp_path, VERSION)
    path = tmp_path / "usr/lib64/libnvidia-ml.so.1"
    path.unlink()
    driver_tree.write_elf(path, soname="libnvidia-ml.so.1", filler=b"stub")
    driver_tree.write_cache(tmp_path, [("libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.1", "x86_64")])
    files = found(tmp_path)
    assert files[f"lib64/libnvidia-ml.so.{VERSION}"] == (
        f"usr/lib64/libnvidia-ml.so.{VERSION}",
        ["libnvidia-ml.so.1"],
    )
    assert "lib64/libnvidia-ml.so.1" not in files


def test_a_regular_file_with_the_soname_alone_is_not_a_driver(tmp_path):
    driver_tree.write_elf(tmp_path / "usr/lib64/libnvidia-ml.so.1", soname="libnvidia-ml.so.1")
    with pytest.raises(driver_files.DriverFilesError, match=f"found no x86_64 libcuda.so.{VERSION}"):
        found(tmp_path)


@pytest.mark.parametrize("directory", ["lib64", "usr/lib64", "usr/local/nvidia/lib64", "opt/nvidia/lib64"])
def test_a_root_with_only_a_lib64_directory_is_searched(tmp_path, directory):
    driver_tree.library(tmp_path / directory, "libcuda", VERSION)
    assert list(found(tmp_path)) == [f"lib64/libcuda.so.{VERSION}"]


def test_the_requested_one_of_several_versions_is_found(tmp_path):
    versions = ("470.256.02", VERSION, "595.45")
    for version in versions:
        driver_tree.library(tmp_path / "usr/lib64", "libcuda", version, links=False)
        driver_tree.library(tmp_path / "usr/lib64", "libnvidia-ml", version, links=False)
    driver_tree.link(tmp_path / "usr/lib64/libcuda.so.1", "libcuda.so.595.45")
    for version in versions:
        assert found(tmp_path, version=version) == {
            f"lib64/libcuda.so.{version}": (f"usr/lib64/libcuda.so.{version}", ["libcuda.so", "libcuda.so.1"]),
            f"lib64/libnvidia-ml.so.{version}": (f"usr/lib64/libnvidia-ml.so.{version}", ["libnvidia-ml.so.1"]),
        }


def test_64_bit_and_32_bit_libraries_on_aarch64_are_found(tmp_path):
    driver_tree.arm64(tmp_path, VERSION)
    driver_tree.library(tmp_path / "usr/lib/arm-linux-gnueabihf", "libcuda", VERSION, "arm")
    driver_tree.library(tmp_path / "usr/lib/x86_64-linux-gnu", "libnvidia-ptxjitcompiler", VERSION)
    driver_tree.program(tmp_path / "usr/local/bin/nvidia-smi")
    names = {name: source for name, (source, _links) in found(tmp_path, "aarch64").items()}
    assert names == {
        f"lib64/libcuda.so.{VERSION}": f"usr/lib/aarch64-linux-gnu/libcuda.so.{VERSION}",
        f"lib64/libnvidia-ml.so.{VERSION}": f"usr/lib/aarch64-linux-gnu/libnvidia-ml.so.{VERSION}",
        f"lib/libcuda.so.{VERSION}": f"usr/lib/arm-linux-gnueabihf/libcuda.so.{VERSION}",
        "bin/nvidia-smi": "usr/bin/nvidia-smi",
    }


@pytest.mark.parametrize("form", ["{}/link", "{}/real/", "{}/gone/../real", "{}/a root"])
def test_roots_may_be_links_and_contain_spaces(tmp_path, form):
    driver_tree.debian(tmp_path / "real", VERSION)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "a root").symlink_to("real")
    (tmp_path / "gone").mkdir()
    root = form.format(tmp_path)
    files = {
        (file.subdirectory, file.name, file.links, Path(file.source).resolve())
        for file in driver_files.find(VERSION, "x86_64", root)
    }
    assert files == {
        (file.subdirectory, file.name, file.links, Path(file.source).resolve())
        for file in driver_files.find(VERSION, "x86_64", str(tmp_path / "real"))
    }
    assert len(files) == 11


# The libraries that libnvidia-container selects and those that the volumes of nvidia-docker 1.0 held.
SELECTED = {
    "utility": "ml cfg nscq",
    "compute": "cuda cudadebugger opencl gpucomp ptxjitcompiler fatbinaryloader allocator compiler pkcs11 "
    "pkcs11-openssl3 nvvm tileiras",
    "video": "vdpau_nvidia encode opticalflow nvcuvid fbc ifr",
    "graphics": "eglcore glcore tls glsi fbc ifr rtcore nvoptix GLX_nvidia EGL_nvidia GLESv2_nvidia GLESv1_CM_nvidia "
    "glvkspirv cbl GL EGL GLESv1_CM GLESv2",
    "ngx": "ngx",
}
NAMES_WITHOUT_PREFIX = ("cuda", "vdpau", "nvcuvid", "nvoptix", "GL", "EGL")


@pytest.mark.parametrize("chosen", SELECTED)
def test_the_sets_contain_every_library_that_nvidias_tools_select(tmp_path, chosen):
    driver_tree.library(tmp_path / "usr/lib64", "libcuda", VERSION)
    bases = [
        f"lib{name}" if name.startswith(NAMES_WITHOUT_PREFIX) else f"libnvidia-{name}"
        for name in SELECTED[chosen].split()
    ]
    for base in bases:
        path = tmp_path / f"usr/lib64/{base}.so.{VERSION}"
        driver_tree.write_elf(path, needed=["libGLdispatch.so.0"], abi=(2, 3, 99))
    assert [name for name in found(tmp_path, sets=[chosen]) if name.startswith("lib64/")] == sorted(
        f"lib64/{base}.so.{VERSION}" for base in bases
    )
