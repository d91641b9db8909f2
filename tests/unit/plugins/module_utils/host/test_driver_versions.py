# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver_versions as host_driver
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import OPEN, PROPRIETARY, Tree

KERNEL = "6.1.0-40-amd64"


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path, KERNEL)


def no_modinfo(argv):
    raise AssertionError(f"nothing needs to be run, but this was: {argv}")


def test_a_host_without_a_driver_has_only_kernel_releases(tree):
    assert host_driver.read(tree.root, no_modinfo) == {
        "loaded": None,
        "kernel_module_flavor": None,
        "library": None,
        "library_path": None,
        "running_kernel": KERNEL,
        "next_kernel": KERNEL,
        "on_disk": None,
        "on_disk_next": None,
    }


def test_after_an_upgrade_the_versions_differ(tree):
    tree.loaded("570.133.20")
    tree.library("580.95.05")
    tree.module("580.95.05")
    tree.boot_image("6.1.0-41-amd64")
    tree.module("580.105.08", "6.1.0-41-amd64")
    assert host_driver.read(tree.root, no_modinfo) == {
        "loaded": "570.133.20",
        "kernel_module_flavor": "open",
        "library": "580.95.05",
        "library_path": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
        "running_kernel": KERNEL,
        "next_kernel": "6.1.0-41-amd64",
        "on_disk": "580.95.05",
        "on_disk_next": "580.105.08",
    }


@pytest.mark.parametrize(
    ("line", "version", "flavor"),
    [
        (OPEN, "580.159.04", "open"),
        (PROPRIETARY, "535.161.08", "proprietary"),
        (PROPRIETARY, "470.256.02", "proprietary"),
        (PROPRIETARY, "390.157", "proprietary"),
        ("nothing that we know {}", "580.95.05", None),
    ],
)
def test_the_version_and_flavor_of_the_loaded_module_are_read(tree, line, version, flavor):
    tree.loaded(version, line)
    assert host_driver.loaded_module(tree.root) == (version, flavor)


def test_the_loaded_version_can_come_from_procfs(tree):
    tree.file("proc/driver/nvidia/version", OPEN.format("580.159.04"))
    assert host_driver.loaded_module(tree.root) == ("580.159.04", "open")


def test_symlinks_are_followed_inside_the_root(tree):
    real = "usr/lib/x86_64-linux-gnu/nvidia/current"
    tree.file(f"{real}/libnvidia-ml.so.535.247.01")
    tree.link(f"{real}/libnvidia-ml.so.1", "libnvidia-ml.so.535.247.01")
    tree.link("etc/alternatives/glx--libnvidia-ml.so.1", f"/{real}/libnvidia-ml.so.1")
    tree.link("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "/etc/alternatives/glx--libnvidia-ml.so.1")
    told = host_driver.read(tree.root)
    assert told["library"] == "535.247.01"
    assert told["library_path"] == "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"


def test_a_driver_below_a_prefix_is_found(tree):
    tree.library("580.159.04", "usr/local/nvidia/lib64")
    told = host_driver.read(tree.root)
    assert (told["library"], told["library_path"]) == ("580.159.04", "/usr/local/nvidia/lib64/libnvidia-ml.so.1")


def test_with_a_prefix_only_the_prefix_is_searched(tree):
    tree.library("580.159.04")
    tree.library("570.133.20", "opt/driver/usr/lib64")
    found = host_driver.find_library(tree.root, "/opt/driver")
    assert found == "/opt/driver/usr/lib64/libnvidia-ml.so.1"
    assert host_driver.library_version(tree.root, found) == "570.133.20"
    assert host_driver.find_library(tree.root, "/opt/other") is None


def test_a_dangling_symlink_is_ignored(tree):
    tree.link("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "libnvidia-ml.so.580.95.05")
    assert host_driver.read(tree.root)["library"] is None


def test_a_symlink_loop_terminates(tree):
    tree.link("usr/lib/a", "b")
    tree.link("usr/lib/b", "a")
    assert host_driver.resolve(tree.root, "/usr/lib/a").startswith(tree.root)


@pytest.mark.parametrize(
    ("name", "configuration", "is_the_driver"),
    [
        ("nvidia", "", True),
        ("nvidia-current", "install nvidia modprobe -i nvidia-current $CMDLINE_OPTS\n", True),
        ("nvidia-current", "alias nvidia nvidia-current\n", True),
        ("nvidia-tesla-470", "install nvidia modprobe -i nvidia-tesla-470 $CMDLINE_OPTS\n", True),
        ("nvidia-current-open", "", True),
        ("nvidia-current-uvm", "", False),
        ("nvidia-drm", "", False),
        ("nvidia-peermem", "", False),
        ("nvidiafb", "", False),
        ("nvidia-fs", "", False),
    ],
)
def test_the_module_file_is_found_by_all_its_names(tree, name, configuration, is_the_driver):
    tree.module("535.247.01", name=name)
    tree.file("etc/modprobe.d/nvidia.conf", configuration)
    assert host_driver.module_on_disk(tree.root, KERNEL) == ("535.247.01" if is_the_driver else None)


def test_modprobes_configuration_selects_between_two_modules(tree):
    tree.module("580.95.05", name="nvidia")
    tree.module("535.247.01", name="nvidia-current")
    assert host_driver.module_on_disk(tree.root, KERNEL) == "580.95.05"
    tree.link("etc/modprobe.d/nvidia.conf", "/etc/alternatives/glx--nvidia-modprobe.conf")
    tree.file("etc/alternatives/glx--nvidia-modprobe.conf", "install nvidia modprobe -i nvidia-current $CMDLINE_OPTS\n")
    assert host_driver.module_on_disk(tree.root, KERNEL) == "535.247.01"


def test_a_listed_module_without_a_file_is_ignored(tree):
    tree.file(f"lib/modules/{KERNEL}/modules.dep", "updates/dkms/nvidia.ko:\n")
    assert host_driver.module_on_disk(tree.root, KERNEL) is None


def test_the_version_of_a_compressed_module_comes_from_modinfo(tree, monkeypatch):
    monkeypatch.setattr(host_driver.shutil, "which", lambda name, path: f"/usr/sbin/{name}")
    tree.module("580.95.05", suffix=".zst")
    asked = []

    def modinfo(argv):
        asked.append(argv)
        return 0, "filename:       nvidia.ko.zst\nversion:        580.95.05\n", ""

    assert host_driver.module_on_disk(tree.root, KERNEL, lambda argv: (1, "", "no such file")) is None
    assert host_driver.module_on_disk(tree.root, KERNEL, modinfo) == "580.95.05"
    path = os.path.join(tree.root, "lib/modules", KERNEL, "updates/dkms/nvidia.ko.zst")
    assert asked == [["/usr/sbin/modinfo", path]]
    assert host_driver.module_on_disk(tree.root, KERNEL) is None


def test_without_modinfo_no_command_runs(tree, monkeypatch):
    monkeypatch.setattr(host_driver.shutil, "which", lambda name, path: None)
    tree.module("580.95.05", suffix=".xz")
    assert host_driver.module_on_disk(tree.root, KERNEL, no_modinfo) is None


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x02\x01" + b"\xff" * 90, b"\x7fELF\x01" + bytes(60), b"text"])
def test_a_damaged_module_file_has_no_version(tree, content):
    path = tree.file("nvidia.ko", content)
    assert host_driver.module_file_version(str(path)) is None


def test_the_running_kernel_of_this_host_comes_from_uname():
    assert host_driver.running_kernel("/") == os.uname().release
