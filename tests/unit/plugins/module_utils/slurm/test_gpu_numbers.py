# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device nodes behind the numbers of GPUs."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import gpu_numbers

TWO_TYPES = (
    "Name=gpu Type=t4 File=/dev/nvidia2\nName=gpu Type=a100 File=/dev/nvidia1\nName=gpu Type=a100 File=/dev/nvidia0"
)
MIG = (
    "Name=gpu Type=m MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap21,/dev/nvidia-caps/nvidia-cap22\n"
    "Name=gpu Type=a File=/dev/nvidia1"
)


@pytest.mark.parametrize(
    ("text", "node_gres", "expected"),
    [
        ("Name=gpu File=/dev/nvidia[0-1]", "gpu:2", [{"/dev/nvidia0"}, {"/dev/nvidia1"}]),
        ("Name=gpu File=/dev/nvidia1\nName=gpu File=/dev/nvidia0", "gpu:2", [{"/dev/nvidia1"}, {"/dev/nvidia0"}]),
        # Measured with Slurm 22.05.
        (TWO_TYPES, "gpu:a100:2,gpu:t4:1", [{"/dev/nvidia1"}, {"/dev/nvidia0"}, {"/dev/nvidia2"}]),
        (TWO_TYPES, "gpu:t4:1,gpu:a100:2(S:0)", [{"/dev/nvidia2"}, {"/dev/nvidia1"}, {"/dev/nvidia0"}]),
        (TWO_TYPES, "gpu:3", None),
        ("Name=gpu Type=a File=/dev/nvidia[0-1]", "gpu:2", [{"/dev/nvidia0"}, {"/dev/nvidia1"}]),
        (
            "NodeName=n2 Name=gpu File=/dev/nvidia7\nName=nic File=/dev/x\nName=gpu File=/dev/nvidia0",
            "gpu:1",
            [{"/dev/nvidia0"}],
        ),
        (
            MIG,
            "gpu:m:1,gpu:a:1",
            [{"/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"}, {"/dev/nvidia1"}],
        ),
        ("AutoDetect=nvml\nName=gpu File=/dev/nvidia0", "gpu:1", None),
        ("AutoDetect=nvml\nNodeName=n1 AutoDetect=off Name=gpu File=/dev/nvidia0", "gpu:1", [{"/dev/nvidia0"}]),
        ("NodeName=n2 AutoDetect=nvml\nName=gpu File=/dev/nvidia0", "gpu:1", [{"/dev/nvidia0"}]),
        ("Name=gpu Count=2", "gpu:2", None),
        ("Include other.conf", "gpu:1", None),
        ("", "", []),
    ],
)
def test_the_device_nodes_behind_the_numbers(text, node_gres, expected):
    found = gpu_numbers.numbered_files(text, "n1", node_gres)
    assert (found and list(found.values())) == expected or (found, expected) == ({}, [])
