# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toolkit_cdi_units
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toolkit_cdi_units import (
    PATH_UNIT,
    SERVICE,
    Refresh,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins import declared

DRIVER = "580.95.05"
OFF = {"load_state": "loaded", "unit_file_state": "disabled", "active_state": "inactive"}
FRAGMENT = f"/usr/lib/systemd/system/{SERVICE}"
ON = {
    SERVICE: {"load_state": "loaded", "unit_file_state": "enabled", "fragment_path": FRAGMENT},
    PATH_UNIT: {"load_state": "loaded", "unit_file_state": "enabled", "active_state": "active"},
}
NO_UNITS = {unit: {"load_state": "not-found"} for unit in toolkit_cdi_units.UNITS}
UNIT = "[Service]\nExecStart=/usr/bin/nvidia-ctk cdi generate\n"
NEW_UNIT = f"[Service]\nExecStart=-/usr/bin/nvidia-ctk system create-device-nodes --control-devices\n{UNIT}"
DROP_IN = owned.CDI_REFRESH_DROP_IN
FRESH = {"path": "/var/run/cdi/nvidia.yaml", "driver_versions": [DRIVER], "uuids": ["GPU-1"], "ours": False}
REFRESHES = f"refresh the CDI specification /var/run/cdi/nvidia.yaml for driver {DRIVER}"
OURS = {"path": "/etc/cdi/gpufleet-nvidia.json", "driver_versions": [DRIVER], "uuids": ["GPU-1"], "ours": True}
STATIC = {"path": "/etc/cdi/nvidia.yaml", "driver_versions": ["550.163.01"], "uuids": [], "ours": False}


def plan(
    *specs: dict[str, t.Any],
    toolkit: str | None = "1.20.1-1",
    services: dict[str, t.Any] | None = None,
    files: dict[str, str] | None = None,
    driver: str | None = DRIVER,
    **more: t.Any,
) -> Refresh:
    texts = {FRAGMENT: NEW_UNIT, **(files or {})}
    host: t.Any = {
        "cdi_specs": list(specs),
        "services": ON if services is None else services,
        "files": {path: {"exists": True, "content": text} for path, text in texts.items()},
    }
    return toolkit_cdi_units.plan(host, toolkit, driver, **more)


def test_fresh_specification_of_enabled_units_needs_nothing() -> None:
    done = plan(FRESH)
    assert (done.specification, done.changes, done.reasons, done.reload) == ("/var/run/cdi/nvidia.yaml", [], [], False)


def test_specification_that_nobody_can_write_yet_is_not_refreshed() -> None:
    done = plan(waits="a reboot comes first")
    assert (done.restart, done.changes, done.reasons) == (False, [], ["a reboot comes first"])
    fresh = plan(FRESH, waits="a reboot comes first")
    assert (fresh.restart, fresh.reasons) == (False, [])


def test_new_toolkit_gets_its_units_enabled_and_the_specification_written() -> None:
    done = plan(OURS, toolkit="1.20.0-1", services=NO_UNITS, installs=True)
    assert done.changes == [
        f"write {DROP_IN}",
        "reload systemd",
        f"enable {PATH_UNIT}",
        f"enable {SERVICE}",
        f"refresh the CDI specification /var/run/cdi/nvidia.yaml for driver {DRIVER}",
        "remove /etc/cdi/gpufleet-nvidia.json",
    ]
    assert done.is_known is False


@pytest.mark.parametrize(
    ("toolkit", "services", "installs", "reason"),
    [
        ("1.17.8-1", NO_UNITS, True, f"the toolkit 1.17.8-1 has no {SERVICE}"),
        # Packages of others may lack the units.
        ("1.20.1-1", NO_UNITS, False, f"the toolkit 1.20.1-1 has no {SERVICE}"),
        ("1.20.1-1", {**ON, SERVICE: {**OFF, "load_state": "masked"}}, False, "is masked"),
        ("1.20.1-1", {}, True, "systemd is not running"),
    ],
)
def test_host_without_usable_units_stays_as_it_is(
    toolkit: str, services: dict[str, t.Any], installs: bool, reason: str
) -> None:
    done = plan(OURS, toolkit=toolkit, services=services, installs=installs)
    assert (done.specification, done.changes) == (None, [])
    assert reason in " ".join(done.reasons)


@pytest.mark.parametrize(
    ("services", "enable"),
    [
        ({SERVICE: OFF, PATH_UNIT: OFF}, [PATH_UNIT, SERVICE]),
        ({**ON, PATH_UNIT: {**ON[PATH_UNIT], "active_state": "inactive"}}, [PATH_UNIT]),
    ],
)
def test_units_are_enabled(services: dict[str, t.Any], enable: list[str]) -> None:
    assert plan(FRESH, services=services).enable == enable


@pytest.mark.parametrize(
    ("files", "changes"),
    [
        ({FRAGMENT: UNIT}, [f"write {DROP_IN}", "reload systemd", REFRESHES]),
        ({FRAGMENT: UNIT, DROP_IN: toolkit_cdi_units.DROP_IN}, []),
        ({FRAGMENT: UNIT, DROP_IN: "[Service]\n"}, [f"write {DROP_IN}", "reload systemd", REFRESHES]),
        # The unit of a newer version creates the nodes itself.
        ({DROP_IN: toolkit_cdi_units.DROP_IN}, [f"remove {DROP_IN}", "reload systemd"]),
    ],
)
def test_drop_in_creates_the_control_nodes_where_the_unit_does_not(files: dict[str, str], changes: list[str]) -> None:
    assert plan(FRESH, files=files).changes == changes


def test_systemd_reads_the_drop_in_of_an_interrupted_run() -> None:
    unread = {**ON, SERVICE: {**ON[SERVICE], "need_daemon_reload": True}}
    assert plan(FRESH, services=unread, files={FRAGMENT: UNIT, DROP_IN: toolkit_cdi_units.DROP_IN}).changes == [
        "reload systemd"
    ]
    # A unit file that somebody else changed is theirs to read.
    assert plan(FRESH, services=unread).changes == []


@pytest.mark.parametrize(
    ("specs", "driver", "new", "restarts"),
    [
        ([FRESH], DRIVER, False, False),
        ([FRESH], DRIVER, True, True),
        ([], DRIVER, False, True),
        ([{**FRESH, "driver_versions": ["575.57.08"]}], DRIVER, False, True),
        ([{**FRESH, "path": "/run/cdi/nvidia.yaml"}], DRIVER, False, False),
        ([], None, True, False),
    ],
)
def test_specification_is_written_if_it_is_missing_or_the_driver_changes(
    specs: list[dict[str, t.Any]], driver: str | None, new: bool, restarts: bool
) -> None:
    assert plan(*specs, driver=driver, has_new_driver=new).restart is restarts


def test_output_of_the_unit_can_be_another_file() -> None:
    text = "# the default\n#NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/x\nNVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/etc/cdi/nvidia.yaml\n"
    spec = {**STATIC, "driver_versions": [DRIVER]}
    done = plan(spec, files={toolkit_cdi_units.ENVIRONMENT: text})
    assert (done.specification, done.changes, done.reasons) == ("/etc/cdi/nvidia.yaml", [], [])


def test_second_specifications_are_removed_or_named() -> None:
    done = plan(FRESH, OURS, STATIC)
    assert done.remove == ["/etc/cdi/gpufleet-nvidia.json"]
    (reason,) = done.reasons
    assert "/var/run/cdi/nvidia.yaml overrides /etc/cdi/nvidia.yaml" in reason


def test_observation_reads_all_files_of_the_units() -> None:
    assert set(toolkit_cdi_units.FILES) <= set(declared.FILES)


def test_specification_with_other_nodes_is_written_again() -> None:
    assert plan(FRESH, changed={"/run/cdi/nvidia.yaml"}).changes == [REFRESHES]
    waiting = plan(FRESH, changed={"/run/cdi/nvidia.yaml"}, waits="no MIG devices")
    assert (waiting.restart, waiting.changes) == (False, [])


def test_specification_of_another_writer_is_not_written_again() -> None:
    assert plan(FRESH, STATIC, changed={"/etc/cdi/nvidia.yaml"}).changes == []
