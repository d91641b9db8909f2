# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import own_cdi_units, toolkit_cdi_units
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.own_cdi_units import UNIT, OwnCdi

DRIVER, DIGEST = "580.95.05", "d1"
PROGRAM_FILE, UNIT_FILE = owned.CDI_PROGRAM, owned.CDI_UNIT
ON = {"load_state": "loaded", "unit_file_state": "enabled", "active_state": "active"}
OFF = {**ON, "unit_file_state": "disabled", "active_state": "inactive"}
DOCKER = {"docker.service": ON}
FRESH = {"path": "/var/run/cdi/gpufleet-nvidia.json", "driver_versions": [DRIVER], "uuids": ["GPU-1"], "ours": True}
BY_HAND = {**FRESH, "path": "/etc/cdi/gpufleet-nvidia.json"}
STATIC = {"path": "/etc/cdi/nvidia.yaml", "driver_versions": [DRIVER], "uuids": [], "ours": False}
WRITE = f"refresh the CDI specification /run/cdi/gpufleet-nvidia.json for driver {DRIVER}"


def host(*specs: dict[str, t.Any], unit: t.Any = None, services: t.Any = None, **files: str | None) -> t.Any:
    """Describe a host. `program` and `unit_text` are the contents of the files of the role."""
    texts = {PROGRAM_FILE: files.get("program"), UNIT_FILE: files.get("unit_text")}
    return {
        "python": "/usr/bin/python3.11",
        "root_python": "/usr/bin/python3.11",
        "cdi_specs": list(specs),
        "services": {**DOCKER, **({UNIT: unit} if unit else {})} if services is None else services,
        "files": {path: {"exists": text is not None, "content": text} for path, text in texts.items()},
    }


def plan(seen: t.Any, driver: str | None = DRIVER, digest: str | None = DIGEST, **more: bool) -> OwnCdi:
    return own_cdi_units.plan(seen, driver, lambda: digest, **more)


def written(seen: t.Any) -> str:
    text = plan(seen).files[UNIT_FILE]
    assert text is not None
    return text


UNIT_TEXT = written(host())


def installed(*specs: dict[str, t.Any], **more: t.Any) -> t.Any:
    return host(*specs, **{"unit": ON, "program": DIGEST, "unit_text": UNIT_TEXT, **more})


def test_new_host_gets_the_program_and_the_unit() -> None:
    done = plan(host(BY_HAND))
    assert done.changes == [
        "remove /etc/cdi/gpufleet-nvidia.json",
        f"write {PROGRAM_FILE}",
        f"write {UNIT_FILE}",
        "reload systemd",
        f"enable {UNIT}",
        WRITE,
    ]
    assert done.options is not None
    assert done.options["path"] == "/run/cdi/gpufleet-nvidia.json"
    assert not done.is_known


def test_unit_runs_the_program_with_the_python_of_the_modules_before_the_engines() -> None:
    lines = UNIT_TEXT.splitlines()
    assert f"ExecStart=/usr/bin/python3.11 -I {PROGRAM_FILE}" in lines
    (before,) = [line for line in lines if line.startswith("Before=")]
    assert {"docker.service", "containerd.service", "podman-restart.service"} <= set(before[7:].split())
    # A unit that can start after multi-user.target would close a cycle, which systemd breaks by dropping a unit.
    (after,) = [line for line in lines if line.startswith("After=")]
    assert after == "After=systemd-modules-load.service nvidia-persistenced.service"


@pytest.mark.parametrize(
    ("seen", "more", "changes"),
    [
        (installed(FRESH), {}, []),
        (installed({**FRESH, "path": "/run/cdi/gpufleet-nvidia.json"}), {}, []),
        (installed(FRESH, program="other"), {}, [f"write {PROGRAM_FILE}", WRITE]),
        (installed(FRESH, unit_text="other"), {}, [f"write {UNIT_FILE}", "reload systemd", WRITE]),
        (installed(FRESH, unit={**ON, "need_daemon_reload": True}), {}, ["reload systemd"]),
        (installed(FRESH, unit=OFF), {}, [f"enable {UNIT}"]),
        (installed(), {}, [WRITE]),
        (installed({**FRESH, "driver_versions": ["575.57.08"]}), {}, [WRITE]),
        (installed(FRESH), {"has_new_driver": True}, [WRITE]),
        # The unit writes the specification when the driver is loaded at the next boot.
        (installed(), {"driver": None}, []),
        (installed(FRESH, BY_HAND), {}, ["remove /etc/cdi/gpufleet-nvidia.json"]),
    ],
)
def test_only_what_differs_is_changed(seen: t.Any, more: dict[str, t.Any], changes: list[str]) -> None:
    assert plan(seen, **more).changes == changes


