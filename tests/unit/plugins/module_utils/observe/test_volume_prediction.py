# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The prediction of the driver volume says what module nvidia_driver_volume would do, and changes nothing."""

from __future__ import annotations

import os
import shutil

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver_versions as host_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import volume_prediction
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import volume_changes
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.volume_host import NAME, OLDER, VERSION, VolumeHost

BUILD = f"build volume {NAME} from 7 files"
DOCKER, PODMAN = (f"register {NAME} with {name}" for name in ("docker", "podman"))


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setattr(volume_changes.platform, "machine", lambda: "x86_64")
    host = VolumeHost(tmp_path, "var/lib/gpufleet/volumes", "var/run/docker.sock")
    yield host
    host.docker.close()


def predict(host, engines=("auto",), expected=()):
    return volume_prediction.predict(
        str(host.root),
        host_driver.loaded_module(str(host.root))[0],
        list(engines),
        list(expected),
        run_command=host.run_podman,
        podman_path=host.podman_path(),
    )


def snapshot(host):
    """List every path of the host except Podman's storage, and the volumes of the engines."""
    paths = sorted(os.path.join(base, name) for base, names, files in os.walk(host.root) for name in names + files)
    return [path for path in paths if "/containers" not in path], dict(host.docker.volumes), dict(host.podman.volumes)


def converged(host):
    host.run()


def only_docker(host):
    host.has_podman = False


def damaged(host):
    host.run()
    (host.path / "nvidia_driver" / VERSION / "bin/nvidia-smi").unlink()


def registration_lost(host):
    host.run()
    host.docker.volumes.clear()


def stopped(host):
    host.has_podman = False
    host.run()
    host.stop_docker()


def socket_activated(host):
    host.has_podman = False
    host.run()
    host.stop_docker_service()


def not_installed(host):
    host.has_podman = False
    host.stop_docker()


# (name, function that changes the host, engines, expected engines, actions, engines that have the volume afterwards)
PREDICTIONS = [
    ("converged", converged, ["auto"], [], [], ["docker", "podman"]),
    ("missing", lambda host: None, ["auto"], [], [BUILD, DOCKER, PODMAN], ["docker", "podman"]),
    ("missing, no engine wanted", lambda host: None, ["none"], [], [BUILD], []),
    ("missing, without Podman", only_docker, ["auto"], [], [BUILD, DOCKER], ["docker"]),
    ("volume of an older driver", VolumeHost.upgrade, ["auto"], [], [BUILD, DOCKER, PODMAN], ["docker", "podman"]),
    (
        "damaged",
        damaged,
        ["auto"],
        [],
        [f"repair volume {NAME}: add 1, replace 0, remove 0 of its files and links"],
        ["docker", "podman"],
    ),
    ("registration lost", registration_lost, ["auto"], [], [DOCKER], ["docker", "podman"]),
    ("engine stopped, expected", stopped, ["auto"], ["docker"], [], ["docker"]),
    ("engine stopped, systemd listens", socket_activated, ["auto"], [], [], ["docker"]),
    ("engine not installed, expected", not_installed, ["auto"], ["docker"], [BUILD, DOCKER], ["docker"]),
]


@pytest.mark.parametrize("row", [row[1:] for row in PREDICTIONS], ids=[row[0] for row in PREDICTIONS])
def test_a_prediction_lists_the_actions_and_changes_nothing(host, row):
    prepare, engines, expected, actions, with_volume = row
    prepare(host)
    before = snapshot(host)
    host.docker.requests.clear()
    prediction = predict(host, engines, expected)
    assert (prediction["actions"], prediction["changed"], prediction["error"]) == (actions, bool(actions), None)
    found = prediction["volume"]
    assert (found["name"], found["version"], found["engines"]) == (NAME, VERSION, with_volume)
    assert found["path"] == str(host.path / "nvidia_driver" / VERSION)
    assert snapshot(host) == before
    assert [request for request in host.docker.requests if not request.startswith("GET")] == []


@pytest.mark.parametrize("prepare", [row[1] for row in PREDICTIONS[:7]], ids=[row[0] for row in PREDICTIONS[:7]])
def test_a_run_does_what_was_predicted(host, prepare):
    prepare(host)
    prediction = predict(host)
    done = host.run()
    assert (prediction["changed"], prediction["actions"]) == (done["changed"], done["actions"])
    assert predict(host)["actions"] == []


def test_a_repair_that_only_removes_files_is_surplus(host):
    host.run()
    extra = host.path / "nvidia_driver" / VERSION / "bin/old-tool"
    extra.write_text("")
    prediction = predict(host)
    assert prediction["surplus"] == prediction["actions"]
    assert "add 0, replace 0, remove 1" in prediction["actions"][0]
    damaged(host)
    assert predict(host)["surplus"] == []


def test_a_prediction_does_not_start_docker(host):
    socket_activated(host)
    predict(host)
    assert host.docker.requests == []


# (name, function that changes the host, engines, words of the error)
ERRORS = [
    ("other driver version", lambda host: driver_tree.loaded(host.root, OLDER), ["auto"], [OLDER, VERSION, "Reboot"]),
    ("no driver files", lambda host: shutil.rmtree(host.root / "usr"), ["auto"], [f"libcuda.so.{VERSION}", "Install"]),
    ("engine stopped", stopped, ["auto"], ["engine=auto: no container engine is available", "docker.sock"]),
    ("engine stopped, named", stopped, ["docker"], ["engine=docker", "Install and start docker"]),
    ("engines contradict", lambda host: None, ["none", "docker"], ["engine=none,docker", "cannot be combined"]),
    (
        "different volume",
        lambda host: host.docker.volumes.update({NAME: {"Name": NAME, "Driver": "nfs", "Options": None}}),
        ["auto"],
        ["docker already has a different volume", NAME],
    ),
    ("not writable", lambda host: _write(host.path), ["none"], ["cannot write", "gpufleet/volumes", "Not a directory"]),
]


def _write(path):
    path.parent.mkdir(parents=True)
    path.write_text("")


@pytest.mark.parametrize("row", [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_an_error_of_the_module_is_part_of_the_prediction(host, row):
    prepare, engines, words = row
    prepare(host)
    prediction = predict(host, engines)
    assert (prediction["changed"], prediction["actions"], prediction["volume"]) == (False, [], None)
    for word in words:
        assert word in prediction["error"]


def test_an_error_of_the_system_names_the_file(host, monkeypatch):
    def fail(*_arguments):
        raise PermissionError(13, "Permission denied", "/srv/x")

    monkeypatch.setattr(volume_changes.driver_volume, "versions", fail)
    assert predict(host)["error"] == "/srv/x: Permission denied"


def test_a_driver_on_disk_has_a_prediction_before_it_is_loaded(host):
    host.run()
    (host.root / "sys/module/nvidia/version").unlink()
    prediction = volume_prediction.predict(
        str(host.root), VERSION, ["none"], [], run_command=host.run_podman, podman_path=None
    )
    assert (prediction["changed"], prediction["volume"]["version"]) == (False, VERSION)


def test_without_a_driver_there_is_no_prediction(host):
    (host.root / "sys/module/nvidia/version").unlink()
    assert predict(host) is None
    assert host.docker.requests == []
