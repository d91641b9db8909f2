# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver_versions as host_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import kernels, next_boot
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

OLD, MIDDLE, NEW = "6.1.0-9-amd64", "6.1.0-47-amd64", "6.12.9+deb12-amd64"


def grub_cfg(*releases: str) -> str:
    """Return a menu like grub-mkconfig: the first kernel, a submenu with all kernels, and the firmware entry."""
    entries = [
        f"\tmenuentry 'Debian, with Linux {release}' --class os $menuentry_id_option 'gnulinux-{number}-advanced' {{\n"
        f"\t\techo 'Loading'\n\t\tlinux\t/boot/vmlinuz-{release} root=UUID=1 ro\n\t}}\n"
        for number, release in enumerate(releases)
    ]
    return (
        "if [ -s $prefix/grubenv ]; then\n  load_env\nfi\nfunction savedefault {\n  true\n}\n"
        "menuentry 'Debian' --class os $menuentry_id_option 'gnulinux-simple-1' {\n"
        f"\tlinux\t/vmlinuz-{releases[0]} root=UUID=1 ro\n}}\n"
        "submenu 'Advanced options for Debian' $menuentry_id_option 'gnulinux-advanced-1' {\n"
        f'{"".join(entries)}}}\nmenuentry "UEFI Firmware Settings" {{\n\tfwsetup\n}}\n'
    )


MENU = grub_cfg(NEW, MIDDLE, OLD)
NEXT_BOOT = {
    "the menu's first entry, which is not the newest": ({"boot/grub/grub.cfg": grub_cfg(MIDDLE, NEW)}, MIDDLE),
    "an entry by number": ({"etc/default/grub": "GRUB_DEFAULT='1>2'\n", "boot/grub/grub.cfg": MENU}, OLD),
    "a submenu by number": (
        {"etc/default/grub": "GRUB_DEFAULT=1\n", "boot/grub/grub.cfg": grub_cfg(MIDDLE, OLD)},
        MIDDLE,
    ),
    "an entry by ids that name no kernel": (
        {
            "etc/default/grub": "GRUB_DEFAULT=saved\n",
            "boot/grub2/grub.cfg": MENU,
            "boot/grub2/grubenv": "saved_entry=gnulinux-advanced-1>gnulinux-1-advanced\n",
        },
        MIDDLE,
    ),
    "a number that the menu does not have": (
        {"etc/default/grub": "GRUB_DEFAULT='1>9'\n", "boot/grub/grub.cfg": MENU},
        NEW,
    ),
    "a menu of a kernel that is gone": ({"boot/grub/grub.cfg": grub_cfg("5.10.0-1-amd64")}, NEW),
    "an entry that boots no kernel": (
        {"etc/default/grub": "GRUB_DEFAULT=2\n", "boot/grub/grub.cfg": grub_cfg(MIDDLE, NEW)},
        MIDDLE,
    ),
    "boot loader entries by number": (
        {
            **{f"boot/loader/entries/{n}.conf": f"title x\nversion {v}\n" for n, v in zip("cab", (OLD, MIDDLE, NEW))},
            "boot/grub2/grubenv": "saved_entry=2\n",
        },
        MIDDLE,
    ),
    "the newest by number, not by letter": ({}, NEW),
    "GRUB_DEFAULT=0": ({"etc/default/grub": "GRUB_DEFAULT=0\n"}, NEW),
    "a menu entry by name": ({"etc/default/grub": f'GRUB_DEFAULT="Advanced>Debian, with Linux {MIDDLE}"\n'}, MIDDLE),
    "a drop-in comes after the file": (
        {"etc/default/grub": "GRUB_DEFAULT=0\n", "etc/default/grub.d/x.cfg": f"GRUB_DEFAULT=gnulinux-{OLD}-advanced\n"},
        OLD,
    ),
    "the saved entry": (
        {
            "etc/default/grub": "GRUB_DEFAULT=saved\n",
            "boot/grub/grubenv": f"saved_entry=gnulinux-{MIDDLE}-advanced-1\n",
        },
        MIDDLE,
    ),
    "the saved entry counts only where it is asked for": ({"boot/grub/grubenv": f"saved_entry=x-{MIDDLE}-y\n"}, NEW),
    "the entry for the next boot alone": ({"boot/grub/grubenv": f"next_entry=gnulinux-{OLD}-advanced-1\n"}, OLD),
    "boot loader entries": (
        {
            "boot/loader/entries/5f3a-a.conf": f"title x\nversion {MIDDLE}\n",
            "boot/grub2/grubenv": "saved_entry=5f3a-a\n",
        },
        MIDDLE,
    ),
    "boot loader entry named by its kernel": (
        {"boot/loader/entries/x": "", "boot/grub2/grubenv": f"saved_entry=5f3a-{MIDDLE}\n"},
        MIDDLE,
    ),
    "an entry of a kernel that is gone": (
        {"etc/default/grub": "GRUB_DEFAULT=saved\n", "boot/grub/grubenv": "saved_entry=gnulinux-5.10.0-1-amd64\n"},
        NEW,
    ),
}


