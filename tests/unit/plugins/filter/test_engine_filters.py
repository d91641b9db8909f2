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


def health(width: t.Any, gpus: t.Any = None) -> dict[str, t.Any]:
    facts = {
        "nvidia_gpu_state": "ready",
        "nvidia_gpus": [
            {"index": 0, "pci_bus_id": "0000:3b:00.0", "persistence_mode": True, "pcie": {"width": 8, "width_max": 16}}
        ],
    }
    host = {
        "accelerators": {
            "nvidia": {
                "gpus": ["0000:3b:00.0"],
                "driver": {"loaded": None, "library": None, "on_disk": None, "on_disk_next": None},
            }
        },
        "kernel": {},
        "services": {},
        "engines": {name: {"package": name, "info": None} for name in ("docker", "podman", "containerd", "crio")},
        "engine_processes": {"containers": {}},
        "cri_files": {"containerd": {}, "crio": {}},
        "docker_daemon_json": {"error": None, "path": "/etc/docker/daemon.json"},
        "files": {"/etc/docker/daemon.json": {"content": None}},
        "package_state": {"interrupted": False, "unfinished": [], "busy": False},
        "reboot_reasons": [],
    }
    return gpu_host_health.FilterModule().filters()["gpu_host_health"](host, facts, None, width, gpus)


@pytest.mark.parametrize(("width", "problems"), [(None, 0), ("", 0), (8, 0), ("8", 0), (16, 1), ("16", 1)])
def test_the_expected_width_of_the_pcie_link_may_be_text(width: t.Any, problems: int) -> None:
    assert len(health(width)["problems"]) == problems


@pytest.mark.parametrize("width", ["x16", 0, 3, "sixteen", True, -1, [16]])
def test_an_expected_width_that_no_link_has_is_refused(width: t.Any) -> None:
    with pytest.raises(
        AnsibleFilterError, match=r"verify_expected_pcie_width is .*Use one of 1, 2, 4, 8, 16, or remove"
    ):
        health(width)


@pytest.mark.parametrize(
    ("gpus", "problems"), [(None, 0), ("", 0), (1, 0), ("1", 0), (8, 1), ("8", 1), (0, 1), ("0", 1)]
)
def test_the_expected_number_of_gpus_may_be_text(gpus: t.Any, problems: int) -> None:
    assert len(health(None, gpus)["problems"]) == problems


@pytest.mark.parametrize("gpus", ["eight", -1, "-1", 1.5, "8.0", True, [8], "8x", "8\n", 10**6])
def test_an_invalid_number_of_gpus_is_refused(gpus: t.Any) -> None:
    with pytest.raises(AnsibleFilterError) as error:
        health(None, gpus)
    assert str(error.value) == (
        f"verify_expected_gpus is {gpus!r}, which is not a valid number of GPUs. Use a whole number such as 8, or 0 "
        "for a host without GPUs, or remove the variable."
    )


def test_values_of_a_playbook_reach_the_functions() -> None:
    apply = engine_internal.apply_plan(
        {"reload": [], "restart": ["mtu"]}, info={"containers_running": 1}, config={}, policy="always"
    )
    assert apply["action"] == "restart"
