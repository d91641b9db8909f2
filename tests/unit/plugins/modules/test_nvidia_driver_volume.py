# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import volume_changes
from ansible_collections.gpufleet.hosts.plugins.modules import nvidia_driver_volume
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_tree

VERSION = "580.95.05"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function that runs the module for a driver below `tmp_path`, without an engine."""
    monkeypatch.setattr(volume_changes.platform, "machine", lambda: "x86_64")
    driver_tree.ubuntu(tmp_path, VERSION)
    arguments = {
        "path": str(tmp_path / "volumes"),
        "driver_root": str(tmp_path),
        "driver_version": VERSION,
        "engine": ["none"],
        "docker_host": f"unix://{tmp_path}/docker.sock",
    }

    def run(**more):
        with patch_module_args({**arguments, **more}), pytest.raises(SystemExit):
            nvidia_driver_volume.main()
        return json.loads(capsys.readouterr().out)

    return run


def test_check_mode_predicts_the_run_that_creates_the_volume(run, tmp_path):
    predicted = run(_ansible_check_mode=True)
    assert not (tmp_path / "volumes").exists()
    done = run()
    assert (tmp_path / "volumes/nvidia_driver" / VERSION / "bin/nvidia-smi").is_file()
    for result in (predicted, done):
        assert (result["changed"], result["actions"]) == (True, [f"build volume nvidia_driver_{VERSION} from 7 files"])
    assert run()["changed"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"driver_version": "581.1"}, ["libcuda.so", "driver_version=580.95.05"]),
        ({"driver_root": "/nonexistent"}, ["driver_root=/nonexistent is not a directory"]),
        ({"engine": ["docker"]}, ["engine=docker", "docker.sock", "No such file or directory"]),
        ({"docker_host": "ssh://gpu1"}, ["docker_host=ssh://gpu1 is not valid"]),
        ({"path": "/dev/null"}, ["cannot write /dev/null", "Not a directory"]),
    ],
)
def test_an_error_is_a_message(run, arguments, words):
    result = run(**arguments)
    assert result["failed"] is True
    for word in words:
        assert word in result["msg"]


@pytest.mark.parametrize("filename", ["/srv/x", None])
def test_an_error_of_the_system_names_the_file(run, monkeypatch, tmp_path, filename):
    def fail(*_arguments):
        raise OSError(5, "Input/output error", filename)

    monkeypatch.setattr(volume_changes.driver_volume, "versions", fail)
    assert run()["msg"] == f"{filename or tmp_path / 'volumes'}: Input/output error"
