# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory of a GPU in MiB."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.memory import mebibytes


def test_memory_is_rounded_as_nvidia_smi_rounds_it():
    """Bytes from an H200, and the output of its nvidia-smi: 616, 143156, 1 and 262143 MiB."""
    assert [mebibytes(644939776, up=True), mebibytes(150109880320, up=True)] == [616, 143156]
    assert [mebibytes(1703936), mebibytes(274876203008, up=True)] == [1, 262143]
    assert [mebibytes(150754820096), mebibytes(150754820096, up=True)] == [143771, 143771]
    assert [mebibytes(0), mebibytes(0, up=True)] == [0, 0]
