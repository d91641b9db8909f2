# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`gather_facts` runs the module without its action plugin, also on hosts that have no pynvml."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather as facts_gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import pynvml_kept_until_boot
from ansible_collections.gpufleet.hosts.plugins.modules import nvidia_gpu_facts
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

KEPT = "/run/gpufleet/pynvml-13.615.71.zip"


@pytest.fixture
def gather_facts(tmp_path, monkeypatch, capsys):
    """Run the module as gather_facts does, on a host with a loaded driver and without pynvml."""
    tree = Tree(tmp_path)
    tree.loaded("580.95.05")
    tree.function("0000:3b:00.0", driver="nvidia")
    genuine = facts_gather.gather

    class Query:
        """NVML through pynvml, which only the kept copy provides."""

        def __init__(self, subsets, timeout, binding_path, driver_root):
            self._found = binding_path == KEPT

        def answer(self):
            if not self._found:
                return {"binding_missing": "No module named 'pynvml'"}
            return {"gpus": [], "binding": {"origin": "controller", "version": "13.615.71"}}

    def gather(subsets, *, run, query=Query, **options):
        return genuine(subsets, root=str(tmp_path), run=run, query=query, **options)

    monkeypatch.setattr(facts_gather, "gather", gather)

    def run(kept=None):
        monkeypatch.setattr(pynvml_kept_until_boot, "remembered", lambda: kept)
        with patch_module_args({}), pytest.raises(SystemExit):
            nvidia_gpu_facts.main()
        return json.loads(capsys.readouterr().out)

    return run


def test_host_without_pynvml_gets_the_facts_from_pci_and_a_warning(gather_facts, monkeypatch):
    warned = []
    # Where a test imported Ansible's controller, warnings are not part of the result.
    monkeypatch.setattr(nvidia_gpu_facts.AnsibleModule, "warn", lambda module, warning: warned.append(warning))
    result = gather_facts()
    assert not result.get("failed")
    facts = result["ansible_facts"]
    assert facts["nvidia_gpu_state"] == "error"
    for words in ("Install python3-pynvml or nvidia-ml-py on the host", "not with gather_facts"):
        assert words in facts["nvidia_gpu_state_reason"]
    assert [one["address"] for one in facts["nvidia_pci_devices"]] == ["0000:3b:00.0"]
    assert facts["nvidia_driver"]["version"] == "580.95.05"
    assert ["python3-pynvml" in warning for warning in warned] == [True]


def test_action_plugin_still_learns_that_pynvml_is_missing(gather_facts):
    assert gather_facts()["nvml_binding_missing"] is True


def test_kept_pynvml_is_used(gather_facts):
    result = gather_facts(kept=KEPT)
    assert result["nvml_binding_version"] == "13.615.71"
    assert "nvml_binding_missing" not in result


def test_kept_pynvml_that_cannot_be_imported_is_like_none(gather_facts):
    result = gather_facts(kept="/run/gpufleet/pynvml-0.zip")
    assert result["ansible_facts"]["nvidia_gpu_state"] == "error"
