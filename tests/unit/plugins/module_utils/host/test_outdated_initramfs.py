# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An older driver in the initramfs: when to look for it, and what the listing of an image says."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import outdated_initramfs
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

RUNNING, NEXT = "6.1.0-47-amd64", "6.1.0-49-amd64"
MACHINE = "0123456789abcdef0123456789abcdef"
DEBIAN = f"usr\nusr/lib/modules/{RUNNING}/updates/dkms\nusr/lib/modules/{RUNNING}/updates/dkms/nvidia{{}}.ko{{}}\n"
DRACUT = """Image: /boot/initramfs-5.14.0.img: 60M
========================================================================
Version: dracut-057-70
Arguments: --force --add-drivers 'nvidia nvidia.ko /x/nvidia.ko nvidia_drm' --kver '5.14.0'
dracut modules:
nvidia
========================================================================
lrwxrwxrwx   1 root     root            7 Jan  1  1970 bin -> usr/bin
-rw-r--r--   1 root     root      3000000 Jan  1  1970 usr/lib/modules/5.14.0/{}
"""
LISTINGS = [
    (DEBIAN.format("", ""), True),
    (DEBIAN.format("", ".xz"), True),
    (DEBIAN.format("-current", ".zst"), True),
    (DEBIAN.format("-uvm", ""), False),
    (DEBIAN.format("-drm", ""), False),
    (DEBIAN.format("fb", ""), False),
    ("usr/lib/modules/6.1.0/kernel/drivers/gpu/drm/nouveau/nouveau.ko\n", False),
    ("etc/modprobe.d/nvidia.conf\nusr/lib/firmware/nvidia/580/gsp_ga10x.bin\n", False),
    (DRACUT.format("extra/nvidia.ko.xz"), True),
    (DRACUT.format("weak-updates/nvidia-open/nvidia.ko.xz -> ../../../5.14.0-1/extra/nvidia.ko.xz"), True),
    (DRACUT.format("kernel/drivers/net/virtio_net.ko.xz"), False),
    ("", False),
]


@pytest.mark.parametrize(("listing", "expected"), LISTINGS)
def test_only_the_main_module_of_the_driver_counts(listing: str, expected: bool) -> None:
    assert outdated_initramfs.lists_driver(listing) is expected


PATHS = [
    (f"boot/initrd.img-{RUNNING}", True),
    (f"boot/initramfs-{RUNNING}.img", True),
    (f"boot/initrd-{RUNNING}", True),
    (f"boot/{MACHINE}/{RUNNING}/initrd", True),
    (f"efi/{MACHINE}/{RUNNING}/initrd", True),
    (f"boot/initrd.img-{NEXT}", False),
]


@pytest.mark.parametrize(("path", "is_found"), PATHS)
def test_the_image_of_a_kernel_is_found(tmp_path: Path, path: str, is_found: bool) -> None:
    tree = Tree(tmp_path)
    tree.file("etc/machine-id", f"{MACHINE}\n")
    tree.file(path)
    assert outdated_initramfs.image(str(tmp_path), RUNNING) == (f"/{path}" if is_found else None)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"lsinitramfs": (0, DEBIAN.format("", ""))}, True),
        ({"lsinitrd": (0, DRACUT.format("extra/nvidia.ko"))}, True),
        ({"lsinitramfs": (0, "usr\n")}, False),
        ({"lsinitrd": (1, "")}, None),
        ({}, None),
    ],
)
def test_an_image_that_no_program_can_list_is_unknown(answers: dict[str, tuple[int, str]], expected: bool) -> None:
    def run(argv: list[str]) -> tuple[int, str, str]:
        return (*answers.get(argv[0], (127, "")), "")

    assert outdated_initramfs.contains_driver("/", "/boot/initrd.img-1", run) is expected


