# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import (
    docker_volume_database,
    docker_volumes_of_old_plugin,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.old_nvidia_docker import PAGE, VOLUME, database, leaf

DRIVER = "nvidia-docker"
VOLUMES = {"a": "local", "nvidia_driver_375.66": "nvidia-docker", "z": "local"}


@pytest.mark.parametrize("form", ["inline", "leaf", "branch"])
def test_bucket_is_read_in_every_form(form: str) -> None:
    found = docker_volume_database.read(database(VOLUMES, form), b"volumes")
    assert {key.decode(): json.loads(value)["Driver"] for key, value in found.items()} == VOLUMES


def test_missing_bucket_is_empty() -> None:
    assert docker_volume_database.read(database(VOLUMES), b"other") == {}


def test_database_without_its_newest_header_has_the_older_transaction() -> None:
    data = database(VOLUMES)
    assert docker_volume_database.read(b"\0" * PAGE + data[PAGE:], b"volumes") == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 3 * PAGE,
        database(VOLUMES)[: 4 * PAGE],
        database(VOLUMES)[: 3 * PAGE] + b"\xff" * PAGE,
        # A page that contains itself.
        database(VOLUMES, "branch")[: 6 * PAGE] + database(VOLUMES, "branch")[6 * PAGE :].replace(b"\x05", b"\x06"),
        # A value beyond the end of the file.
        database(VOLUMES)[: 4 * PAGE] + leaf(4, [(b"a", b"b", 0)])[:30],
    ],
    ids=["empty", "no header", "truncated", "no page", "circle", "truncated value"],
)
def test_damaged_file_is_an_error(data: bytes) -> None:
    with pytest.raises(docker_volume_database.BoltError):
        docker_volume_database.read(data, b"volumes")


@pytest.mark.parametrize("form", ["inline", "leaf", "branch"])
def test_deleted_volumes_leave_no_trace(form: str) -> None:
    """The database also has a deleted page that names the plugin."""
    of_plugin = database({"a": "local", "b": "local", VOLUME: DRIVER}, form)
    assert docker_volumes_of_old_plugin.remain(of_plugin, DRIVER)
    assert not docker_volumes_of_old_plugin.remain(database({"a": "local", "b": "local"}, form), DRIVER)
    assert not docker_volumes_of_old_plugin.remain(b"", DRIVER)
    assert docker_volumes_of_old_plugin.remain(b'"Driver":"nvidia-docker"', DRIVER)
