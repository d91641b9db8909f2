# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests of container/nvidia/no_gpus_from_default_runtime.py."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.no_gpus_from_default_runtime import (
    no_access,
)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, {}),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, {}),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, {"NVIDIA_VISIBLE_DEVICES": "void"}),
        ({"CUDA_VERSION": "10.0"}, {"NVIDIA_VISIBLE_DEVICES": "void"}),
    ],
)
def test_no_access_disables_nvidias_runtime(env, expected):
    assert no_access(env).env == expected
