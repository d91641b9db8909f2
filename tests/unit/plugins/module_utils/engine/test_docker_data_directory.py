# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of Docker's data directory, in which Docker would no longer find its containers."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import plan as daemon_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import record
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DEFAULT_PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.managed_keys import EMPTY_RECORD
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import docker_data_directory, removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.plan import MANAGER, RECORD_FILE
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.variables import read
from ansible_collections.gpufleet.hosts.tests.unit.plugins.engine_samples import NO_DATA, PLATFORMS, host, plan

CE = {"docker-ce": "5:28.5.1-1", "docker-ce-cli": "5:28.5.1-1", "containerd.io": "2.1.5"}
FULL = {"containers": 2, "images": 5, "volumes": 1}
NEW = {"data-root": "/data/docker"}


def seen(
    packages: dict[str, str], data: dict[str, t.Any], text: str | None = None, ours: dict[str, t.Any] | None = None
) -> dict[str, t.Any]:
    """Describe a host. `text`: daemon.json. `ours`: the options that the role has written there."""
    state = None
    if ours is not None:
        first = record.State(EMPTY_RECORD)
        done = daemon_plan.plan(text, first, MANAGER, ours, present=True, lists="union", flags=[], path=DEFAULT_PATH)
        text, state = done.text, record.dump_state(done.state)
    files = {
        DEFAULT_PATH: {"exists": text is not None, "content": text},
        RECORD_FILE: {"exists": state is not None, "content": state},
    }
    place = data.get("root", "/var/lib/docker")
    return host("el-9", packages, data={"directory": place, **data}, files=files)


def problems(here: dict[str, t.Any], options: dict[str, t.Any]) -> list[str]:
    return plan(here, docker_options=options).problems


def test_refusal_names_the_directories_their_content_and_the_ways_out() -> None:
    done = plan(seen(CE, FULL), docker_options=NEW, users=[])
    assert done.problems == [
        "data-root in daemon.json would change from /var/lib/docker to /data/docker, but /var/lib/docker has 2 "
        "containers, 5 images, 1 volume, which Docker would not find in /data/docker. Nothing was changed. Keep "
        "/var/lib/docker as data-root, or stop docker.socket and docker.service, move /var/lib/docker to /data/docker "
        "and run the role again."
    ]
    assert not done.config_needed


@pytest.mark.parametrize(
    ("data", "text", "options", "is_refused"),
    [
        ({"images": 1}, None, NEW, True),
        ({"volumes": 1}, '{"debug": true}', NEW, True),
        # An empty directory, also after it was moved.
        ({}, None, NEW, False),
        # The directory does not change.
        (FULL, None, {"data-root": "/var/lib/docker/"}, False),
        (FULL, '{"data-root": "/data/docker"}', NEW, False),
        ({**FULL, "directory": "/data/docker"}, None, NEW, False),
        ({**FULL, "root": "/data/docker"}, '{"graph": "/data/docker"}', {**NEW, "graph": None}, False),
        (FULL, None, {"mtu": 9000}, False),
        # The daemon still runs with the old directory, because an earlier change is pending.
        (FULL, '{"data-root": "/data/docker"}', {"data-root": "/var/lib/docker"}, False),
        # null takes the option of somebody else out of the file.
        ({**FULL, "root": "/srv/docker"}, '{"data-root": "/srv/docker"}', {"data-root": None}, True),
    ],
)
def test_change_that_hides_data_is_refused(
    data: dict[str, t.Any], text: str | None, options: dict[str, t.Any], is_refused: bool
) -> None:
    found = problems(seen(CE, data, text), options)
    assert bool(found) == is_refused
    assert all("Nothing was changed" in text for text in found)


def test_option_that_is_no_longer_requested_does_not_hide_data() -> None:
    (text,) = problems(seen(CE, {**FULL, "root": "/data/docker"}, ours=NEW), {})
    assert "would change from /data/docker to /var/lib/docker" in text
    assert problems(seen(CE, {"root": "/data/docker"}, ours=NEW), {}) == []


def test_data_of_an_earlier_docker_is_only_named() -> None:
    done = plan(seen({}, {"images": 1}), docker_options=NEW)
    assert done.problems == []
    assert "1 image of an earlier Docker installation, but Docker will use /data/docker and will not" in done.reason


REMAP = {"userns-remap": "default"}


