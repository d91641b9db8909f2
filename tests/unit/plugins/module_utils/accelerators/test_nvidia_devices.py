# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's devices in the neutral schema: MIG devices, GPUs that only PCI shows, nodes, links.

neutral_facts.py compares the values with those of nvidia_gpu_facts for the hosts of test_gather_all_vendors.py, and
here for every simulated host of the scenarios and of the demo, and for every model of the simulator.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    nvidia_devices,
    sysfs_refusals,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather as facts_gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import pci_functions
from ansible_collections.gpufleet.hosts.tests.unit.plugins import gpu_hosts, neutral_facts
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.simulated_nvml import Simulated
from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import describe

VERSION = "580.95.05"
ROOT = Path(__file__).resolve().parents[5]


def hardware_of_inventories() -> dict[str, dict]:
    """Return the hardware of every simulated host with NVIDIA's GPUs, by the names of its file and of the host."""
    found = {}

    def search(node, file: str, name: str) -> None:
        if isinstance(node, dict):
            hardware = node.get("sandbox_hardware")
            if isinstance(hardware, dict) and hardware.get("gpus"):
                found[f"{file}:{name}"] = hardware
            for key, value in node.items():
                search(value, file, str(key))

    for path in (ROOT / "tests/sandbox/inventory.yml", *sorted(ROOT.glob("molecule/*/inventory/*.yml"))):
        search(yaml.safe_load(path.read_text(encoding="utf-8")), str(path.relative_to(ROOT)), "all")
    return found


HOSTS = hardware_of_inventories()


@pytest.fixture
def host(tmp_path, monkeypatch):
    def make(description: dict) -> tuple[Tree, dict]:
        tree = Tree(tmp_path / "root")
        simulated = Simulated(tmp_path, {"driver": {"version": VERSION}, **description})
        monkeypatch.setenv("GPUSIM_STATE", str(simulated.lab.state))
        for function in simulated.lab.host["pci"]:
            for name, value in function["files"].items():
                tree.file(f"sys/bus/pci/devices/{function['address']}/{name}", value + "\n")
            tree.link(f"sys/bus/pci/devices/{function['address']}/driver", "../../../../bus/pci/drivers/nvidia")
        tree.loaded(VERSION)
        return tree, facts_gather.gather(frozenset(nvidia_devices.SUBSETS), root=tree.root)["facts"]

    return make


def convert(tree: Tree, facts: dict):
    return nvidia_devices.convert(facts, sysfs_refusals.SysfsTree(tree.root))


def test_the_subsets_give_a_value_for_every_key(host):
    tree, facts = host({"gpus": [{"model": "H100-SXM5-80GB", "count": 2}], "nvswitches": 4})
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1", "dri/renderD128", "dri/card0"):
        tree.file(f"dev/{name}")
    for name in ("renderD128", "card0"):
        tree.file(f"sys/bus/pci/devices/{facts['nvidia_gpus'][0]['pci_bus_id']}/drm/{name}")
    (first, second), state = convert(tree, facts)
    assert neutral_facts.differences(facts, tree.root) == []
    assert [key for key, value in first.items() if value is None] == ["cores"]
    assert None not in first["errors"].values()
    assert [(node["path"], node["role"]) for node in first["nodes"]] == [
        ("/dev/nvidiactl", "control"),
        ("/dev/nvidia-uvm", "control"),
        ("/dev/nvidia0", "device"),
        ("/dev/dri/card0", "card"),
        ("/dev/dri/renderD128", "render"),
    ]
    assert first["links"]["fabric"] is not None
    assert first["links"]["fabric"] == second["links"]["fabric"]
    assert (first["stable_id_kind"], state["state"], state["devices"]) == ("uuid", "ready", 2)
    json.dumps(first)


def test_the_hosts_of_the_scenarios_are_found():
    assert {"tests/sandbox/inventory.yml:sim-a100", "molecule/slurm/inventory/hosts.yml:slurm-b"} <= set(HOSTS)


@pytest.mark.parametrize("name", HOSTS)
def test_every_simulated_host_has_equal_facts(host, name):
    tree, facts = host(HOSTS[name])
    assert facts["nvidia_gpus"] or facts["nvidia_gpu_state"] != "ready"
    assert neutral_facts.differences(facts, tree.root) == []


@pytest.mark.parametrize("model", describe.models())
def test_every_model_has_equal_facts(host, model):
    tree, facts = host({"gpus": [{"model": model, "count": 2}]})
    assert (facts["nvidia_gpu_state"], len(facts["nvidia_gpus"])) == ("ready", 2)
    assert neutral_facts.differences(facts, tree.root) == []


def test_direct_links_name_the_other_gpu(host):
    tree, facts = host({"gpus": [{"model": "V100-SXM2-16GB", "count": 2}]})
    first, second = convert(tree, facts)[0]
    assert (first["links"]["peers"], second["links"]["peers"]) == ([second["stable_id"]], [first["stable_id"]])


