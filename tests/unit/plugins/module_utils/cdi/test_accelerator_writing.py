# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CDI specification of AMD's GPUs and AWS Neuron's chips, from the tree of a host to the file."""

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
from ansible_collections.gpufleet.hosts.tests.unit.plugins.amd_trees import AmdTree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.neuron_trees import INF1, TRN2, NeuronTree

ID, PARTITIONED = "e3a9c0ffee123456", "00000000000000b2"
RENDER, VIDEO = 992, 44


class Host:
    """A host on which the module runs. `os.stat` reports its nodes as character devices of the host's groups."""

    def __init__(self, root, monkeypatch, tree=AmdTree) -> None:
        self.tree = tree(root)
        self.vendor = "amd" if tree is AmdTree else "neuron"
        self.path = root / f"run/cdi/gpufleet-{self.vendor}.json"
        self.directories = [str(root / "etc/cdi"), str(root / "run/cdi")]
        self.gathered = 0
        (root / "run").mkdir()
        (root / "etc/cdi").mkdir(parents=True)
        stat_of = os.stat

        def node_stat(path, **more):
            found = stat_of(path, **more)
            if not str(path).startswith(f"{root}/dev/") or not stat.S_ISREG(found.st_mode):
                return found
            values = list(found)
            values[0], values[5] = stat.S_IFCHR | 0o660, VIDEO if "/card" in str(path) else RENDER
            return os.stat_result(values)

        monkeypatch.setattr(specification_document.os, "stat", node_stat)

    def run(self, check=False, **params) -> dict:
        def gather_facts():
            self.gathered += 1
            return accelerators_gather.gather(dict, root=self.tree.root, vendors=[self.vendor])

        defaults = {
            "vendor": self.vendor,
            "state": "present",
            "cdi_kind": None,
            "path": str(self.path),
            "spec_dirs": self.directories,
            "additional_gids": False,
        }
        return accelerator_writing.apply_state({**defaults, **params}, gather_facts, check, self.tree.root)

    def devices(self) -> dict[str, list[str]]:
        spec = json.loads(self.path.read_text())
        return {
            device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
            for device in spec["devices"]
        }


@pytest.fixture
def host(tmp_path, monkeypatch) -> Host:
    made = Host(tmp_path, monkeypatch)
    made.tree.gpu("0000:05:00.0", 128, unique_id=ID, mode="SPX")
    return made


def test_a_device_has_its_own_nodes_with_the_groups_of_the_host(host):
    host.tree.gpu("0000:15:00.0", 129, unique_id="00000000000000a1")
    result = host.run()
    assert result["changed"] and result["kind"] == "gpufleet-amd/gpu" and result["cdi_version"] == "0.5.0"
    assert result["devices"] == ["0", ID, "1", "00000000000000a1", "all"]
    first, second = ["/dev/kfd", "/dev/dri/renderD128", "/dev/dri/card1"], ["/dev/dri/renderD129", "/dev/dri/card2"]
    assert host.devices() == {
        "0": first,
        ID: first,
        "1": ["/dev/kfd", *second],
        "00000000000000a1": ["/dev/kfd", *second],
        "all": [*first, *second],
    }
    spec = json.loads(host.path.read_text())
    cdi_schema.check(spec)
    assert spec["devices"][0]["containerEdits"] == {
        "deviceNodes": [
            {"path": "/dev/kfd", "fileMode": 0o660, "permissions": "rwm", "gid": RENDER},
            {"path": "/dev/dri/renderD128", "fileMode": 0o660, "permissions": "rwm", "gid": RENDER},
            {"path": "/dev/dri/card1", "fileMode": 0o660, "permissions": "rwm", "gid": VIDEO},
        ]
    }
    assert spec["containerEdits"] == {}


