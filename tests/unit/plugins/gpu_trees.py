# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts as directory trees with the files in sysfs, in procfs and on the disk of a GPU host."""

from __future__ import annotations

import os
import struct
from pathlib import Path

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (dvs-builder@U22)"
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Wed Aug  6 05:31:47 UTC 2025"


class Tree:
    """The root directory of a host."""

    def __init__(self, root: Path, kernel: str = "6.1.0-40-amd64") -> None:
        self.path = root
        self.root = str(root)
        self.kernel = kernel
        self.file("proc/sys/kernel/osrelease", kernel + "\n")

    def file(self, path: str, content: str | bytes = "") -> Path:
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target

    def link(self, path: str, target: str) -> None:
        link = self.path / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)

    def function(
        self,
        address: str,
        device: str = "0x20b0",
        *,
        vendor: str = "0x10de",
        class_id: str = "0x030200",
        driver: str | None = None,
        numa_node: int | None = 0,
        subsystem: str = "0x134f",
    ) -> None:
        """Add a function to the PCI bus."""
        base = f"sys/bus/pci/devices/{address}"
        values = {
            "vendor": vendor,
            "device": device,
            "class": class_id,
            "subsystem_vendor": vendor,
            "subsystem_device": subsystem,
        }
        if numa_node is not None:
            values["numa_node"] = str(numa_node)
        for name, value in values.items():
            self.file(f"{base}/{name}", value + "\n")
        if driver:
            (self.path / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
            self.link(f"{base}/driver", os.path.relpath(f"/sys/bus/pci/drivers/{driver}", f"/{base}"))

    def loaded(self, version: str, line: str = OPEN) -> None:
        """Load the kernel module."""
        self.file("proc/driver/nvidia/version", line.format(version) + "\nGCC version: 12\n")
        self.file("sys/module/nvidia/version", version + "\n")

    def library(self, version: str, directory: str = "usr/lib/x86_64-linux-gnu") -> None:
        """Install the user-space library like a package."""
        self.file(f"{directory}/libnvidia-ml.so.{version}", b"\x7fELF")
        self.link(f"{directory}/libnvidia-ml.so.1", f"libnvidia-ml.so.{version}")

    def module(self, version: str, kernel: str | None = None, name: str = "nvidia", suffix: str = "") -> None:
        """Add a kernel module for a kernel and list it in modules.dep."""
        kernel = kernel or self.kernel
        path = f"updates/dkms/{name}.ko{suffix}"
        self.file(f"lib/modules/{kernel}/{path}", b"" if suffix else kernel_module(version))
        index = self.path / f"lib/modules/{kernel}/modules.dep"
        known = index.read_text() if index.exists() else "kernel/drivers/gpu/drm/drm.ko:\n"
        index.write_text(
            known + f"{path}: kernel/drivers/gpu/drm/drm.ko\n" + f"{path.replace('.ko', '-uvm.ko')}: {path}\n"
        )

    def boot_image(self, kernel: str) -> None:
        """Install the image of a kernel."""
        self.file(f"boot/vmlinuz-{kernel}")
        (self.path / "lib/modules" / kernel).mkdir(parents=True, exist_ok=True)


def kernel_module(version: str) -> bytes:
    """Return an ELF file with a .modinfo section, like a kernel module."""
    modinfo = b"license=Dual MIT/GPL\0version=" + version.encode() + b"\0srcversion=0123456789ABCDEF\0"
    names = b"\0.modinfo\0.shstrtab\0"
    modinfo_at, names_at = 64, 64 + len(modinfo)
    table_at = names_at + len(names)
    header = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, table_at, 0, 64, 0, 0, 64, 3, 2)
    )

    def section(name: int, offset: int, size: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, offset, size, 0, 0, 1, 0)

    sections = bytes(64) + section(1, modinfo_at, len(modinfo)) + section(10, names_at, len(names))
    return header + modinfo + names + sections