FILES_REMOVED = [f"remove {UNIT_FILE}, {PROGRAM_FILE}", "reload systemd"]
REMOVED = [f"disable {UNIT}", f"remove {FRESH['path']}, {UNIT_FILE}, {PROGRAM_FILE}", "reload systemd"]


@pytest.mark.parametrize(
    ("services", "specs", "reason"),
    [
        (dict.fromkeys(toolkit_cdi_units.UNITS, ON), [], "nvidia-cdi-refresh.path of NVIDIA's container toolkit is"),
        ({toolkit_cdi_units.SERVICE: ON}, [], "nvidia-cdi-refresh.service of NVIDIA's container toolkit is enabled"),
        ({}, [STATIC], "CDI specifications of the GPUs (/etc/cdi/nvidia.yaml), so the role writes none"),
    ],
)
def test_another_owner_of_the_devices_keeps_them(services: t.Any, specs: list[t.Any], reason: str) -> None:
    both = {**DOCKER, **services}
    fresh = plan(host(*specs, services=both))
    assert (fresh.changes, len(fresh.reasons)) == ([], 1)
    assert reason in fresh.reasons[0]
    # Engines reject two specifications of the same devices.
    assert plan(installed(FRESH, *specs, services={**both, UNIT: ON})).changes == REMOVED


def test_units_of_the_toolkit_that_are_off_own_nothing() -> None:
    off = dict.fromkeys(toolkit_cdi_units.UNITS, OFF)
    assert plan(installed(FRESH, services={**DOCKER, **off, UNIT: ON})).changes == []


@pytest.mark.parametrize(
    ("services", "reason"),
    [({}, "systemd is not running"), ({**DOCKER, UNIT: {"load_state": "masked"}}, f"{UNIT} is masked")],
)
def test_host_without_a_usable_unit_stays_as_it_is(services: t.Any, reason: str) -> None:
    done = plan(host(BY_HAND, services=services))
    assert (done.changes, done.problems) == ([], [])
    assert reason in done.reasons[0]


def test_controller_without_the_binding_is_refused_before_any_change() -> None:
    done = plan(host(), digest=None)
    assert done.changes == []
    assert "nvidia-ml-py" in done.problems[0]


@pytest.mark.parametrize(
    ("seen", "besides", "changes"),
    [
        (host(BY_HAND), (), []),
        (installed(FRESH, BY_HAND), (), REMOVED),
        (installed(FRESH), (FRESH["path"],), [REMOVED[0], *FILES_REMOVED]),
        # An interrupted removal.
        (host(program=DIGEST), (), [f"remove {PROGRAM_FILE}", "reload systemd"]),
        (installed(unit=OFF), (), FILES_REMOVED),
        # The unit fails on a host whose driver is gone.
        (installed(unit={**OFF, "active_state": "failed"}), (), [REMOVED[0], *FILES_REMOVED]),
    ],
)
def test_removal_leaves_no_trace(seen: t.Any, besides: tuple[str, ...], changes: list[str]) -> None:
    assert own_cdi_units.removal(seen, besides).changes == changes


def test_unit_of_root_runs_no_python_that_a_user_can_replace() -> None:
    seen = {**host(), "python": "/home/alice/venv/bin/python"}
    assert "ExecStart=/usr/bin/python3.11 -I" in written(seen)
    done = plan({**seen, "root_python": None})
    assert (done.changes, done.files) == ([], {})
    assert "can replace /home/alice/venv/bin/python" in done.problems[0]


def test_specification_with_other_nodes_is_written_again() -> None:
    seen = installed(FRESH)
    assert own_cdi_units.plan(seen, DRIVER, lambda: DIGEST, changed={"/run/cdi/gpufleet-nvidia.json"}).changes == [
        WRITE
    ]


def test_specification_of_another_writer_is_not_written_again() -> None:
    done = own_cdi_units.plan(host(STATIC), DRIVER, lambda: DIGEST, changed={"/etc/cdi/nvidia.yaml"})
    assert (done.changes, done.restart) == ([], False)
