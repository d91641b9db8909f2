# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CDI specification of Gaudi's accelerators, from the tree of a host to the file."""

from __future__ import annotations

import json
import os
import stat

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    gather_all_vendors as accelerators_gather,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import (
    accelerator_writing,
    specification_document,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins import cdi_schema
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gaudi_trees import CARD, GaudiTree

RENDER = 992


@pytest.fixture
def tree(tmp_path, monkeypatch) -> GaudiTree:
    """A host whose nodes are character devices."""
    stat_of = os.stat

    def node_stat(path, **more):
        found = stat_of(path, **more)
        if not str(path).startswith(f"{tmp_path}/dev/") or not stat.S_ISREG(found.st_mode):
            return found
        values = list(found)
        values[0], values[5] = stat.S_IFCHR | 0o660, RENDER
        return os.stat_result(values)

    monkeypatch.setattr(specification_document.os, "stat", node_stat)
    return GaudiTree(tmp_path)


def apply(tree: GaudiTree, **params) -> dict:
    def gather_facts():
        return accelerators_gather.gather(dict, root=tree.root, vendors=["gaudi"])

    directory = f"{tree.root}/cdi"
    defaults = {
        "vendor": "gaudi",
        "state": "present",
        "cdi_kind": None,
        "path": f"{directory}/gpufleet-gaudi.json",
        "spec_dirs": [directory],
        "additional_gids": False,
    }
    return accelerator_writing.apply_state({**defaults, **params}, gather_facts, check_mode=False, root=tree.root)


def devices(tree: GaudiTree) -> dict[str, list[str]]:
    spec = json.loads((tree.path / "cdi/gpufleet-gaudi.json").read_text())
    cdi_schema.check(spec)
    assert spec["containerEdits"] == {}
    return {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]] for device in spec["devices"]
    }


def test_a_module_has_its_three_nodes_under_its_index_and_its_module_id(tree):
    tree.accelerator("0000:19:00.0", 5, 2)
    tree.accelerator("0000:1a:00.0", 2, 3)
    result = apply(tree)
    assert (result["changed"], result["kind"], result["cdi_version"]) == (True, "gpufleet-gaudi/gpu", "0.5.0")
    first = ["/dev/accel/accel5", "/dev/accel/accel_controlD5", "/dev/infiniband/uverbs5"]
    second = ["/dev/accel/accel2", "/dev/accel/accel_controlD2", "/dev/infiniband/uverbs2"]
    # Device 2 is the index of one accelerator and the module ID of the other.
    assert devices(tree) == {"5": first, "module-2": first, "2": second, "module-3": second, "all": [*first, *second]}
    assert not apply(tree)["changed"]


def test_unusable_modules_are_left_out(tree):
    tree.board(statuses={1: "Disabled", 2: "Needs reset", 3: "In reset"})
    (tree.path / "dev/accel/accel7").unlink()
    result = apply(tree)
    assert sorted(name for name in result["devices"] if name.startswith("module")) == [
        "module-0",
        "module-3",
        "module-5",
        "module-6",
        "module-7",
    ]
    assert {one["device"] for one in result["skipped"]} == {"module-1", "module-2", "module-4"}


def test_cards_are_named_by_their_address(tree):
    tree.accelerator("0000:19:00.0", 0, 0, CARD, uverbs=False)
    tree.accelerator("0000:5a:00.0", 1, 0, CARD, uverbs=False)
    assert apply(tree)["devices"] == ["0", "0000:19:00.0", "1", "0000:5a:00.0", "all"]


def test_the_specification_of_the_dra_driver_is_left_alone(tree):
    tree.accelerator("0000:19:00.0", 0, 4)
    content = {"cdiVersion": "0.6.0", "kind": "intel.com/gaudi", "devices": [{"name": "0000-19-00-0-0x1060"}]}
    other = tree.file("cdi/intel.com-gaudi.yaml", json.dumps(content))
    before = other.read_bytes()
    assert (apply(tree)["maintained_by"], other.read_bytes()) == ([], before)
    assert apply(tree, state="absent")["changed"]
    assert (os.listdir(tree.path / "cdi"), other.read_bytes()) == (["intel.com-gaudi.yaml"], before)


def test_the_default_file_and_kind():
    params = {"vendor": "gaudi", "path": None, "cdi_kind": None}
    assert accelerator_writing.path_of(params) == "/var/run/cdi/gpufleet-gaudi.json"
    assert accelerator_writing.kind_of(params) == "gpufleet-gaudi/gpu"
