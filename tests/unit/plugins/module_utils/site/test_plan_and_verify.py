# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare `plan` and `verify`: what restores GPU work is a problem while it is missing, every other change is not."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import host_health, registry
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import (
    nvidia_docker_file,
    own_cdi_units,
    toolkit_cdi_units,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.variables import ToolkitRequest
from ansible_collections.gpufleet.hosts.tests.drift import items as drift_items
from ansible_collections.gpufleet.hosts.tests.drift.items import Item
from ansible_collections.gpufleet.hosts.tests.drift.run import platforms
from ansible_collections.gpufleet.hosts.tests.unit.drift import converged_host as sample
from ansible_collections.gpufleet.hosts.tests.unit.drift import drifting
from ansible_collections.gpufleet.hosts.tests.unit.plugins import container_toolkit_samples as toolkit_sample

CDI = {"source": "none", "isolations": ["cdi"]}
WRAPPER = {"source": "none", "wrapper": True}
VALUES = {
    "default": sample.values(),
    "cdi": sample.values(nvidia_container_toolkit=CDI),
    "wrapper": sample.values(nvidia_container_toolkit=WRAPPER),
}

# Whether `verify` reports an item that is missing, by kind, or by kind and name. Each other item: by its kind.
IS_PROBLEM: dict[str, bool] = {
    "build": True,
    "module": True,
    "volume": True,
    "registration": True,
    "persistence_mode": True,
    f"service {drift_items.persistence_plan.UNIT}": False,  # its effect, the mode of each GPU, is a problem
    "service": True,
    f"file {owned.MODULES_LOAD}": True,
    f"file {owned.CDI_PROGRAM}": True,
    f"file {owned.CDI_UNIT}": True,
    f"file {owned.WRAPPER}": True,
    "file": False,  # pins, unit drop-ins and options of modules
    "hold": False,
    "option": False,
    # Without its packages, the driver is not ready, the engine does not run, or the program of the runtime is gone.
    "package": False,
}


def with_cdi() -> dict[str, Any]:
    """Return the converged host with the isolation `cdi`, but without NVIDIA's toolkit."""
    host = sample.converged_host()
    parts = planned(host, VALUES["cdi"])
    own = parts["nvidia_container_toolkit"].plan["own_cdi"]
    for path, text in own["files"].items():
        host["files"][path] = {"exists": True, "content": text, "mode": "0644"}
    digest = drift_items.cdi_program.digest()
    host["files"][owned.CDI_PROGRAM] = {"exists": True, "content": digest, "mode": "0644"}
    running = {"load_state": "loaded", "active_state": "active", "unit_file_state": "enabled"}
    host["services"][own_cdi_units.UNIT] = {**drift_items.NO_UNIT, **running}
    specification = {"path": owned.CDI_REFRESHED, "driver_versions": [sample.VERSION], "uuids": [], "ours": True}
    host["cdi_specs"] = [{**specification, "digest": "0"}]
    return host


def with_wrapper() -> dict[str, Any]:
    """Return the converged host with the program nvidia-docker."""
    host = sample.converged_host()
    digest = nvidia_docker_file.digest(host["root_python"])
    host["files"][owned.WRAPPER] = {"exists": True, "content": digest, "mode": "0755"}
    return host


HOSTS = {"default": sample.converged_host, "cdi": with_cdi, "wrapper": with_wrapper}


def planned(host: dict[str, Any], values: Any, facts: Any = None) -> dict[str, Part]:
    context = Context(
        host=host,  # type: ignore[arg-type]
        values=values,
        platforms=platforms(sample.KEY),
        facts=facts,
        cdi_program=drift_items.cdi_program.digest,
    )
    return site_plan.plan(context, registry.PARTS)


def verified(host: dict[str, Any], facts: Any, toolkit: ToolkitRequest) -> list[str]:
    gpus = [{**gpu, "health": {"state": "ok", "reasons": []}} for gpu in facts["nvidia_gpus"]]
    state = "ready" if host["accelerators"]["nvidia"]["driver"]["loaded"] else "driver_not_loaded"
    found = {**facts, "nvidia_gpus": gpus, "nvidia_gpu_state": state}
    volume = {**host["driver_volume"], "volume": {}} if host["driver_volume"] else None
    return host_health.judge(host, found, volume, toolkit=toolkit)["problems"]  # type: ignore[arg-type]


CASES = [
    pytest.param(name, item, id=f"{name}-{item}")
    for name, make in HOSTS.items()
    for item in drift_items.items(make(), VALUES[name], platforms(sample.KEY))
]


@pytest.mark.parametrize("name", HOSTS)
def test_a_converged_host_has_no_problem(name: str) -> None:
    host = HOSTS[name]()
    request = ToolkitRequest(**VALUES[name]["nvidia_container_toolkit"])
    assert verified(host, drift_items.facts(host, []), request) == []


@pytest.mark.parametrize(("name", "item"), CASES)
def test_verify_reports_a_missing_item_that_gpu_work_needs(name: str, item: Item) -> None:
    host = HOSTS[name]()
    if item.kind == "file":
        host["files"][item.name] = dict(drift_items.NO_FILE)
    else:
        drifting.BREAK[item.kind](host, item.name)
    if item.name == own_cdi_units.UNIT:
        host["services"][item.name]["unit_file_state"] = "disabled"
    facts = drift_items.facts(host, [item.name] if item.kind == "persistence_mode" else [])
    changes = [text for part in planned(host, VALUES[name], facts).values() for text in part.changes]
    # A package is queried before it is planned.
    assert changes or item.kind == "package"
    expected = IS_PROBLEM.get(str(item), IS_PROBLEM[item.kind])
    problems = verified(host, facts, ToolkitRequest(**VALUES[name]["nvidia_container_toolkit"]))
    assert bool(problems) is expected, problems


# --- NVIDIA's container toolkit -----------------------------------------------------------------------------------

ENGINE = {"package": "docker-ce", "version": "29.3.0", "info": None}
OLD_ENGINE = {"package": "docker.io", "version": "20.10.24", "info": None}


def toolkit_host(engine: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Describe a converged host with NVIDIA's container toolkit."""
    host = sample.converged_host()
    host["installed_packages"].update({name: f"{text} amd64" for name, text in toolkit_sample.unit().items()})
    host["engines"]["docker"] = dict(engine)
    running = {"load_state": "loaded", "active_state": "active", "unit_file_state": "enabled"}
    for unit in toolkit_cdi_units.UNITS:
        host["services"][unit] = {**drift_items.NO_UNIT, **running}
    host["cdi_specs"] = [
        {"path": "/var/run/cdi/nvidia.yaml", "driver_versions": [sample.VERSION], "uuids": [], "ours": False}
    ]
    runtimes = {"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}}
    host["docker_daemon_json"]["content"] = {**host["docker_daemon_json"]["content"], "runtimes": runtimes}
    return {**host, **changes}


def unregistered(host: dict[str, Any]) -> None:
    del host["docker_daemon_json"]["content"]["runtimes"]


def without_specification(host: dict[str, Any]) -> None:
    host["cdi_specs"] = []


def disabled(host: dict[str, Any]) -> None:
    for unit in toolkit_cdi_units.UNITS:
        host["services"][unit]["unit_file_state"] = "disabled"


def of_another_writer(host: dict[str, Any]) -> None:
    host["cdi_specs"][0]["path"] = "/etc/cdi/operator.json"


SPECIFICATION = (
    "CDI specification /run/cdi/nvidia.yaml is missing, so containers with --device nvidia.com/gpu=all do not start. "
    "Run 'systemctl restart nvidia-cdi-refresh.service'."
)
RUNTIME = "Runtime nvidia is not registered in /etc/docker/daemon.json"
UNITS = "because nvidia-cdi-refresh.path and nvidia-cdi-refresh.service are not enabled and running"


@pytest.mark.parametrize(
    ("engine", "breaks", "values", "expected"),
    [
        (ENGINE, [], {}, []),
        (ENGINE, [without_specification], {}, [SPECIFICATION]),
        (ENGINE, [unregistered], {}, [RUNTIME]),
        (ENGINE, [disabled], {}, [UNITS]),
        (ENGINE, [without_specification, unregistered, disabled], {}, [RUNTIME, SPECIFICATION, UNITS]),
        # Docker 20.10 has no CDI, so only the runtime gives GPUs to containers.
        (OLD_ENGINE, [without_specification, disabled], {}, []),
        (OLD_ENGINE, [unregistered], {}, [RUNTIME]),
        (ENGINE, [of_another_writer], {}, []),
        # The role does not manage this toolkit.
        (ENGINE, [without_specification, unregistered, disabled], {"source": "none"}, []),
        (ENGINE, [without_specification, unregistered], {"state": "absent"}, []),
    ],
)
def test_what_the_toolkit_lacks_is_reported(
    engine: dict[str, Any], breaks: list[Any], values: dict[str, Any], expected: list[str]
) -> None:
    host = copy.deepcopy(toolkit_host(engine))
    for change in breaks:
        change(host)
    problems = verified(host, drift_items.facts(host, []), ToolkitRequest(**values))
    assert [len(problems), *map(bool, problems)] == [len(expected), *map(bool, expected)], problems
    assert all(text in problem for text, problem in zip(expected, problems)), problems


def test_a_host_without_a_toolkit_stays_green() -> None:
    host = toolkit_host(ENGINE)
    for name in toolkit_sample.unit():
        del host["installed_packages"][name]
    for unit in toolkit_cdi_units.UNITS:
        host["services"][unit] = dict(drift_items.NO_UNIT)
    without_specification(host)
    unregistered(host)
    assert verified(host, drift_items.facts(host, []), ToolkitRequest()) == []