IMAGE, OWN = "7d0c41f5a2b84e6f9135c7e8d20b6a41", "b41e9c07d3fa4a58a6c2e1f0975d8b33"
TWO_MACHINES = {
    f"boot/loader/entries/{machine}-{release}.conf": f"title x\nversion {release}\nlinux /vmlinuz-{release}\n"
    for machine, release in ((IMAGE, MIDDLE), (OWN, NEW))
}
SAVED = {"boot/grub2/grub.cfg": 'set default="${saved_entry}"\nblscfg\n'}


def generated(default: str, *releases: str) -> str:
    """Return grub.cfg as grub-mkconfig writes it."""
    head = 'if [ "${next_entry}" ] ; then\n   set default="${next_entry}"\nelse\n   set default="@"\nfi\n'.replace(
        "@", default
    )
    return head + grub_cfg(*releases)


DECIDED = {
    "entries of two machines": ({**TWO_MACHINES, **SAVED}, "", MIDDLE),
    "grubby": ({**TWO_MACHINES, **SAVED, "usr/sbin/grubby": ""}, f"/boot/vmlinuz-{NEW}\n", NEW),
    "menu without the entries": ({**TWO_MACHINES, "boot/grub2/grub.cfg": generated("0", OLD, NEW)}, "", OLD),
    "a pin without its submenu": ({"boot/grub/grub.cfg": generated("gnulinux-1-advanced", NEW, MIDDLE)}, "", NEW),
    "a change without update-grub": (
        {"boot/grub/grub.cfg": generated("0", NEW, OLD), "etc/default/grub": "GRUB_DEFAULT='1>1'\n"}, "", NEW
    ),
    "systemd-boot's default": (
        {
            "boot/loader/loader.conf": "timeout 3\ndefault *-6.1.0-47-*\n",
            **{f"boot/loader/entries/m-{r}.conf": f"version {r}\nlinux /m/{r}/linux\n" for r in (OLD, MIDDLE, NEW)},
        },
        "", MIDDLE,
    ),
    "bootctl": (
        {"boot/loader/loader.conf": "default x\n", "usr/bin/bootctl": ""},
        f'[{{"id": "a", "isDefault": false}}, {{"id": "b", "isDefault": true, "linux": "/m/{OLD}/linux"}}]',
        OLD,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "answer", "expected"), DECIDED.values(), ids=DECIDED)
def test_the_boot_loader_decides(tmp_path, files, answer, expected):
    tree = Tree(tmp_path, MIDDLE)
    for release in (OLD, MIDDLE, NEW):
        tree.file(f"lib/modules/{release}/modules.builtin")
        tree.file(f"boot/vmlinuz-{release}")
    for path, content in files.items():
        tree.file(path, content)
    seen = kernels.read(tree.root, MIDDLE, lambda argv: (0 if answer else 1, answer, ""))
    assert (seen["next_boot"], seen["next_boot_unknown"]) == (expected, None)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "no configuration of GRUB or systemd-boot"),
        ({"boot/grub/grub.cfg": generated("0", "5.10.0-1-amd64")}, "boots no installed kernel"),
        ({"boot/grub/grub.cfg": generated("${mine}", NEW)}, "computes the default entry"),
        ({"boot/loader/loader.conf": "default x\n"}, "systemd-boot has no entry"),
    ],
)
def test_a_guess_is_marked(tmp_path, files, words):
    tree = Tree(tmp_path, MIDDLE)
    for release in (MIDDLE, NEW):
        tree.file(f"lib/modules/{release}/modules.builtin")
        tree.file(f"boot/vmlinuz-{release}")
    for path, content in files.items():
        tree.file(path, content)
    seen = kernels.read(tree.root, MIDDLE, lambda argv: (1, "", ""))
    assert seen["next_boot"] == NEW
    assert words in seen["next_boot_unknown"]


@pytest.mark.parametrize(("files", "expected"), NEXT_BOOT.values(), ids=NEXT_BOOT)
def test_the_kernel_of_the_next_boot_is_determined(tmp_path, files, expected):
    tree = Tree(tmp_path, MIDDLE)
    for release in (OLD, MIDDLE, NEW):
        tree.file(f"lib/modules/{release}/modules.builtin")
        tree.file(f"boot/vmlinuz-{release}")
    for path, content in files.items():
        tree.file(path, content)
    assert kernels.read(tree.root, MIDDLE, lambda argv: (1, "", ""))["next_boot"] == expected
    assert host_driver.read(tree.root, kernel=MIDDLE)["next_kernel"] == expected


