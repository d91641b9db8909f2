# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import observation, volume_prediction
from ansible_collections.gpufleet.hosts.plugins.modules import gpu_host_info, nvidia_driver_volume

COLLECTIONS = gpu_host_info.__file__.split("/ansible_collections/", maxsplit=1)[0]
LIST = """
import sys
sys.path.insert(0, sys.argv[1])
import ansible_collections.gpufleet.hosts.plugins.modules.gpu_host_info
print(*sys.modules)
"""
PREDICTION = {"changed": True, "actions": ["build it"], "surplus": [], "volume": None, "error": None}


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs the module. Only the prediction of the driver volume is observed."""

    def observe(predict_volume, **_more):
        return {"driver_volume": predict_volume and predict_volume("580.95.05")}

    def run(**arguments):
        with patch_module_args({"_ansible_check_mode": True, **arguments}), pytest.raises(SystemExit):
            gpu_host_info.main()
        return json.loads(capsys.readouterr().out)

    monkeypatch.setattr(observation, "observe", observe)
    return run


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, None),
        ({"driver_volume": None}, None),
        ({"driver_volume": {}}, ("/", "580.95.05", ["auto"], [])),
        ({"driver_volume": {"engine": ["none"]}}, ("/", "580.95.05", ["none"], [])),
        ({"driver_volume": {"expected_engines": ["docker"]}}, ("/", "580.95.05", ["auto"], ["docker"])),
    ],
)
def test_the_option_selects_the_prediction_of_the_driver_volume(run, monkeypatch, arguments, expected):
    calls = []
    monkeypatch.setattr(volume_prediction, "predict", lambda *given, **_more: calls.append(given) or PREDICTION)
    assert run(**arguments)["host"]["driver_volume"] == (PREDICTION if expected else None)
    assert calls == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"engine": ["cri-o"]}, ["engine", "cri-o", "podman"]),
        ({"expected_engines": ["auto"]}, ["expected_engines", "auto"]),
        ({"prune": True}, ["driver_volume", "prune"]),
    ],
)
def test_invalid_options_of_the_driver_volume_fail(run, value, words):
    result = run(driver_volume=value)
    assert result["failed"] is True
    for word in words:
        assert word in result["msg"]


def test_the_options_of_the_driver_volume_are_those_of_its_module():
    options = yaml.safe_load(gpu_host_info.DOCUMENTATION)["options"]["driver_volume"]["suboptions"]
    same = yaml.safe_load(nvidia_driver_volume.DOCUMENTATION)["options"]
    for name, option in options.items():
        for key in ("type", "elements", "choices", "default"):
            assert option[key] == same[name][key], (name, key)


def test_the_code_for_volumes_is_not_imported_in_advance():
    command = [sys.executable, "-c", LIST, COLLECTIONS]
    names = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    packages = {name.split(".module_utils.", 1)[-1] for name in names if "gpufleet.hosts.plugins.module_utils." in name}
    assert "observe.observation" in packages
    assert {name for name in packages if name.startswith("volume") or name == "observe.volume_prediction"} == set()
