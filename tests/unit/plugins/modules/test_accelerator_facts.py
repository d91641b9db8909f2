# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module accelerator_facts: its documentation, its options, and hosts without pynvml."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import module_call, schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather as facts_gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import module_call as facts_call
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import VENDORS
from ansible_collections.gpufleet.hosts.plugins.modules import accelerator_facts
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import module_options
from ansible_collections.gpufleet.hosts.tests.unit.plugins.amd_trees import FRU, MEMORY, MI210, RAS, SENSORS, AmdTree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.modules.test_nvidia_gpu_facts import deviations
from ansible_collections.gpufleet.hosts.tests.unit.plugins.simulated_nvml import Simulated

RETURNED = yaml.safe_load(accelerator_facts.RETURN)
DOCUMENTED = module_options.described(accelerator_facts.DOCUMENTATION)
OPTIONS = {name: option.get("default") for name, option in module_call.OPTIONS.items()}
ALL = frozenset(VENDORS)


def no_run(*_arguments):
    return 127, "", ""


@pytest.fixture
def rich_host(tmp_path, monkeypatch):
    """A host with GPUs of two vendors that have almost every value."""
    tree = AmdTree(tmp_path / "root", version="6.16.13")
    values = {**MEMORY, **SENSORS, **RAS, **FRU}
    tree.gpu("0000:05:00.0", 128, unique_id="e3a9c0ffee123456", mode="SPX", hive=7, attributes=values)
    tree.gpu("0000:27:00.0", 129, unique_id="00000000000000b2", mode="CPX", partitions=2, hive=7, attributes=values)
    tree.gpu("0000:63:00.0", 140, MI210, unique_id="00000000000000c3", attributes=values)
    description = {"driver": {"version": "580.95.05"}, "gpus": [{"model": "A100-SXM4-40GB", "mig": ["1g.5gb"]}]}
    simulated = Simulated(tmp_path, description)
    monkeypatch.setenv("GPUSIM_STATE", str(simulated.lab.state))
    tree.loaded("580.95.05")
    for function in simulated.lab.host["pci"]:
        for name, value in function["files"].items():
            tree.file(f"sys/bus/pci/devices/{function['address']}/{name}", value)
    genuine = facts_gather.gather
    monkeypatch.setattr(facts_gather, "gather", lambda *given, **options: genuine(*given, **options, root=tree.root))
    return tree


def test_the_result_matches_the_documentation(rich_host):
    found = module_call.result(OPTIONS, no_run, root=rich_host.root)
    assert found.pop("changed") is False
    assert deviations(RETURNED, found, ALL) == []
    vendors = [one["vendor"] for one in found["ansible_facts"]["accelerators"]]
    assert vendors == ["nvidia"] * 2 + ["amd"] * 4
    json.dumps(found)


def test_an_empty_host_matches_the_documentation(tmp_path):
    found = module_call.result(OPTIONS, no_run, root=str(tmp_path))
    assert deviations(RETURNED, {"ansible_facts": found["ansible_facts"]}, ALL) == []


def test_only_the_given_vendors_are_read(rich_host):
    found = module_call.result({**OPTIONS, "vendors": ["amd", "intel"]}, no_run, root=rich_host.root)["ansible_facts"]
    assert list(found["accelerator_vendors"]) == ["amd", "intel"]
    assert {one["vendor"] for one in found["accelerators"]} == {"amd"}
    assert deviations(RETURNED, {"ansible_facts": found}, frozenset(("amd", "intel"))) == []


@pytest.mark.parametrize(("read_ras", "corrected"), [(False, None), (True, 4)])
def test_read_ras_reaches_amd(rich_host, read_ras, corrected):
    found = module_call.result({**OPTIONS, "vendors": ["amd"], "read_ras": read_ras}, no_run, root=rich_host.root)
    assert found["ansible_facts"]["accelerators"][-1]["errors"]["corrected"] == corrected


def test_without_pynvml_the_other_vendors_are_complete(rich_host, monkeypatch):
    missing = {"failed": True, "nvml_binding_missing": True, "msg": "pynvml is missing."}
    monkeypatch.setattr(facts_call, "result", lambda *_arguments: missing)
    found = module_call.result(OPTIONS, no_run, root=rich_host.root)
    assert found["nvml_binding_missing"] is True
    facts = found["ansible_facts"]
    assert (facts["accelerator_vendors"]["nvidia"]["state"], facts["accelerator_vendors"]["amd"]["state"]) == (
        "error",
        "ready",
    )
    assert "pynvml is missing." in facts["accelerator_vendors"]["nvidia"]["reason"]
    assert [one["vendor"] for one in facts["accelerators"]] == ["nvidia"] + ["amd"] * 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"timeout": 0}, "timeout=0 is invalid"),
        ({"driver_root": "/nonexistent"}, "is not a directory"),
        ({"vendors": ["cray"]}, "cray"),
    ],
)
def test_invalid_options_are_refused(capsys, arguments, words):
    with patch_module_args(arguments), pytest.raises(SystemExit):
        accelerator_facts.main()
    answer = json.loads(capsys.readouterr().out)
    assert answer["failed"] is True
    assert words in answer["msg"]


def test_check_mode_returns_the_same(capsys):
    answers = []
    for check_mode in (False, True):
        with patch_module_args({"_ansible_check_mode": check_mode}), pytest.raises(SystemExit):
            accelerator_facts.main()
        answers.append(json.loads(capsys.readouterr().out)["ansible_facts"])
    assert answers[0] == answers[1]
    assert set(answers[0]["accelerator_vendors"]) == ALL


def test_the_options_are_documented():
    assert set(DOCUMENTED) == set(module_call.OPTIONS)
    for name, option in module_call.OPTIONS.items():
        assert {key: DOCUMENTED[name].get(key) for key in option} == option


def test_every_key_of_the_schema_is_documented():
    facts = RETURNED["ansible_facts"]["contains"]
    assert list(facts["accelerators"]["contains"]) == list(schema.AcceleratorDevice.__annotations__)
    assert list(facts["accelerator_vendors"]["contains"]) == list(VENDORS)
