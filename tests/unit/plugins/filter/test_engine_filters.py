# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters hand on what playbooks give them. What they work out is tested with their functions."""

from __future__ import annotations

import inspect
import typing as t

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.filter import (
    cuda_toolkit_plan,
    engine_apply_plan,
    engine_plan,
    gpu_host_health,
    persistence_off,
    persistenced_plan,
)

MODULES = [cuda_toolkit_plan, engine_apply_plan, engine_plan, gpu_host_health, persistence_off, persistenced_plan]
every_filter = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])


@every_filter
def test_a_file_has_one_filter_of_its_own_name(module: t.Any) -> None:
    name = module.__name__.rpartition(".")[2]
    assert list(module.FilterModule().filters()) == [name]
    assert yaml.safe_load(module.DOCUMENTATION)["name"] == name


@every_filter
def test_documentation_and_signature_agree(module: t.Any) -> None:
    (function,) = module.FilterModule().filters().values()
    _input, *parameters = inspect.signature(function).parameters.values()
    options = yaml.safe_load(module.DOCUMENTATION)["options"]
    options.pop("_input")
    assert {parameter.name for parameter in parameters} == set(options)
    for parameter in parameters:
        option = options[parameter.name]
        assert option.get("required", False) == (parameter.default is parameter.empty), parameter.name
        if parameter.default is not parameter.empty:
            assert (option.get("default") or None) == (parameter.default or None), parameter.name


def test_what_a_playbook_gives_arrives() -> None:
    host = {
        "os": {"key": "debian-12", "name": "Debian 12", "family": "debian", "package_manager": "apt"},
        "uid": 0,
        "nvidia": {"gpus": []},
        "packages": {},
        "services": {},
        "engines": {"docker": {"package": None, "version": None, "info": None}},
        "docker_daemon_json": {"flags": []},
        "files": {"/etc/docker/daemon.json": {"exists": False, "content": None}},
    }
    platforms = {"debian-12": {"docker": {"packages": ["docker.io"], "support": [], "version": "20.10.24"}}}
    plan = engine_plan.FilterModule().filters()["engine_plan"](
        host,
        name="docker",
        source="distribution",
        docker_options={"mtu": 9000},
        docker_recommended=False,
        platforms=platforms,
    )
    assert (plan["packages"], plan["options"]) == (["docker.io"], {"mtu": 9000})
    apply = engine_apply_plan.FilterModule().filters()["engine_apply_plan"](
        {"reload": [], "restart": ["mtu"]}, info={"containers_running": 1}, config={}, policy="always"
    )
    assert apply["action"] == "restart"
    assert not persistenced_plan.FilterModule().filters()["persistenced_plan"](host, packages={}, timeout=5)["wanted"]
