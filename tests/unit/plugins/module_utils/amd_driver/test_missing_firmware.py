# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The firmware files that the kernel did not find."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.amd_driver.missing_firmware import missing_firmware


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("amdgpu 0000:05:00.0: firmware: failed to load amdgpu/navi14_sos.bin (-2)", ["amdgpu/navi14_sos.bin"]),
        ('amdgpu 0000:05:00.0: amdgpu_vcn: Can\'t load firmware "amdgpu/navi10_vcn.bin"', ["amdgpu/navi10_vcn.bin"]),
        (
            'amdgpu 0000:05:00.0: Failed to get gpu_info firmware "amdgpu/arcturus_gpu_info.bin"',
            ["amdgpu/arcturus_gpu_info.bin"],
        ),
        ('gfx9: Failed to load firmware "amdgpu/vega20_pfp.bin"', ["amdgpu/vega20_pfp.bin"]),
        ("amdgpu 0000:05:00.0: firmware: direct-loading firmware amdgpu/navi14_sos.bin", []),
        ("amdgpu 0000:05:00.0: Fatal error during GPU init", []),
        ("amdgpu 0000:05:00.0: failed to load firmware for the display", []),
    ],
)
def test_the_messages_about_missing_firmware_are_known(line, files):
    assert missing_firmware([line, line]) == files
