# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters pass the values of playbooks to functions, which have their own tests."""

from __future__ import annotations

import inspect
import typing as t

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.filter import engine_internal, gpu_host_health


def test_documentation_and_signature_agree() -> None:
    _input, *parameters = inspect.signature(gpu_host_health.gpu_host_health).parameters.values()
    options = yaml.safe_load(gpu_host_health.DOCUMENTATION)["options"]
    options.pop("_input")
    assert {parameter.name for parameter in parameters} == set(options)
    for parameter in parameters:
        option = options[parameter.name]
        assert option.get("required", False) == (parameter.default is parameter.empty), parameter.name
        if parameter.default is not parameter.empty:
            assert (option.get("default") or None) == (parameter.default or None), parameter.name


def health(width: t.Any) -> dict[str, t.Any]:
    facts = {
        "nvidia_gpu_state": "ready",
        "nvidia_gpus": [
            {"index": 0, "pci_bus_id": "0000:3b:00.0", "persistence_mode": True, "pcie": {"width": 8, "width_max": 16}}
        ],
    }
    host = {
        "nvidia": {"gpus": ["0000:3b:00.0"]},
        "driver": {"loaded": None, "on_disk": None, "on_disk_next": None},
        "kernel": {},
        "services": {},
        "engines": {name: {"package": name} for name in ("docker", "podman", "containerd", "crio")},
        "docker_daemon_json": {"error": None, "path": "/etc/docker/daemon.json"},
        "files": {"/etc/docker/daemon.json": {"content": None}},
        "package_state": {"interrupted": False, "unfinished": [], "busy": False},
        "reboot_reasons": [],
    }
    return gpu_host_health.FilterModule().filters()["gpu_host_health"](host, facts, None, width)


@pytest.mark.parametrize(("width", "problems"), [(None, 0), ("", 0), (8, 0), ("8", 0), (16, 1), ("16", 1)])
def test_the_expected_width_of_the_pcie_link_may_be_text(width: t.Any, problems: int) -> None:
    assert len(health(width)["problems"]) == problems


@pytest.mark.parametrize("width", ["x16", 0, 3, "sixteen", True, -1, [16]])
def test_an_expected_width_that_no_link_has_is_refused(width: t.Any) -> None:
    with pytest.raises(
        AnsibleFilterError, match=r"verify_expected_pcie_width is .*Use one of 1, 2, 4, 8, 16, or remove"
    ):
        health(width)


BARE: dict[str, t.Any] = {
    "os": {"key": "debian-12", "name": "Debian 12", "family": "debian", "package_manager": "apt"},
    "uid": 0,
    "nvidia": {"gpus": []},
    "installed_packages": {},
    "services": {},
    "engines": {"docker": {"package": None, "version": None, "info": None}},
    "docker_daemon_json": {"flags": []},
    "files": {"/etc/docker/daemon.json": {"exists": False, "content": None}},
}
PLATFORMS = {"debian-12": {"docker": {"packages": ["docker.io"], "support": [], "version": "20.10.24"}}}


def planned(options: t.Any, recommended: t.Any) -> dict[str, t.Any]:
    request = {"docker_options": options, "docker_recommended": recommended}
    return engine_internal.plan(BARE, request, PLATFORMS)


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
    assert (done["options"], done["problems"]) == (expected, [])


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
    with pytest.raises(AnsibleFilterError) as caught:
        planned(options, recommended)
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_values_of_a_playbook_reach_the_functions() -> None:
    plan = planned({"mtu": 9000}, False)
    assert (plan["packages"], plan["options"], plan["service"]) == (["docker.io"], {"mtu": 9000}, None)
    apply = engine_internal.apply_plan(
        {"reload": [], "restart": ["mtu"]}, info={"containers_running": 1}, config={}, policy="always"
    )
    assert apply["action"] == "restart"