def test_the_second_run_changes_nothing(host):
    checked = host.run(check=True)
    assert checked["changed"] and not host.path.parent.exists()
    assert host.run() == checked
    inode = host.path.stat().st_ino
    again = host.run()
    assert (again["changed"], host.path.stat().st_ino) == (False, inode)
    assert again["diff"]["before"] == again["diff"]["after"]


def test_the_groups_are_added_on_request(host):
    assert host.run(additional_gids=True)["cdi_version"] == "0.7.0"
    spec = json.loads(host.path.read_text())
    cdi_schema.check(spec)
    assert spec["devices"][0]["containerEdits"]["additionalGids"] == [VIDEO, RENDER]


def test_a_repartitioned_gpu_makes_the_specification_stale(host):
    host.run()
    base = host.tree.path / "sys/class/kfd/kfd/topology/nodes/2/properties"
    base.unlink()
    (host.tree.path / "sys/bus/pci/devices/0000:05:00.0/drm/renderD128").rmdir()
    (host.tree.path / "sys/bus/pci/devices/0000:05:00.0/drm/card1").rmdir()
    host.tree.gpu("0000:27:00.0", 130, unique_id=PARTITIONED, mode="CPX", partitions=2)
    checked = host.run(check=True)
    assert checked["changed"]
    host.run()
    assert host.devices() == {
        "0": ["/dev/kfd", "/dev/dri/renderD130", "/dev/dri/card3"],
        f"{PARTITIONED}-0": ["/dev/kfd", "/dev/dri/renderD130", "/dev/dri/card3"],
        "1": ["/dev/kfd", "/dev/dri/renderD131", "/dev/dri/card4"],
        f"{PARTITIONED}-1": ["/dev/kfd", "/dev/dri/renderD131", "/dev/dri/card4"],
        "all": ["/dev/kfd", "/dev/dri/renderD130", "/dev/dri/card3", "/dev/dri/renderD131", "/dev/dri/card4"],
    }


def test_the_file_of_amd_is_never_changed(host):
    content = {"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": [{"name": "0"}]}
    amd = host.tree.file("etc/cdi/amd.json", json.dumps(content))
    before = (amd.read_bytes(), amd.stat().st_mtime_ns)
    result = host.run()
    assert (result["changed"], result["maintained_by"], result["warnings"]) == (True, [], [])
    same_kind = host.run(cdi_kind="amd.com/gpu", path=str(host.path.with_name("other.json")))
    assert (same_kind["devices"], same_kind["changed"]) == ([], False)
    assert same_kind["maintained_by"][0]["path"] == str(amd)
    assert same_kind["maintained_by"][0]["missing_devices"] == [ID, "all"]
    assert "leaves it unchanged" in same_kind["warnings"][0]
    for state in ("present", "absent"):
        with pytest.raises(accelerator_writing.ERRORS, match="was not created by this module") as raised:
            host.run(path=str(amd), state=state)
        assert "take_over" not in str(raised.value)
    host.run(state="absent")
    assert (amd.read_bytes(), amd.stat().st_mtime_ns) == before


def test_removal_needs_no_devices(host):
    host.run()
    host.gathered = 0
    assert host.run(check=True, state="absent")["changed"]
    assert host.path.exists()
    assert host.run(state="absent")["changed"]
    assert not host.run(state="absent")["changed"]
    assert (host.gathered, os.listdir(host.path.parent)) == (0, [])


def test_a_lost_gpu_and_a_missing_node_are_left_out(host):
    host.tree.gpu("0000:15:00.0", 129, unique_id="00000000000000a1")
    lost = host.tree.gpu("0000:25:00.0", 130, unique_id="00000000000000a2")
    host.tree.file(f"{lost}/config", b"\xff" * 64)
    (host.tree.path / "dev/dri/renderD129").unlink()
    result = host.run()
    assert result["devices"] == ["0", ID, "all"]
    assert [(one["device"], one["reason"].split()[0]) for one in result["skipped"]] == [
        ("00000000000000a1", "/dev/dri/renderD129"),
        ("00000000000000a2", "the"),
    ]
    (host.tree.path / "dev/dri/renderD128").unlink()
    with pytest.raises(accelerator_writing.ERRORS, match=r"would contain no device .*renderD128 does not exist"):
        host.run()


