# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's messages about a module."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.observe.amd_gaudi_neuron import failures_in_kernel_log


def test_the_journal_has_messages_that_the_kernel_dropped():
    line = "[    9.2] amdgpu 0000:05:00.0: Direct firmware load for amdgpu/gc_9_4_3_mec.bin failed with error -2"
    answers = {"dmesg": (0, "[99.1] other\n", ""), "journalctl": (0, f"{line}\n", "")}
    assert failures_in_kernel_log.read("amdgpu", lambda argv: answers[argv[0]]) == [line]