DRIVER = {"loaded": "570.1.1", "on_disk": "580.1.1", "kernel_module_flavor": "open", "on_disk_flavor": "open"}
SAME = {**DRIVER, "on_disk": "570.1.1"}
BOOT = 1000
# The driver, when its module and the image came to the host; what is known of the image.
TIMES = [
    ("older image", DRIVER, (900, 800), True),
    ("image that was built between the installation and the boot", DRIVER, (900, 950), True),
    ("image that was rebuilt after the boot", DRIVER, (900, 1100), False),
    ("module that was installed after the boot", DRIVER, (1100, 800), None),
    ("other flavor", {**SAME, "on_disk_flavor": "proprietary"}, (900, 800), True),
    ("converged", SAME, (900, 800), None),
    ("no driver loaded", {**DRIVER, "loaded": None}, (900, 800), None),
    ("no driver on disk", {**DRIVER, "on_disk": None}, (900, 800), None),
]


def tree_with_images(root: Path) -> Tree:
    tree = Tree(root)
    for release in (RUNNING, NEXT):
        tree.file(f"boot/initrd.img-{release}")
        tree.file(f"lib/modules/{release}/modules.dep", "updates/dkms/nvidia.ko:\n")
        tree.file(f"lib/modules/{release}/updates/dkms/nvidia.ko")
    return tree


@pytest.mark.parametrize(("driver", "times", "before_boot"), [row[1:] for row in TIMES], ids=[row[0] for row in TIMES])
def test_images_are_listed_only_if_the_boot_can_have_loaded_an_older_driver(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    driver: dict[str, str],
    times: tuple[int, int],
    before_boot: bool | None,
) -> None:
    tree_with_images(tmp_path)
    monkeypatch.setattr(outdated_initramfs, "changed_at", lambda path: times[0 if path.endswith(".ko") else 1])
    started = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        started.append(argv)
        return 0, DEBIAN.format("", ""), ""

    found = outdated_initramfs.read(str(tmp_path), {"running": RUNNING, "next_boot": NEXT}, driver, run, lambda: BOOT)
    if before_boot is None:
        assert (found, started) == ([], [])
        return
    assert [(entry["kernel"], entry["path"]) for entry in found] == [
        (release, f"/boot/initrd.img-{release}") for release in (RUNNING, NEXT)
    ]
    assert {(entry["has_driver"], entry["before_boot"]) for entry in found} == {(True, before_boot)}
    assert len(started) == 2


def test_a_host_without_an_image_has_none(tmp_path: Path) -> None:
    tree_with_images(tmp_path)
    for release in (RUNNING, NEXT):
        (tmp_path / f"boot/initrd.img-{release}").unlink()
    kernels = {"running": RUNNING, "next_boot": NEXT}
    later = int(time.time()) + 100
    assert outdated_initramfs.read(str(tmp_path), kernels, DRIVER, lambda argv: (0, "", ""), lambda: later) == []


def test_the_time_of_a_file_is_when_it_came_to_its_path(tmp_path: Path) -> None:
    path = tmp_path / "nvidia.ko"
    path.write_text("x")
    os.utime(path, (1, 1))  # as a package manager does
    assert time.time() - outdated_initramfs.changed_at(str(path)) < 60
    link = tmp_path / "link.ko"
    time.sleep(0.02)
    link.symlink_to(path)
    assert outdated_initramfs.changed_at(str(link)) > outdated_initramfs.changed_at(str(path))
    assert outdated_initramfs.changed_at(str(tmp_path / "missing")) is None
    assert outdated_initramfs.changed_at(None) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ["was built before this boot"]),
        ({"before_boot": False}, ["has been rebuilt since"]),
        ({"has_driver": False}, []),
        ({"has_driver": None}, []),
        ({"kernel": RUNNING}, []),
    ],
)
def test_only_the_initramfs_of_the_next_kernel_with_the_driver_is_a_reason_for_a_reboot(
    changes: dict[str, object], words: list[str]
) -> None:
    entry = {"kernel": NEXT, "path": "/boot/initrd.img", "has_driver": True, "before_boot": True, **changes}
    host = {"kernel": {"running": RUNNING, "next_boot": NEXT}, "initramfs": [entry]}
    found = outdated_initramfs.reboot_reasons(host, "570.1.1")
    assert [text.rpartition("; it ")[2] for text in found] == words
