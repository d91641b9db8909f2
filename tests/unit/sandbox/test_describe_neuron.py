# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated chips of AWS Neuron are those that the collection reads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import gather_all_vendors
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "sandbox/simulator"))
import describe_neuron


def facts(tmp_path, *, loaded=True, **entry):
    functions, tree = describe_neuron.describe([{"vendor": "neuron", **entry}])
    host = Tree(tmp_path)
    part = tree["modules"]["neuron"]
    for one in functions:
        host.function(
            one["address"],
            f"0x{one['ids'][1]:04x}",
            vendor="0x1d0f",
            class_id="0x088000",
            driver=part["driver"] if loaded else None,
            numa_node=one["numa_node"],
        )
    if loaded:
        host.file("sys/module/neuron/version", "2.30.2.0\n")
        for path, text in part["tree"]["files"].items():
            host.file(path.lstrip("/"), text)
        for node in part["tree"]["nodes"]:
            host.file(node["path"].lstrip("/"))
    return gather_all_vendors.gather(dict, root=host.root, vendors=["neuron"])


@pytest.mark.parametrize("model", describe_neuron.MODELS)
def test_the_chips_are_read(tmp_path, model):
    found = facts(tmp_path, model=model, count=2)
    assert found["accelerator_vendors"]["neuron"]["state"] == "ready"
    assert [one["nodes"][0]["path"] for one in found["accelerators"]] == ["/dev/neuron0", "/dev/neuron1"]
    assert {one["model"] for one in found["accelerators"]} == {describe_neuron.MODELS[model]["name"]}


@pytest.mark.parametrize(
    ("health", "state"),
    [("ecc_errors", "degraded"), ("unhealthy", "degraded"), ("resetting", "degraded"), ("invalid", "lost")],
)
def test_the_health_of_the_first_chip(tmp_path, health, state):
    found = facts(tmp_path, model="Trn2", count=2, health=health)
    assert [one["health"]["state"] for one in found["accelerators"]] == [state, "ok"]


def test_without_the_module_only_pci_shows_the_chips(tmp_path):
    found = facts(tmp_path, model="Inf2", loaded=False)
    assert (found["accelerator_vendors"]["neuron"]["state"], found["accelerators"][0]["nodes"]) == ("no_driver", None)


@pytest.mark.parametrize("entry", [{"model": "Trn9"}, {"model": "Trn2", "health": "bad"}, {"model": "Trn2", "x": 1}])
def test_invalid_descriptions(entry):
    with pytest.raises(describe_neuron.NeuronError, match="unknown"):
        describe_neuron.describe([entry])
