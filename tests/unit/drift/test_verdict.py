# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict of the drift test: a run has to change what its plan predicted, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import record
from ansible_collections.gpufleet.hosts.tests.drift import items as drift_items
from ansible_collections.gpufleet.hosts.tests.drift import verdict, ways
from ansible_collections.gpufleet.hosts.tests.drift.items import Item
from ansible_collections.gpufleet.hosts.tests.drift.run import batch_faults, platforms
from ansible_collections.gpufleet.hosts.tests.drift.verdict import Run
from ansible_collections.gpufleet.hosts.tests.unit.drift import converged_host as sample

ITEMS = drift_items.items(sample.converged_host(), sample.values(), platforms(sample.KEY))
ENGINE, DRIVER = "gpufleet.hosts.container_engine", "gpufleet.hosts.nvidia_driver"
STOPPED = Item("container_engine", "service", "docker.service")
START = "enable and start docker.service"


def run(
    host: dict[str, Any], texts: dict[str, list[str]], *changed: tuple[str, str], acting: list[str] | None = None
) -> Run:
    """Return the record of a run. `changed` has task and action of each changed task."""
    changes = [{"part": part, "changes": lines, "reasons": []} for part, lines in texts.items()]
    plan = {"host": host, "changes": changes, "acting": list(texts) if acting is None else acting}
    plan_entry = {"host": "h", "task": "Plan", "action": "gpufleet.hosts.gpu_host_plan", "result": "ok", "plan": plan}
    return Run(
        [plan_entry, *({"host": "h", "task": task, "action": action, "result": "changed"} for task, action in changed)]
    )


def stopped_docker() -> dict[str, Any]:
    host = sample.converged_host()
    host["services"]["docker.service"]["active_state"] = "inactive"
    return host


STARTED = (f"{ENGINE} : Service | Enable and start the service", "ansible.builtin.systemd_service")


def faults(
    texts: dict[str, list[str]],
    changed: list[tuple[str, str]],
    drifted: dict[str, Any] | None = None,
    again: Run | None = None,
) -> list[str]:
    """Return the verdict on the repair of a stopped engine."""
    (case,) = [case for case in ways.cases([STOPPED], sample.converged_host()) if case.way == "stopped"]
    again = again or run(sample.converged_host(), {})
    first = run(drifted or stopped_docker(), texts, *changed)
    return batch_faults([case], ITEMS, sample.converged_host(), first, again)


def test_an_exact_repair_has_no_faults() -> None:
    assert faults({"container_engine": [START]}, [STARTED]) == []


def lifted_hold() -> dict[str, Any]:
    host = stopped_docker()
    host["held_packages"].remove("libcuda1")
    return host


def without_file() -> Run:
    host = sample.converged_host()
    host["files"][owned.MODULES_LOAD] = drift_items.NO_FILE
    return run(host, {})


UNHELD = (f"{DRIVER} : Packages | Install, replace and hold the packages", "gpufleet.hosts.package_transaction")


@pytest.mark.parametrize(
    ("texts", "changed", "more", "expected"),
    [
        ({}, [], {}, ["does not predict the repair of service docker.service"]),
        ({}, [STARTED], {}, ["does not predict the repair", "changes container_engine without a prediction"]),
        ({"container_engine": [START]}, [], {}, ["predicts changes of container_engine, but changes none"]),
        (
            {"container_engine": [START, "install iptables"]},
            [STARTED],
            {},
            ["predicts a change of package iptables, which is in place"],
        ),
        (
            {"container_engine": [START, "set vm.nr_hugepages"]},
            [STARTED],
            {},
            ["predicts 'set vm.nr_hugepages' (container_engine), which names no known item"],
        ),
        ({"container_engine": [START]}, [STARTED, UNHELD], {}, ["changes nvidia_driver without a prediction"]),
        (
            {"container_engine": [START]},
            [STARTED, ("Change | Something", "ansible.builtin.command")],
            {},
            ["changes Change | Something without a prediction"],
        ),
        # The test broke nothing, or more than one item.
        (
            {},
            [],
            {"drifted": sample.converged_host()},
            ["the host shows no drift of service docker.service"],
        ),
        (
            {"container_engine": [START], "nvidia_driver": ["hold libcuda1"]},
            [STARTED, UNHELD],
            {"drifted": lifted_hold()},
            ["hold libcuda1 drifted, too"],
        ),
        # Afterwards.
        (
            {"container_engine": [START]},
            [STARTED],
            {"again": without_file()},
            [
                f"files.{owned.MODULES_LOAD}.content was",
                f"files.{owned.MODULES_LOAD}.exists was true and is false",
                f'files.{owned.MODULES_LOAD}.mode was "0644" and is null',
            ],
        ),
        (
            {"container_engine": [START]},
            [STARTED],
            {"again": run(sample.converged_host(), {"container_engine": []}, STARTED)},
            [
                "the next run changes container_engine in tasks ['Service | Enable and start the service']",
                "the next run acts on container_engine",
            ],
        ),
    ],
)
def test_a_wrong_repair_has_faults(
    texts: dict[str, list[str]], changed: list[tuple[str, str]], more: dict[str, Any], expected: list[str]
) -> None:
    found = faults(texts, changed, **more)
    assert len(found) == len(expected)
    assert all(fault.startswith(start) for fault, start in zip(found, expected)), found


def test_failed_tasks_are_faults() -> None:
    first = run(stopped_docker(), {"container_engine": [START]}, STARTED)
    first.entries.append({"host": "h", "task": "Rescued", "action": "ansible.builtin.command", "result": "failed"})
    assert verdict.prediction_faults(first, ITEMS, [STOPPED], sample.converged_host()) == ["has a failed task: Rescued"]


