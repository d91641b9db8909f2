# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module accelerator_cdi_spec on this machine, which has no AMD GPU: its documentation, errors and removal."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import accelerator_writing
from ansible_collections.gpufleet.hosts.plugins.modules import accelerator_cdi_spec


def run(capsys, **arguments) -> dict:
    with patch_module_args({"vendor": "amd", **arguments}), pytest.raises(SystemExit):
        accelerator_cdi_spec.main()
    return json.loads(capsys.readouterr().out)


def test_a_host_without_gpu_fails_with_the_reason(capsys, tmp_path, monkeypatch):
    no_gpu = {"accelerator_vendors": {"amd": {"state": "no_hardware", "reason": "No GPU."}}, "accelerators": []}
    monkeypatch.setattr(accelerator_cdi_spec.accelerators_gather, "gather", lambda *_given, **_options: no_gpu)
    answer = run(capsys, path=str(tmp_path / "amd.json"), spec_dirs=[str(tmp_path)])
    assert answer["failed"] is True
    assert answer["msg"] == "the devices cannot be described because their state is no_hardware: No GPU."


def test_the_file_is_removed_without_reading_the_host(capsys, tmp_path, monkeypatch):
    monkeypatch.delattr(accelerator_cdi_spec.accelerators_gather, "gather")
    (tmp_path / "amd.json").write_text("{}")
    (tmp_path / ".amd.json.gpufleet").write_text("")
    arguments = {"path": str(tmp_path / "amd.json"), "spec_dirs": [str(tmp_path)], "state": "absent"}
    assert [run(capsys, **arguments)["changed"] for _run in range(2)] == [True, False]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("vendor", ["nvidia", "intel", "cray"])
def test_other_vendors_are_refused(capsys, vendor):
    assert "amd" in run(capsys, vendor=vendor)["msg"]


def test_the_result_is_documented(tmp_path):
    params = {"vendor": "amd", "state": "absent", "path": str(tmp_path / "a.json"), "cdi_kind": None}
    params = {**params, "spec_dirs": [str(tmp_path)], "additional_gids": False}
    result = accelerator_writing.apply_state(params, dict, check_mode=False)
    assert set(yaml.safe_load(accelerator_cdi_spec.RETURN)) == set(result) - {"changed", "diff", "warnings"}
