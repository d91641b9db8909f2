# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests of cdi/nvidia/usual_names_by_number.py."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import usual_names_by_number as names

MAJORS = {"nvidia-uvm": 509, "nvidia-caps": 510}
PRESENT = {"/dev/dri/card1": (226, 1)}
USUAL = [
    ((195, 2), "/dev/nvidia2"),
    ((195, 255), "/dev/nvidiactl"),
    ((195, 254), "/dev/nvidia-modeset"),
    ((509, 0), "/dev/nvidia-uvm"),
    ((509, 1), "/dev/nvidia-uvm-tools"),
    ((510, 21), "/dev/nvidia-caps/nvidia-cap21"),
]


@pytest.mark.parametrize(("numbers", "name"), USUAL, ids=[row[1] for row in USUAL])
def test_the_numbers_give_the_usual_name_and_the_reverse(numbers, name):
    assert names.name_of("/dev/other", numbers, MAJORS, PRESENT) == name
    assert names.numbers_of(name, MAJORS) == numbers


@pytest.mark.parametrize(
    ("path", "numbers", "name"),
    [
        ("/dev/other", (509, 2), "/dev/other"),
        ("/dev/other", (226, 1), "/dev/dri/card1"),
        ("/dev/dri/card1", (226, 1), "/dev/dri/card1"),
        ("/dev/other", (226, 9), "/dev/other"),
    ],
)
def test_nodes_of_other_drivers_have_the_name_that_the_host_has(path, numbers, name):
    assert names.name_of(path, numbers, MAJORS, PRESENT) == name


@pytest.mark.parametrize("path", ["/dev/nvidia-uvm", "/dev/nvidia-caps/nvidia-cap1", "/dev/dri/card1"])
def test_numbers_that_only_the_kernel_gives_are_unknown_without_it(path):
    assert names.numbers_of(path, {}) is None
