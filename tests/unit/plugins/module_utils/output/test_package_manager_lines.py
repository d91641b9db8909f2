# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the output of package managers and DKMS says about a transaction in progress."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.output.package_manager_lines import ProgressReader

START = "running apt-get"


def after(*lines: str) -> str:
    reader = ProgressReader(START)
    reader.feed("".join(f"{line}\n" for line in lines).encode())
    return reader.text


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("Unpacking libcuda1:amd64 (535.309.01-0+deb12u1) ...", "unpacking libcuda1"),
        ("Unpacking nvidia-open (580.95.05-1) over (580.82.07-1) ...", "unpacking nvidia-open"),
        ("Setting up nvidia-kernel-dkms (535.309.01-0+deb12u1) ...", "configuring nvidia-kernel-dkms"),
        ("Removing nvidia-open (580.95.05-1) ...", "removing nvidia-open"),
        ("Purging configuration files for docker.io (20.10.24) ...", "purging docker.io"),
        ("Processing triggers for libc-bin (2.36-9+deb12u13) ...", "processing triggers of libc-bin"),
        ("  Installing       : nvidia-open-3:580.95.05-1.el9.x86_64        3/20 ", "installing nvidia-open-3"),
        ("  Running scriptlet: kmod-nvidia-latest-dkms-3:580.95-1.el9.x86_64  4/20",
         "running the scripts of kmod-nvidia-latest-dkms-3"),
        ("( 3/20) Installing: nvidia-open-driver-G06-580.95.05-1.x86_64 [..done]",
         "installing nvidia-open-driver-G06-580.95.05-1.x86_64"),
        ("Autoinstall of module nvidia/580.95.05 for kernel 6.8.0-90-generic (x86_64)",
         "building nvidia 580.95.05 for kernel 6.8.0-90-generic"),
        ("update-initramfs: Generating /boot/initrd.img-6.1.0-49-amd64",
         "writing the initramfs of kernel 6.1.0-49-amd64"),
        # What a package or a repository prints is never shown.
        ("Setting up; rm -rf / (1) ...", START),
        ("Get:1 https://user:secret@packages.example.org stable InRelease", START),
        ("Installing everything", START),
        ("Building for architecture x86_64", START),
        ("Building for \x1b[2J", START),
        ("", START),
    ],
)  # fmt: skip
def test_a_line(line, text):
    assert after(line) == text


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("Loading new nvidia-current-535.309.01 DKMS files...", "nvidia-current 535.309.01"),
        ("Loading new nvidia-580.95.05 DKMS files...", "nvidia 580.95.05"),
    ],
)
def test_dkms_names_the_module_before_the_kernel(source, module):
    assert after("Setting up nvidia-kernel-dkms (1) ...", source) == f"adding the sources of {module}"
    assert after(source, "Building for 6.1.0-49-amd64") == f"building {module} for kernel 6.1.0-49-amd64"
    assert after(source, "Building initial module for 6.8.0-90-generic").endswith("for kernel 6.8.0-90-generic")


def test_dkms_names_the_module_and_the_kernel_in_one_line():
    line = "Building initial module nvidia/580.95.05 for 6.8.0-90-generic"
    assert after(line) == "building nvidia 580.95.05 for kernel 6.8.0-90-generic"


def test_output_arrives_in_pieces_of_any_size():
    reader = ProgressReader(START)
    pieces = [b"Unpacking nvi", b"dia-open (1) ...\r\nSetting", b" up x (1) ...\nUnpa"]
    assert [(reader.feed(piece), reader.text) for piece in pieces] == [
        (False, START),
        (True, "unpacking nvidia-open"),
        (True, "configuring x"),
    ]


def test_output_without_a_line_end_needs_no_memory():
    reader = ProgressReader(START)
    for _number in range(100):
        assert not reader.feed(b"\xff" * 10000)
    assert len(reader._rest) <= 4096
