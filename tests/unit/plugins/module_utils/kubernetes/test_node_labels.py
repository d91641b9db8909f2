# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels of nodes from the facts of their hosts, and the devices that nodes offer."""

from __future__ import annotations

import json
import re
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import node_labels

P = node_labels.PREFIX


def gpu(vendor: str = "nvidia", number: int = 0, **more: t.Any) -> dict[str, t.Any]:
    values = {"kind": "gpu", "model": "NVIDIA H100 80GB HBM3", "memory_total_mib": 81559, "stable_id": f"GPU-{number}"}
    return dict(schema.device(vendor, **{**values, **more}))


def mig(parent: int, number: int) -> dict[str, t.Any]:
    return gpu(stable_id=f"MIG-{number}", partition=schema.partition("3g.40gb", number, f"GPU-{parent}"))


def amd_partitions(number: int) -> list[dict[str, t.Any]]:
    """Return partitions of AMD's GPUs, two of each. The GPUs themselves are no devices."""
    return [
        gpu("amd", model="MI300X", stable_id=f"P{one}", partition=schema.partition("cpx", one % 2, f"A{one // 2}"))
        for one in range(number)
    ]


def node(labels: dict[str, str] | None = None, owned: t.Any = None, **allocatable: t.Any) -> dict[str, t.Any]:
    annotations = {node_labels.OWNED: owned if isinstance(owned, str) else json.dumps(owned)} if owned else {}
    return {
        "metadata": {"name": "n1", "labels": labels, "annotations": annotations},
        "status": {"allocatable": {name.replace("_", "/", 1): value for name, value in allocatable.items()}},
    }


@pytest.mark.parametrize(
    "text",
    ["NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-16GB (x)", "-a-", "ü", "x" * 80, "a." + "-" * 70 + "b", "1.5_2"],
)
def test_every_label_is_valid(text: str) -> None:
    found = node_labels.label_value(text)
    assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", found)


def test_labels_of_two_vendors_without_partitions() -> None:
    devices = [gpu(number=0), gpu(number=1), mig(1, 7), gpu("amd", model=None, memory_total_mib=None)]
    assert node_labels.labels(devices) == {
        f"{P}nvidia.count": "2",
        f"{P}nvidia.model": "NVIDIA-H100-80GB-HBM3",
        f"{P}nvidia.memory-mib": "81559",
        "nvidia.com/gpu.present": "true",
        f"{P}amd.count": "1",
    }
    assert node_labels.labels([gpu(), gpu(model="NVIDIA A100")])[f"{P}nvidia.model"] == "mixed"


def applied(seen: dict[str, t.Any], patch: dict[str, t.Any]) -> dict[str, t.Any]:
    for place in ("labels", "annotations"):
        both = {**(seen["metadata"][place] or {}), **patch[place]}
        seen["metadata"][place] = {name: value for name, value in both.items() if value is not None}
    return seen


def test_labels_come_and_go_without_those_of_others() -> None:
    seen = node({"nvidia.com/gpu.present": "mine", "zone": "a"})
    (patch,) = node_labels.patches([seen], {"n1": [gpu()]})["patches"]
    applied(seen, patch)
    assert seen["metadata"]["labels"]["nvidia.com/gpu.present"] == "mine"
    assert seen["metadata"]["labels"][f"{P}nvidia.count"] == "1"
    assert node_labels.patches([seen], {"n1": [gpu()]})["patches"] == []
    (patch,) = node_labels.patches([seen], {"n1": [gpu("amd")]})["patches"]
    applied(seen, patch)
    assert f"{P}nvidia.count" not in seen["metadata"]["labels"]
    (patch,) = node_labels.patches([seen], {"n1": None})["patches"]
    applied(seen, patch)
    assert seen["metadata"]["labels"] == {"nvidia.com/gpu.present": "mine", "zone": "a"}
    assert seen["metadata"]["annotations"] == {}
    assert node_labels.patches([seen], {"n1": None})["patches"] == []


@pytest.mark.parametrize("owned", ["{", "5", '[1, "zone"]'])
def test_record_that_somebody_broke_removes_no_label_of_others(owned: str) -> None:
    seen = node({"other": "x"}, owned)
    (patch,) = node_labels.patches([seen], {"n1": None})["patches"]
    assert patch["labels"] == {}


def test_host_that_is_no_node_is_named() -> None:
    assert node_labels.patches([node()], {"n2": [gpu()]}) == {"patches": [], "missing": ["n2"]}
    (text,) = node_labels.shortages([node()], {"n2": [gpu()]}, ["nvidia"])
    assert "n2 is no node" in text


def test_labels_of_partitioned_gpus_of_amd_count_the_gpus() -> None:
    assert node_labels.labels(amd_partitions(4)) == {f"{P}amd.count": "2", f"{P}amd.model": "MI300X"}
    assert node_labels.labels([gpu("amd"), *amd_partitions(4)])[f"{P}amd.count"] == "3"


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
    assert node_labels.quantity(value) == number


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
    found = node_labels.shortages([node(**offered)], {"n1": devices}, vendors, replicas)
    assert len(found) == (words is not None), found
    assert words is None or words in found[0]
