# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels of nodes from the facts of their hosts."""

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


def test_labels_of_partitioned_gpus_of_amd_count_the_gpus() -> None:
    assert node_labels.labels(amd_partitions(4)) == {f"{P}amd.count": "2", f"{P}amd.model": "MI300X"}
    assert node_labels.labels([gpu("amd"), *amd_partitions(4)])[f"{P}amd.count"] == "3"
