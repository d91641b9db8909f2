# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated Gaudi accelerators are those that the collection reads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import gather_all_vendors
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "sandbox/simulator"))
import describe_gaudi


def facts(tmp_path, **entry):
    functions, tree = describe_gaudi.describe([{"vendor": "gaudi", **entry}])
    host = Tree(tmp_path)
    part = tree["modules"]["habanalabs"]
    for one in functions:
        host.function(
            one["address"],
            f"0x{one['ids'][1]:04x}",
            vendor="0x1da3",
            class_id="0x120000",
            driver=part["driver"],
            numa_node=one["numa_node"],
        )
    host.file("sys/module/habanalabs/version", "1.23.0-0abc123\n")
    for path, text in part["tree"]["files"].items():
        host.file(path.lstrip("/"), text)
    for path in part["tree"]["directories"]:
        (host.path / path.lstrip("/")).mkdir(parents=True)
    for node in part["tree"]["nodes"]:
        host.file(node["path"].lstrip("/"))
    return gather_all_vendors.gather(dict, root=host.root, vendors=["gaudi"])


@pytest.mark.parametrize("model", describe_gaudi.MODELS)
def test_the_accelerators_are_read(tmp_path, model):
    found = facts(tmp_path, model=model, count=8)
    assert found["accelerator_vendors"]["gaudi"]["state"] == "ready"
    first = found["accelerators"][0]
    is_module = describe_gaudi.MODELS[model]["module"]
    assert (first["stable_id"], first["index"]) == ("module-0" if is_module else "0000:19:00.0", 3)
    assert (first["model"], len(first["nodes"])) == (describe_gaudi.MODELS[model]["card"], 3 if is_module else 2)
    assert all(node["gid"] is not None for one in found["accelerators"] for node in one["nodes"])


def test_the_status_of_one_module(tmp_path):
    found = facts(tmp_path, model="Gaudi3", count=8, status="Disabled", status_of=5)
    assert [one["stable_id"] for one in found["accelerators"] if one["health"]["state"] != "ok"] == ["module-5"]


@pytest.mark.parametrize(
    "entry", [{"model": "Gaudi9"}, {"model": "Gaudi3", "status": "bad"}, {"model": "Gaudi3", "x": 1}]
)
def test_invalid_descriptions(entry):
    with pytest.raises(describe_gaudi.GaudiError, match="unknown"):
        describe_gaudi.describe([entry])
