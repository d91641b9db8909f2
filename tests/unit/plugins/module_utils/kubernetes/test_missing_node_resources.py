# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether nodes offer the devices of their hosts."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import missing_node_resources
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.kubernetes.test_node_labels import (
    amd_partitions,
    gpu,
    mig,
    node,
)


def test_host_that_is_no_node_is_named() -> None:
    (text,) = missing_node_resources.shortages([node()], {"n2": [gpu()]}, ["nvidia"])
    assert "n2 is no node" in text


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("8", 8), (8, 8), ("0", 0), ("1k", 1000), ("1Ki", 1024), ("2M", 2 * 10**6), ("1Gi", 2**30), ("1E", 10**18),
        ("1e3", 1000), ("1E3", 1000), ("1.5k", 1500), ("+4", 4), ("2000m", 2), ("1500m", 2), ("3000000u", 3),
        ("5000000000n", 5), (None, 0), ("", 0), ("x", 0), ("4.k", 4000), ("1 k", 0), ("\u00b2", 0), ("9" * 5000, 0),
        ("1e999999999", 0),
    ],
)  # fmt: skip
def test_quantity_of_kubernetes(value: t.Any, number: int) -> None:
    assert missing_node_resources.quantity(value) == number


@pytest.mark.parametrize(
    ("devices", "offered", "vendors", "replicas", "words"),
    [
        ([gpu(), gpu()], {"nvidia.com_gpu": "2"}, ["nvidia"], 1, None),
        ([gpu(), gpu()], {"nvidia.com_gpu": "8"}, ["nvidia"], 4, None),
        ([gpu(), gpu()], {"nvidia.com_gpu.shared": "8"}, ["nvidia"], 4, None),
        # The plugin can have offered another resource before, which then stays with 0.
        ([gpu(), gpu()], {"nvidia.com_gpu": "0", "nvidia.com_gpu.shared": "8"}, ["nvidia"], 4, None),
        ([gpu(), gpu()], {"nvidia.com_gpu": "8", "nvidia.com_gpu.shared": "0"}, ["nvidia"], 4, None),
        (
            [gpu("neuron")],
            {"aws.amazon.com_neuron": "0", "aws.amazon.com_neurondevice": "1"},
            ["neuron"],
            1,
            None,
        ),
        (
            [gpu()],
            {"nvidia.com_gpu.shared": "0"},
            ["nvidia"],
            4,
            "offers 0 of nvidia.com/gpu.shared, not 4. Read the log",
        ),
        ([gpu(), gpu()], {"nvidia.com_gpu": "1k"}, ["nvidia"], 500, None),
        ([gpu(), gpu()], {"nvidia.com_gpu": "1"}, ["nvidia"], 1, "offers 1 of nvidia.com/gpu, not 2. Read the log"),
        ([gpu()], {}, ["nvidia"], 1, "offers 0 of nvidia.com/gpu, not 1. No plugin registered it"),
        ([gpu()], {}, ["amd"], 1, None),
        ([gpu("amd")], {"amd.com_gpu": "1"}, ["amd", "nvidia"], 4, None),
        ([], {"nvidia.com_gpu": "1"}, ["nvidia"], 1, "has 0 devices of nvidia"),
        ([gpu("neuron")], {"aws.amazon.com_neurondevice": "1"}, ["neuron"], 1, None),
        ([gpu("gaudi")] * 8, {"habana.ai_gaudi": "7"}, ["gaudi"], 1, "offers 7 of habana.ai/gaudi, not 8"),
        # Partitions of AMD's GPUs: strategies single and mixed, and a node with two modes.
        (amd_partitions(4), {"amd.com_gpu": "4"}, ["amd"], 1, None),
        (amd_partitions(4), {"amd.com_cpx_nps4": "4"}, ["amd"], 1, None),
        ([gpu("amd"), *amd_partitions(4)], {"amd.com_spx_nps1": "1", "amd.com_cpx_nps1": "4"}, ["amd"], 1, None),
        (
            amd_partitions(4),
            {"amd.com_cpx_nps4": "2"},
            ["amd"],
            1,
            "the host has 4 devices of amd, but the node offers 2",
        ),
        ([gpu("amd")], {"amd.com_gpu": "1", "amd.com_xilinx": "1"}, ["amd"], 1, None),
        # MIG strategies single, mixed and none.
        ([gpu(), gpu(number=1), mig(0, 1), mig(0, 2)], {"nvidia.com_gpu": "3"}, ["nvidia"], 1, None),
        (
            [gpu(), gpu(number=1), mig(0, 1), mig(0, 2)],
            {"nvidia.com_gpu": "1", "nvidia.com_mig-3g.40gb": "2"},
            ["nvidia"],
            1,
            None,
        ),
        ([gpu(), gpu(number=1), mig(0, 1), mig(0, 2)], {"nvidia.com_gpu": "2"}, ["nvidia"], 1, None),
        (
            [gpu(), mig(0, 1), mig(0, 2), mig(0, 3)],
            {"nvidia.com_mig-1g.10gb": "2"},
            ["nvidia"],
            1,
            "3 MIG devices, but",
        ),
    ],
)
def test_offered_devices_are_compared_with_the_facts(
    devices: t.Any, offered: dict[str, str], vendors: list[str], replicas: int, words: str | None
) -> None:
    found = missing_node_resources.shortages([node(**offered)], {"n1": devices}, vendors, replicas)
    assert len(found) == (words is not None), found
    assert words is None or words in found[0]