def test_gpus_with_the_same_id_are_not_described(host):
    host.tree.gpu("0000:15:00.0", 129, unique_id=ID)
    with pytest.raises(accelerator_writing.ERRORS, match="state is error: Several devices have the same stable ID"):
        host.run()
    assert not host.path.exists()


def test_a_gpu_without_unique_id_is_named_by_its_address(tmp_path, monkeypatch):
    host = Host(tmp_path, monkeypatch)
    host.tree.gpu("0000:0b:00.0", 128, "0x744c")
    assert host.run()["devices"] == ["0", "0000:0b:00.0", "all"]


def test_a_node_that_is_no_device_is_an_error(host):
    (host.tree.path / "dev/kfd").unlink()
    (host.tree.path / "dev/kfd").mkdir()
    with pytest.raises(accelerator_writing.ERRORS, match="/dev/kfd is not a character device"):
        host.run()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"cdi_kind": "amd"}, "Use the form VENDOR/CLASS"),
        ({"cdi_kind": "a/b/c"}, "Use the form VENDOR/CLASS"),
        ({"cdi_kind": "1amd/gpu"}, "vendor=1amd is not a valid vendor"),
        ({"cdi_kind": "amd/g.pu"}, "class=g.pu is not a valid class"),
        ({"path": "/srv/gpufleet.json"}, "is not in spec_dirs"),
        ({"path": "relative.json"}, "is not an absolute path"),
    ],
)
def test_invalid_options_are_refused_before_the_host_is_read(host, params, words):
    with pytest.raises(accelerator_writing.ERRORS, match=words):
        host.run(**params)
    assert host.gathered == 0


def test_the_default_file_and_kind():
    params = {"vendor": "amd", "path": None, "cdi_kind": None}
    assert accelerator_writing.path_of(params) == "/var/run/cdi/gpufleet-amd.json"
    assert accelerator_writing.kind_of(params) == "gpufleet-amd/gpu"


def test_the_marker_names_the_module(host):
    host.run()
    marker = host.path.with_name(".gpufleet-amd.json.gpufleet").read_text()
    assert marker.startswith("The Ansible module gpufleet.hosts.accelerator_cdi_spec manages gpufleet-amd.json ")


def test_a_neuron_chip_has_only_its_own_node(tmp_path, monkeypatch):
    host = Host(tmp_path, monkeypatch, NeuronTree)
    host.tree.host(TRN2, 2)
    result = host.run()
    assert (result["kind"], result["warnings"]) == ("gpufleet-neuron/gpu", [])
    assert host.devices() == {
        "0": ["/dev/neuron0"],
        "00a1b2c3d4e5f600": ["/dev/neuron0"],
        "1": ["/dev/neuron1"],
        "00a1b2c3d4e5f601": ["/dev/neuron1"],
        "all": ["/dev/neuron0", "/dev/neuron1"],
    }
    spec = json.loads(host.path.read_text())
    cdi_schema.check(spec)
    # The major number of the driver is another one after each load.
    assert all("major" not in one["containerEdits"]["deviceNodes"][0] for one in spec["devices"])
    assert host.run()["changed"] is False


def test_chips_with_a_gap_have_no_device_for_all(tmp_path, monkeypatch):
    host = Host(tmp_path, monkeypatch, NeuronTree)
    addresses = host.tree.bus(INF1, 3)
    for number in range(3):
        host.tree.chip(INF1, reset="2\n" if number == 1 else "1\n")
    host.tree.log(addresses)
    result = host.run()
    assert result["devices"] == ["0", "2"]
    assert result["warnings"] == ["the devices 0, 2 are not consecutive, so the specification has no device named all."]
    assert [one["device"] for one in result["skipped"]] == [addresses[1]]
