# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes after which Docker would no longer find the containers and images in its image store."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import plan as daemon_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import record
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DEFAULT_PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.managed_keys import EMPTY_RECORD
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.plan import MANAGER, RECORD_FILE
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.variables import read
from ansible_collections.gpufleet.hosts.tests.unit.plugins.engine_samples import FULL, PLATFORMS, answered, host

SUPPORT = {"ca-certificates": "1", "iptables": "1", "python3-requests": "1"}
KEPT = {"features": {"containerd-snapshotter": True}}
OWN = {"driver": "overlay2", "version": "28.5.1"}


def seen(
    *,
    version: str = "29.1.2",
    driver: str = "overlayfs",
    images: int = 12,
    containers: int = 5,
    text: str | None = None,
    ours: dict[str, t.Any] | None = None,
) -> dict[str, t.Any]:
    """Describe a host with docker-ce. `text`: daemon.json. `ours`: the options that the role has written there."""
    packages = dict.fromkeys(("docker-ce", "docker-ce-cli"), f"5:{version}-1~x")
    state = None
    if ours is not None:
        first = record.State(EMPTY_RECORD)
        done = daemon_plan.plan(text, first, MANAGER, ours, present=True, lists="union", flags=[], path=DEFAULT_PATH)
        text, state = done.text, record.dump_state(done.state)
    return host(
        "ubuntu-24.04",
        {**packages, "containerd.io": "2.1.5", **SUPPORT},
        info={"server_version": version, "storage_driver": driver, "images": images},
        data={"containers": containers, "volumes": 3},
        files={
            DEFAULT_PATH: {"exists": text is not None, "content": text},
            RECORD_FILE: {"exists": state is not None, "content": state},
        },
    )


def problems(here: dict[str, t.Any], **variables: t.Any) -> list[str]:
    offers = {**FULL["ubuntu"], "docker.io": ["28.2.2-0ubuntu1~24.04.1", "20.10.24-0ubuntu1"]}
    return answered(here, offers, **variables).problems


def test_refusal_names_the_change_the_contents_and_the_ways_out() -> None:
    assert problems(seen(), version="28.5") == [
        "Changing Docker from 29.1.2 to 28.5.2 would hide 5 containers, 12 images, because Docker would no longer "
        "use the containerd image store, which contains them. Nothing was changed. Set features.containerd-snapshotter "
        "to true in container_engine_docker_options, or remove these containers and images first."
    ]


@pytest.mark.parametrize(
    ("here", "variables", "words"),
    [
        # Another source with an older Docker.
        ({}, {"source": "distribution", "replace": True}, "from 29.1.2 to 28.2.2 would hide"),
        (
            {},
            {"source": "distribution", "replace": True, "version": "20.10", "docker_options": KEPT},
            "Request Docker 24.0 or later, or remove",
        ),
        ({"images": 0}, {"version": "28.5"}, "would hide 5 containers,"),
        ({"containers": 0}, {"version": "28.5"}, "would hide 12 images,"),
        # The store stays.
        ({}, {"version": "28.5", "docker_options": KEPT}, None),
        ({"text": json.dumps(KEPT)}, {"version": "28.5"}, None),
        ({}, {"version": "29.1"}, None),
        ({"version": "28.5.1", "text": json.dumps(KEPT)}, {"minimum_version": "29"}, None),
        # Docker does not use the store, or the store is empty. Volumes are not in the store.
        ({"driver": "overlay2"}, {"version": "28.5"}, None),
        ({"images": 0, "containers": 0}, {"version": "28.5"}, None),
        # Options choose another store.
        ({}, {"docker_options": {"storage-driver": "overlay2"}}, "Changing daemon.json would hide 5 containers"),
        ({}, {"docker_options": {"storage-driver": "overlay2"}}, "changed. Remove storage-driver, or remove"),
        ({}, {"docker_options": {"storage-driver": "overlayfs"}}, None),
        ({}, {"docker_options": {"features": {"containerd-snapshotter": False}}}, "Changing daemon.json"),
        ({"version": "28.5.1", "ours": KEPT}, {}, "Changing daemon.json would hide"),
        ({"version": "28.5.1", "ours": KEPT}, {"docker_options": KEPT}, None),
        ({"ours": KEPT}, {}, None),
        ({}, {"docker_options": {"mtu": 9000}}, None),
        # Docker's own store
        (
            {**OWN},
            {"docker_options": KEPT},
            "Changing daemon.json would hide 5 containers, 12 images, because Docker would no longer use storage "
            "driver overlay2, which contains them. Nothing was changed. Remove features.containerd-snapshotter from "
            "container_engine_docker_options, or remove these containers and images first.",
        ),
        (
            {**OWN},
            {"docker_options": {"storage-driver": "vfs"}},
            "changed. Set storage-driver to overlay2 in container_engine_docker_options, or remove these containers",
        ),
        ({**OWN, "version": "29.1.2"}, {"docker_options": KEPT}, "Changing daemon.json would hide 5 containers"),
        ({**OWN, "version": "29.1.2"}, {"docker_options": {"storage-driver": "overlayfs"}}, "Changing daemon.json"),
        ({**OWN}, {"docker_options": {"storage-driver": "overlay2"}}, None),
        ({**OWN}, {"docker_options": {"features": {"containerd-snapshotter": False}}}, None),
        ({**OWN}, {"minimum_version": "29"}, None),
        ({**OWN, "images": 0, "containers": 0}, {"docker_options": KEPT}, None),
        # Somebody else has changed the file, but has not restarted Docker.
        ({**OWN, "text": json.dumps(KEPT)}, {}, None),
    ],
)
def test_change_that_hides_the_store_is_refused(
    here: dict[str, t.Any], variables: dict[str, t.Any], words: str | None
) -> None:
    found = problems(seen(**here), **variables)
    assert [words in text for text in found if words] == ([True] if words else [])
    assert bool(found) == bool(words)


@pytest.mark.parametrize("value", ["containerd-snapshotter", "containerd-snapshotter=true"])
def test_flag_keeps_the_store(value: str) -> None:
    here = seen()
    flag = {"text": f"--feature={value}", "key": "features", "value": [value], "place": "/etc/x.conf"}
    here["docker_daemon_json"]["flags"] = [flag]
    assert problems(here, version="28.5") == []


def test_removal_of_the_options_keeps_the_store_of_a_docker_that_stays() -> None:
    for version, is_refused in (("28.5.1", True), ("29.1.2", False)):
        here = t.cast("t.Any", seen(version=version, ours=KEPT))
        found = removal.plan(here, read({"state": "absent"}), PLATFORMS).problems
        assert ["Changing daemon.json would hide" in text for text in found] == [True] * is_refused