def test_mig_devices_follow_their_gpu(host):
    tree, facts = host({"gpus": [{"model": "A100-SXM4-40GB", "mig": ["3g.20gb", "1g.5gb"]}, {"model": "T4"}]})
    tree.file("proc/driver/nvidia-caps/mig-minors", "gpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n")
    for name in ("nvidiactl", "nvidia0", "nvidia-caps/nvidia-cap12"):
        tree.file(f"dev/{name}")
    gpu, large, _small, t4 = convert(tree, facts)[0]
    assert (gpu["index"], large["index"], t4["index"]) == (0, None, 1)
    assert large["partition"] == {"mode": "3g.20gb", "id": 0, "parent": gpu["stable_id"]}
    assert gpu["partition"] == {"mode": "mig", "id": None, "parent": None}
    assert t4["partition"]["mode"] is None
    assert [(node["path"], node["gid"] is None) for node in large["nodes"]] == [
        ("/dev/nvidiactl", False),
        ("/dev/nvidia0", False),
        ("/dev/nvidia-caps/nvidia-cap12", False),
        ("/dev/nvidia-caps/nvidia-cap13", True),
    ]
    assert large["power_w"] is None and "MIG" in large["unread"]["power_w"]


@pytest.mark.parametrize(("health", "pending"), [(None, False), ("remap_pending", True), ("retirement_pending", True)])
def test_memory_that_waits_for_a_reset_is_pending(host, health, pending):
    model = "T4" if health == "retirement_pending" else "A100-SXM4-80GB"
    tree, facts = host({"gpus": [{"model": model, **({"health": health} if health else {})}]})
    assert convert(tree, facts)[0][0]["errors"]["pending"] is pending


def test_a_gpu_that_nvml_does_not_show_is_a_device(host):
    tree, facts = host({"gpus": [{"model": "T4"}]})
    for address, driver in (("0000:5e:00.0", "nvidia"), ("0000:5f:00.0", "vfio-pci"), ("0000:60:00.0", "nvidia")):
        tree.function(address, "0x1eb8", driver=driver)
    tree.function("0000:61:00.0", "0x1eb8")
    tree.file("proc/driver/nvidia/gpus/0000:60:00.0/information", "GPU Excluded:\t Yes\n")
    facts["nvidia_pci_devices"] = pci_functions.scan(tree.root)
    devices, state = convert(tree, facts)
    found = {one["pci_address"]: one["health"]["state"] for one in devices[1:]}
    assert found == {"0000:5e:00.0": "lost", "0000:61:00.0": "unknown"}
    assert {one["index"] for one in devices[1:]} == {None}
    assert {one["pci_address"]: one["reason"].split()[0] for one in state["skipped"]} == {
        "0000:5f:00.0": "reserved",
        "0000:60:00.0": "excluded",
    }


def test_a_gpu_without_address_could_be_any_function(host):
    tree, facts = host({"gpus": [{"model": "T4", "count": 2}]})
    facts["nvidia_gpus"][1].update(pci_bus_id=None, uuid=None)
    devices = convert(tree, facts)[0]
    assert [(one["index"], one["stable_id"] is None) for one in devices] == [(0, False), (1, True)]


def test_facts_with_few_keys_are_converted(tmp_path):
    gpu = {**gpu_hosts.gpu(0), "architecture": "ampere"}
    facts = {**gpu_hosts.facts([gpu]), "nvidia_pci_devices": []}
    assert neutral_facts.differences(facts, str(tmp_path)) == []


def test_two_gpus_with_the_same_uuid_are_an_error(tmp_path):
    gpus = [{**gpu_hosts.gpu(index), "architecture": "ampere", "uuid": gpu_hosts.UUIDS[0]} for index in (0, 1)]
    facts = {**gpu_hosts.facts(gpus), "nvidia_pci_devices": []}
    state = nvidia_devices.convert(facts, sysfs_refusals.SysfsTree(str(tmp_path)))[1]
    assert (state["state"], gpu_hosts.UUIDS[0] in state["reason"]) == ("error", True)


def test_pci_and_nvml_name_a_generation_alike(host):
    models = ("V100-SXM2-16GB", "T4", "A100-SXM4-40GB", "L40S", "H100-SXM5-80GB", "GB200")
    tree, facts = host({"gpus": [{"model": model} for model in models]})
    without = {**facts, "nvidia_gpus": [], "nvidia_gpu_state": "driver_not_loaded"}
    by_pci = {one["pci_address"]: one["generation"] for one in convert(tree, without)[0]}
    assert by_pci == {one["pci_address"]: one["generation"] for one in convert(tree, facts)[0]}
    assert len(set(by_pci.values())) == 6