@pytest.mark.parametrize(
    ("task", "action", "expected"),
    [
        (UNHELD[0], "", "nvidia_driver"),
        ("Change | Create the driver volume", "gpufleet.hosts.nvidia_driver_volume", "driver_volume"),
        ("Change | Other", "ansible.builtin.command", "Change | Other"),
        ("other.collection.role : Task", "ansible.builtin.command", "other.collection.role : Task"),
    ],
)
def test_tasks_belong_to_parts(task: str, action: str, expected: str) -> None:
    assert verdict.part_of({"task": task, "action": action}) == expected


def without_library(host: dict[str, Any]) -> None:
    host["installed_packages"].pop("libcuda1")
    host["driver_volume"].update(changed=True, actions=[f"repair volume {sample.VOLUME}: remove 1"])


def without_daemon(host: dict[str, Any]) -> None:
    host["installed_packages"].pop("nvidia-persistenced")
    host["driver_volume"].update(changed=True, actions=[f"repair volume {sample.VOLUME}: remove 1"])


def unloaded(host: dict[str, Any]) -> None:
    host["modules_loaded"] = []
    host["driver_volume"] = None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # The volume of an incomplete driver, and the mode without the daemon, may be predicted or not.
        (without_library, {"package libcuda1"}),
        (without_daemon, {"package nvidia-persistenced"}),
        (unloaded, {"module nvidia", "module nvidia_uvm"}),
    ],
)
@pytest.mark.parametrize("names_volume", [True, False])
def test_unknown_states_are_no_faults(
    change: Callable[[dict[str, Any]], None], expected: set[str], names_volume: bool
) -> None:
    host = sample.converged_host()
    change(host)
    gone = verdict.broken(ITEMS, host, sample.converged_host())
    assert {str(item) for item in gone} == expected
    texts = {"driver_volume": [f"register {sample.VOLUME} with docker"]} if names_volume else {}
    first = run(host, texts, *([("Change", "gpufleet.hosts.nvidia_driver_volume")] if names_volume else []))
    assert verdict.prediction_faults(first, ITEMS, [], sample.converged_host()) == []


@pytest.mark.parametrize(
    ("kind", "name", "part", "text", "is_fault"),
    [
        # The role learns the names of dependencies from the package manager.
        ("hold", sample.DEPENDENCY, "nvidia_driver", "hold libcuda1, new dependencies", False),
        ("hold", sample.DEPENDENCY, "nvidia_driver", "hold libcuda1", True),
        ("package", "nvidia-smi", "nvidia_driver", "hold libcuda1, new dependencies", True),
    ],
)
def test_new_dependencies_have_no_names_yet(kind: str, name: str, part: str, text: str, is_fault: bool) -> None:
    gone = {Item("nvidia_driver", "hold", "libcuda1"), Item(part, kind, name)}
    first = run(sample.converged_host(), {part: [text]}, UNHELD)
    found = verdict.prediction_faults(first, ITEMS, gone, sample.converged_host())
    assert found == ([f"does not predict the repair of {kind} {name}"] if is_fault else [])


def restarted(host: dict[str, Any]) -> None:
    host["services"]["docker.service"]["active_since_us"] = 7
    host["accelerators"]["nvidia"]["driver"]["in_use"] = 3


def written(host: dict[str, Any]) -> None:
    file = host["files"][record.state_path(owned.STATE_DIRECTORY, owned.DAEMON_JSON)]
    file["content"] = json.dumps({**json.loads(file["content"]), "written": {"at": 1}})


def lost_record(host: dict[str, Any]) -> None:
    file = host["files"][record.state_path(owned.STATE_DIRECTORY, owned.DAEMON_JSON)]
    file["content"] = json.dumps({**json.loads(file["content"]), "entries": []})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda host: None, []),
        (restarted, []),
        (written, []),
        (lost_record, ["files./var/lib/gpufleet/docker_daemon_config/"]),
        (lambda host: host["held_packages"].pop(), ["held_packages was"]),
        (
            lambda host: host["installed_packages"].update(sl="5.02-1 amd64"),
            ['installed_packages.sl was null and is "'],
        ),
        (lambda host: host["kernel"]["kernels"][0].update(headers=False), ["kernel.kernels.0.headers was true"]),
    ],
)
def test_observations_are_compared_without_volatile_values(
    change: Callable[[dict[str, Any]], Any], expected: list[str]
) -> None:
    after = sample.converged_host()
    change(after)
    found = verdict.differences(sample.converged_host(), after)
    assert len(found) == len(expected)
    assert all(fault.startswith(start) for fault, start in zip(found, expected)), found


@pytest.mark.parametrize(
    ("names", "may_own", "expected"),
    [
        (["docker.io", "ca-certificates"], ["ca-certificates"], 0),
        (["ca-certificates", "docker.io"], ["ca-certificates", "docker.io"], 0),
        (["docker.io", "ca-certificates"], ["iptables"], 1),
        ([], ["docker.io"], 1),
    ],
)
def test_a_role_owns_what_it_installs_again(names: list[str], may_own: list[str], expected: int) -> None:
    hosts = []
    for packages in (["docker.io"], names):
        host = sample.converged_host()
        content = json.dumps({"files": {}, "packages": packages}, indent=2)
        host["files"][f"{owned.STATE_DIRECTORY}/container_engine.json"] = {"exists": True, "content": content}
        hosts.append(host)
    assert len(verdict.differences(*hosts, may_own=may_own)) == expected
