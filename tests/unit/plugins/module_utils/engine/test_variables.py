# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.plan import EnginePlan, plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.variables import read
from ansible_collections.gpufleet.hosts.tests.unit.plugins.engine_samples import NO_DATA

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

BARE: dict[str, t.Any] = {
    "os": {"key": "debian-12", "name": "Debian 12", "family": "debian", "package_manager": "apt"},
    "uid": 0,
    "nvidia": {"gpus": []},
    "installed_packages": {},
    "held_packages": [],
    "accelerators": {"nvidia": {"gpus": []}},
    "engine_processes": {"containers": {}, "rootless_docker": []},
    "services": {},
    "engines": {"docker": {"package": None, "version": None, "info": None}},
    "docker_daemon_json": {"flags": []},
    "docker_data": NO_DATA,
    "files": {"/etc/docker/daemon.json": {"exists": False, "content": None}},
}
PLATFORMS = {
    "debian-12": {"docker": {"support": [], "distribution": {"packages": ["docker.io"], "version": "20.10.24"}}}
}


def planned(options: t.Any, recommended: t.Any) -> EnginePlan:
    request = read({"docker_options": options, "docker_recommended": recommended})
    return plan(t.cast("Host", BARE), request, PLATFORMS)


RECOMMENDED = {"live-restore": True}


@pytest.mark.parametrize(
    ("options", "recommended", "expected"),
    [
        *(({"mtu": 9000}, no, {"mtu": 9000}) for no in (False, "false", "False", "no", "0", "off", 0)),
        *((options, "yes", RECOMMENDED) for options in (None, "", "{}", {})),
        ('{"mtu": 9000, "labels": ["a=1"]}', "true", {"mtu": 9000, "labels": ["a=1"], **RECOMMENDED}),
        ("{'debug': True}", "false", {"debug": True}),
        ("data-root=/srv/docker, log-driver=local", "no", {"data-root": "/srv/docker", "log-driver": "local"}),
    ],
)
def test_strings_are_converted(options: t.Any, recommended: t.Any, expected: dict[str, t.Any]) -> None:
    done = planned(options, recommended)
    assert (done.options, done.problems) == (expected, [])


@pytest.mark.parametrize(
    ("options", "recommended", "words"),
    [
        ("mtu", True, 'container_engine_docker_options is mtu, but must be a dictionary. Use the form {"mtu": 9000}.'),
        ('{"mtu": 9000', True, 'container_engine_docker_options is {"mtu": 9000, but must be a dictionary.'),
        ([1], True, "container_engine_docker_options is [1], but must be a dictionary."),
        ({True: 1}, True, "container_engine_docker_options has the key True, which is not a string. Write it in"),
        ({5: {}}, True, "container_engine_docker_options has the key 5, which is not a string"),
        ({}, "maybe", "container_engine_docker_recommended is maybe, but must be true or false."),
        ('{"log-opts": {"splunk-token": "s3cret"', True, "container_engine_docker_options is"),
        ('{"http-proxy": "http://u:s3cret@p', True, "container_engine_docker_options is"),
    ],
)
def test_invalid_strings_are_reported(options: t.Any, recommended: t.Any, words: str) -> None:
    with pytest.raises(VariableError) as caught:
        planned(options, recommended)
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_unknown_engine_is_refused() -> None:
    with pytest.raises(VariableError, match="is lxc, but must be one of docker, podman, containerd, none"):
        read({"name": "lxc"})
