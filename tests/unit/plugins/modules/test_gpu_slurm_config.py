# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules gpu_slurm_config and gpu_workload as a whole: options, results, errors and documentation."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_options import OPTIONS
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_record import WorkloadRecords
from ansible_collections.gpufleet.hosts.plugins.modules import gpu_slurm_config, gpu_workload


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    def call(module=gpu_workload, **arguments):
        for name in (gpu_workload, gpu_slurm_config):
            monkeypatch.setattr(name.pinned_environment, "pin", lambda: None)
            monkeypatch.setattr(name, "is_root", lambda: True)
            monkeypatch.setattr(name, "WorkloadRecords", lambda: WorkloadRecords(str(tmp_path)), raising=False)
        with patch_module_args(arguments), pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out)

    return call


def test_adapter_none_lets_a_run_go_on(run):
    result = run(verb="begin", adapter="none")
    assert (result["changed"], result["ready"], result["state"]) == (False, True, "none")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"adapter": "systemd"}, "systemd"),
        ({"adapter": "systemd", "systemd": {"units": ["*"]}}, "Patterns are not supported"),
        ({"adapter": "slurm", "slurm": {"node": "a,b"}}, "is not the name of one Slurm node"),
        ({"adapter": "none", "timeout": 0}, "timeout is 0"),
        ({"adapter": "none", "wait": 604801}, "must be between 0 and 604800"),
        ({"adapter": "none", "owner": " "}, "owner is empty"),
        ({"adapter": "slurm", "docker": {"stop": True}}, "docker.stop is set, but adapter is slurm"),
        ({"adapter": "none", "slurm": {"node": "n1"}}, "slurm.node is set, but adapter is none"),
        ({"adapter": "none", "verb": "abort", "failed_step": "Install"}, "failed_step is set, but verb is abort"),
    ],
)
def test_errors_name_the_option(run, arguments, message):
    result = run(**{"verb": "begin", **arguments})
    assert result["failed"]
    assert message in result["msg"]


def test_the_documentation_has_the_options_of_every_adapter():
    documented = yaml.safe_load(gpu_workload.DOCUMENTATION)["options"]
    assert documented["adapter"]["choices"] == list(OPTIONS)
    for name, options in OPTIONS.items():
        assert set(documented.get(name, {}).get("suboptions", {})) == set(options)


def test_the_files_of_slurm_are_planned_in_check_mode(run, monkeypatch):
    facts = {"accelerators": [], "accelerator_vendors": {}}
    monkeypatch.setattr(gpu_slurm_config.accelerators_call, "result", lambda *_: {"ansible_facts": facts})
    result = run(gpu_slurm_config, _ansible_check_mode=True, node="n1", directory="/nonexistent")
    assert (result["node"], result["gres_lines"], result["node_gres"], result["drain_owner"]) == ("n1", [], "", None)