def test_change_of_the_remapped_user_that_hides_data_is_refused() -> None:
    assert problems(seen(CE, FULL), REMAP) == [
        "userns-remap in daemon.json would be set to default, which would hide 2 containers, 5 images, 1 volume, "
        "because Docker would use another directory in /var/lib/docker. Nothing was changed. Remove userns-remap from "
        "container_engine_docker_options, or remove all of these first."
    ]
    (text,) = problems(seen(CE, {"volumes": 1}, ours=REMAP), {})
    assert "would be removed, which would hide 1 volume" in text
    assert "Set userns-remap to default in container_engine_docker_options, or remove all of these first." in text
    (text,) = problems(seen(CE, FULL, json.dumps(REMAP)), {"userns-remap": "alice"})
    assert "would change from default to alice" in text
    here = t.cast("t.Any", seen(CE, FULL, ours=REMAP))
    (text,) = removal.plan(here, read({"state": "absent"}), PLATFORMS).problems
    assert "userns-remap in daemon.json would be removed" in text


def test_images_of_the_containerd_image_store_are_counted() -> None:
    here = seen(CE, {})
    here["engines"]["docker"]["info"] = {"images": 3, "server_version": "28.5.1"}
    (text,) = problems(here, REMAP)
    assert "would hide 3 images" in text


@pytest.mark.parametrize(
    ("packages", "data", "text", "options"),
    [
        (CE, {}, None, REMAP),
        (CE, FULL, json.dumps(REMAP), REMAP),
        (CE, FULL, json.dumps(REMAP), {}),
        ({}, FULL, None, REMAP),
    ],
)
def test_remapped_user_that_hides_nothing_is_accepted(
    packages: dict[str, str], data: dict[str, t.Any], text: str | None, options: dict[str, t.Any]
) -> None:
    assert problems(seen(packages, data, text), options) == []


def test_removal_of_the_options_keeps_the_directory_of_a_docker_that_stays() -> None:
    here = t.cast("t.Any", seen(CE, {**FULL, "root": "/data/docker"}, ours=NEW))
    (text,) = removal.plan(here, read({"state": "absent"}), PLATFORMS).problems
    assert "would change from /data/docker to /var/lib/docker" in text
    empty = t.cast("t.Any", seen(CE, {"root": "/data/docker"}, ours=NEW))
    assert removal.plan(empty, read({"state": "absent"}), PLATFORMS).problems == []


# --- the observation ------------------------------------------------------------------------------------------------


def filled(folder: Path) -> Path:
    """Create a data directory of Docker with two containers, an image and a volume."""
    for number in (1, 2):
        (folder / f"containers/{number}").mkdir(parents=True)
        (folder / f"containers/{number}/config.v2.json").write_text("{}")
    (folder / "containers/left-over").mkdir()
    (folder / "image/overlay2/imagedb/content/sha256").mkdir(parents=True)
    (folder / "image/overlay2/imagedb/content/sha256/0123").write_text("{}")
    (folder / "volumes/cache/_data").mkdir(parents=True)
    (folder / "volumes/metadata.db").write_text("")
    return folder


COUNTS = {"containers": 2, "images": 1, "volumes": 1}


@pytest.mark.parametrize(
    ("place", "running", "config", "flag"),
    [
        ("/var/lib/docker", None, {}, None),
        ("/data/docker", None, {"data-root": "/data/docker"}, None),
        ("/data/docker", None, {"graph": "/data/docker"}, None),
        ("/data/docker", None, {}, "/data/docker"),
        # The file has changed since the daemon has started.
        ("/data/docker", "/data/docker", {"data-root": "/srv"}, None),
    ],
)
def test_directory_of_the_daemon_is_counted(
    tmp_path: Path, place: str, running: str | None, config: dict[str, str], flag: str | None
) -> None:
    filled(tmp_path / place.lstrip("/"))
    seen_data = docker_data_directory.read(str(tmp_path), running, config, flag)
    assert json.loads(json.dumps(seen_data)) == {"root": place, "directory": place, **COUNTS}


def test_directory_of_a_remapped_user_is_counted(tmp_path: Path) -> None:
    filled(tmp_path / "var/lib/docker/165536.165536")
    for running in (None, "/var/lib/docker/165536.165536"):
        assert docker_data_directory.read(str(tmp_path), running, {}) == {**NO_DATA, **COUNTS}


def test_link_is_resolved_inside_the_root(tmp_path: Path) -> None:
    filled(tmp_path / "data/docker")
    (tmp_path / "var/lib").mkdir(parents=True)
    (tmp_path / "var/lib/docker").symlink_to(tmp_path / "data/docker")
    assert docker_data_directory.read(str(tmp_path), None, {}) == {**NO_DATA, "directory": "/data/docker", **COUNTS}


def test_missing_directory_is_empty(tmp_path: Path) -> None:
    assert docker_data_directory.read(str(tmp_path), None, {}) == NO_DATA