def test_images_without_modules_and_rescue_images_do_not_boot_next(tmp_path):
    tree = Tree(tmp_path, MIDDLE)
    for release in (OLD, "0-rescue-f00d"):
        tree.file(f"lib/modules/{release}/modules.builtin")
        tree.file(f"boot/vmlinuz-{release}")
    tree.file(f"boot/vmlinuz-{NEW}")
    assert next_boot.next_boot(tree.root, next_boot.bootable(tree.root)) == OLD


def test_without_kernel_images_the_running_kernel_boots_next(tmp_path):
    tree = Tree(tmp_path, MIDDLE)
    tree.file(f"lib/modules/{NEW}/build/Makefile")
    seen = kernels.read(tree.root, MIDDLE, lambda argv: (1, "", ""))
    assert seen["next_boot"] == MIDDLE
    assert [kernel["release"] for kernel in seen["kernels"]] == [MIDDLE]


def test_headers_and_module_of_each_kernel_are_found(tmp_path):
    tree = Tree(tmp_path, MIDDLE)
    for release in (MIDDLE, NEW):
        tree.file(f"boot/vmlinuz-{release}")
        tree.file(f"lib/modules/{release}/modules.builtin")
    tree.file(f"lib/modules/{NEW}/build/Makefile")
    tree.module("550.163.01", kernel=NEW, name="nvidia-current-open")
    answer = f"version: 550.163.01\nlicense: Dual MIT/GPL\nvermagic: {NEW} SMP preempt\n"
    seen = kernels.read(tree.root, MIDDLE, lambda argv: (0, answer, ""))
    newest, running = seen["kernels"]
    assert (newest["headers"], newest["nvidia_module"]["flavor"], newest["nvidia_module"]["built_for"]) == (
        True,
        "open",
        NEW,
    )
    assert (running["headers"], running["nvidia_module"]) == (False, None)


def test_a_module_that_modinfo_cannot_read_has_no_version(tmp_path):
    tree = Tree(tmp_path, MIDDLE)
    tree.module("550.163.01")
    module = kernels.module_for(tree.root, MIDDLE, lambda argv: (1, "", "bad"))
    assert (module["version"], module["flavor"]) == (None, None)


def test_modinfo_unpacks_a_compressed_module_once_for_all_readers(tmp_path, monkeypatch):
    monkeypatch.setattr(host_driver.shutil, "which", lambda name, path: f"/usr/sbin/{name}")
    tree = Tree(tmp_path, MIDDLE)
    tree.module("550.163.01", suffix=".xz")
    unpacked = []

    def run(argv):
        unpacked.append(argv[-1])
        return 0, f"version:        550.163.0{len(unpacked)}\n", ""

    def versions():
        read = kernels.module_for(tree.root, MIDDLE, run)["version"]
        return (
            read,
            host_driver.module_on_disk(tree.root, MIDDLE, run),
            host_driver.module_on_disk(tree.root, MIDDLE, run),
        )

    assert versions() == ("550.163.01",) * 3
    assert len(unpacked) == 1
    with open(unpacked[0], "a") as module:
        module.write("another build")
    assert versions() == ("550.163.02",) * 3
    assert len(unpacked) == 2


@pytest.mark.parametrize("program", ["DKMS", "DKMS (dkms-3.2.2)"])
def test_dkms_states_and_build_errors_are_read(tmp_path, program):
    tree = Tree(tmp_path)
    base = "var/lib/dkms/nvidia-current/550.163.01"
    tree.file(f"{base}/source/dkms.conf")
    tree.file(f"{base}/{NEW}/x86_64/module/nvidia.ko")
    tree.file(f"{base}/{MIDDLE}/x86_64/module/nvidia.ko")
    tree.file(f"var/lib/dkms/nvidia-current/kernel-{NEW}-x86_64")
    log = "var/lib/dkms/nvidia-current-open/550.163.01/build/make.log"
    tree.file("var/lib/dkms/nvidia-current-open/550.163.01/source/dkms.conf")
    tree.file(
        log,
        f"{program} make.log for nvidia-current-open-550.163.01 for kernel {NEW} (x86_64)\n"
        "# command: make CC='echo error: none'\nCC [M] nv.o\n"
        "nv-pci.c:237:9: error: too few arguments to function\nmake[3]: *** [x] Error 1\n",
    )
    tree.file("var/lib/dkms/zfs/2.1/source/dkms.conf")
    good, bad = kernels.dkms(tree.root)
    assert good == {
        "name": "nvidia-current",
        "version": "550.163.01",
        "kernels": {NEW: "installed", MIDDLE: "built"},
        "failure": None,
    }
    assert bad["kernels"] == {}
    assert bad["failure"] == {
        "kernel": NEW,
        "log": f"/{log}",
        "errors": ["nv-pci.c:237:9: error: too few arguments to function", "make[3]: *** [x] Error 1"],
    }
