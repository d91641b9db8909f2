# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of accelerators against the answers of EC2's API that moto contains."""

from __future__ import annotations

import typing as t

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from ansible_collections.gpufleet.hosts.plugins.module_utils.aws import instance_families

# The API states 512 GiB for a device, but the architecture pages of Neuron 96 GiB.
WRONG_MEMORY = ("trn2.3xlarge", "trn2.48xlarge")
# The API states no accelerators. The architecture pages of Neuron state 16 Trainium2 devices.
WITHOUT_DEVICES = {"trn2u.48xlarge"}


def _device(answer: dict[str, t.Any]) -> dict[str, t.Any] | None:
    """Return the first accelerator of an answer."""
    for kind, devices in (
        ("GpuInfo", "Gpus"),
        ("NeuronInfo", "NeuronDevices"),
        ("InferenceAcceleratorInfo", "Accelerators"),
        ("FpgaInfo", "Fpgas"),
        ("MediaAcceleratorInfo", "Accelerators"),
    ):
        if kind in answer:
            return answer[kind][devices][0]
    return None


ACCELERATED = sorted(name for name, answer in INSTANCE_TYPES.items() if _device(answer))


def test_moto_has_the_answers() -> None:
    assert len(ACCELERATED) > 80
    assert len(INSTANCE_TYPES) - len(ACCELERATED) > 1000


@pytest.mark.parametrize("name", ACCELERATED)
def test_an_accelerated_type_is_as_ec2_describes_it(name: str) -> None:
    answer = INSTANCE_TYPES[name]
    device = _device(answer)
    found = instance_families.describe(name)
    # EC2 states 0 GPUs for a part of a GPU.
    assert (found["model"], found["count"]) == (device["Name"], device["Count"] or 1)
    assert found["architecture"] in answer["ProcessorInfo"]["SupportedArchitectures"]
    assert (found["fraction"] == 1) == (device["Count"] != 0)
    if name not in WRONG_MEMORY:
        assert found["memory_gib"] == round(device["MemoryInfo"]["SizeInMiB"] / 1024, 2)


def test_no_other_type_is_taken_for_an_accelerated_one() -> None:
    others = set(INSTANCE_TYPES) - set(ACCELERATED)
    assert {name for name in others if instance_families.describe(name)} == WITHOUT_DEVICES
