# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import cdi_refresh
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cdi_refresh import PATH_UNIT, SERVICE, Refresh

DRIVER = "580.95.05"
OFF = {"load_state": "loaded", "unit_file_state": "disabled", "active_state": "inactive"}
ON = {
    SERVICE: {"load_state": "loaded", "unit_file_state": "enabled", "active_state": "inactive"},
    PATH_UNIT: {"load_state": "loaded", "unit_file_state": "enabled", "active_state": "active"},
}
UNIT = "[Service]\nExecStart=/usr/bin/nvidia-ctk cdi generate\n"
NEW_UNIT = f"[Service]\nExecStart=-{cdi_refresh.NODES_COMMAND}\n{UNIT}"
FRESH = {"path": "/var/run/cdi/nvidia.yaml", "driver_versions": [DRIVER], "ours": False}
OURS = {"path": "/etc/cdi/gpufleet-nvidia.json", "driver_versions": [DRIVER], "ours": True}
STATIC = {"path": "/etc/cdi/nvidia.yaml", "driver_versions": ["550.163.01"], "ours": False}


def plan(
    *specs: dict[str, t.Any],
    toolkit: str | None = "1.20.1-1",
    services: dict[str, t.Any] | None = None,
    unit: str | None = NEW_UNIT,
    driver: str | None = DRIVER,
) -> Refresh:
    host: t.Any = {"cdi_specs": list(specs), "services": ON if services is None else services}
    return cdi_refresh.plan(host, toolkit, unit, driver)


def test_fresh_specification_of_the_vendor_needs_nothing() -> None:
    done = plan(FRESH)
    assert (done.owner, done.enable, done.make_nodes, done.restart) == ("vendor", [], False, False)
    assert (done.remove, done.problems) == ([], [])


@pytest.mark.parametrize(
    ("toolkit", "services", "owner"),
    [
        ("1.20.1-1", ON, "vendor"),
        ("1.18.0-1", ON, "vendor"),
        ("1.17.8-1", {}, "collection"),
        (None, {}, "collection"),
        ("1.20.1-1", {**ON, SERVICE: {**OFF, "load_state": "masked"}}, "collection"),
    ],
)
def test_owner(toolkit: str | None, services: dict[str, t.Any], owner: str) -> None:
    assert plan(OURS, toolkit=toolkit, services=services).owner == owner


@pytest.mark.parametrize(
    ("services", "enable"),
    [
        ({SERVICE: OFF, PATH_UNIT: OFF}, [PATH_UNIT, SERVICE]),
        ({**ON, PATH_UNIT: {**ON[PATH_UNIT], "active_state": "inactive"}}, [PATH_UNIT]),
        # The observation of a host without the units
        ({}, [PATH_UNIT, SERVICE]),
    ],
)
def test_units_are_enabled_by_their_names(services: dict[str, t.Any], enable: list[str]) -> None:
    assert plan(FRESH, services=services).enable == enable


@pytest.mark.parametrize(("unit", "makes"), [(UNIT, True), (NEW_UNIT, False), (None, False)])
def test_control_nodes_are_made_where_the_unit_does_not(unit: str | None, makes: bool) -> None:
    assert plan(FRESH, unit=unit).make_nodes is makes


@pytest.mark.parametrize(
    ("specs", "driver", "restarts"),
    [
        ([FRESH], DRIVER, False),
        ([], DRIVER, True),
        ([{**FRESH, "driver_versions": ["575.57.08"]}], DRIVER, True),
        ([{**FRESH, "path": "/run/cdi/nvidia.yaml"}], DRIVER, False),
        ([], None, False),
    ],
)
def test_service_is_restarted_for_a_missing_or_stale_specification(
    specs: list[dict[str, t.Any]], driver: str | None, restarts: bool
) -> None:
    assert plan(*specs, driver=driver).restart is restarts


def test_second_specifications_are_removed_or_named() -> None:
    done = plan(FRESH, OURS, STATIC)
    assert done.remove == ["/etc/cdi/gpufleet-nvidia.json"]
    (problem,) = done.problems
    assert "/etc/cdi/nvidia.yaml is a second specification nvidia.com/gpu" in problem


def test_leftover_of_a_removed_toolkit_is_named() -> None:
    (problem,) = plan(FRESH, OURS, toolkit=None, services={}).problems
    assert "/var/run/cdi/nvidia.yaml has no unit that keeps it fresh" in problem
    assert plan(OURS, toolkit=None, services={}).problems == []
