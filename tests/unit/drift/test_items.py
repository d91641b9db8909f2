# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of items that the drift test breaks: complete for a host, and an error for what it does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Declaration
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import own_cdi_units
from ansible_collections.gpufleet.hosts.tests.drift import items as drift_items
from ansible_collections.gpufleet.hosts.tests.drift.items import Item, UnknownKind
from ansible_collections.gpufleet.hosts.tests.drift.run import platforms
from ansible_collections.gpufleet.hosts.tests.unit.drift import converged_host as sample

OWN_CDI_FILES = {owned.CDI_PROGRAM, owned.CDI_UNIT}


def listed(host: dict[str, Any] | None = None, **by_role: dict[str, Any]) -> list[Item]:
    known = sample.values(**by_role)
    return drift_items.items(host or sample.converged_host(), known, platforms(sample.KEY))


def of_kind(found: list[Item], kind: str) -> set[str]:
    return {item.name for item in found if item.kind == kind}


def test_the_sample_is_converged() -> None:
    context = Context(host=sample.converged_host(), values=sample.values(), platforms=platforms(sample.KEY))
    parts = site_plan.plan(context, registry.PARTS)
    assert [name for name, part in parts.items() if part.acts or part.errors] == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("package", {*sample.DRIVER_PACKAGES, *sample.OTHER_PACKAGES}),
        # Also dependencies that no list of packages names.
        ("hold", {*sample.DRIVER_PACKAGES, sample.DEPENDENCY}),
        (
            "file",
            {
                owned.DRIVER_APT_PREFERENCES,
                owned.DRIVER_UNATTENDED_UPGRADES,
                owned.MODULES_LOAD,
                owned.UVM_RULE,
                owned.PERSISTENCED_DROP_IN,
            },
        ),
        ("service", {"docker.service", "nvidia-persistenced.service"}),
        ("module", {"nvidia", "nvidia_uvm"}),
        ("build", {sample.KERNEL}),
        ("option", {"live-restore", "features.cdi"}),
        ("volume", {sample.VOLUME}),
        ("registration", {"docker"}),
        ("persistence_mode", {"0000:00:00.0", "0000:01:00.0"}),
    ],
)
def test_the_list_contains_everything_that_the_roles_manage(kind: str, expected: set[str]) -> None:
    assert of_kind(listed(), kind) == expected


def test_the_kinds_are_complete() -> None:
    assert {item.kind for item in listed()} == set(drift_items.VERBS)


def test_settings_of_the_user_become_items() -> None:
    host = sample.converged_host()
    host["docker_daemon_json"]["content"]["log-opts"] = {"max-size": "7m"}
    host["files"][owned.MODPROBE] = {"exists": True, "content": "options nvidia A=1\n", "mode": "0644"}
    found = listed(
        host,
        container_engine={"docker_options": {"log-opts": {"max-size": "7m"}}},
        nvidia_driver={"module_options": {"nvidia": {"A": 1}}},
    )
    assert "log-opts.max-size" in of_kind(found, "option")
    assert owned.MODPROBE in of_kind(found, "file")


def test_program_that_writes_the_cdi_specification_becomes_items() -> None:
    host = sample.converged_host()
    host["engines"]["docker"]["version"] = "26.1.5"
    host["files"] |= {path: {"exists": True, "content": "x", "mode": "0644"} for path in OWN_CDI_FILES}
    host["services"][own_cdi_units.UNIT] = {**host["services"]["docker.service"]}
    found = listed(host, nvidia_container_toolkit={"source": "none", "isolations": ["cdi"]})
    assert of_kind(found, "file") >= OWN_CDI_FILES
    assert own_cdi_units.UNIT in of_kind(found, "service")


def test_a_host_without_gpu_has_only_its_engine() -> None:
    host = sample.converged_host()
    host["accelerators"]["nvidia"]["gpus"] = host["accelerators"]["nvidia"]["device_ids"] = []
    host["driver_volume"] = None
    assert {item.part for item in listed(host)} == {"container_engine"}


def test_an_item_that_the_host_lacks_is_an_error() -> None:
    host = sample.converged_host()
    host["modules_loaded"] = ["nvidia"]
    with pytest.raises(UnknownKind, match="not on the converged host: module nvidia_uvm"):
        listed(host)


# --- what the test does not know ---


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (steps.setting("vm.nr_hugepages", "set vm.nr_hugepages", "sysctl"), "sysctl vm.nr_hugepages, which the drift"),
        (steps.own("sysctl", "set vm.nr_hugepages to 1"), r"sysctl keeps nothing \(set vm.nr_hugepages to 1\)"),
    ],
)
def test_a_step_that_keeps_something_unknown_is_an_error(step: steps.Step, error: str) -> None:
    with pytest.raises(UnknownKind, match=error):
        drift_items.in_plan("nvidia_driver", {"steps": plain([step])}, sample.converged_host())


def test_an_unknown_part_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = Declaration(name="nvidia_dcgm", plan=lambda _context, _parts: Part())
    monkeypatch.setitem(registry.BY_NAME, unknown.name, unknown)
    monkeypatch.setattr(registry, "PARTS", (*registry.PARTS, unknown.name))
    with pytest.raises(UnknownKind, match="nvidia_dcgm"):
        listed()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("install docker.io, iptables", False),
        ("load nvidia, nvidia_uvm", False),
        ("reload udev rules", False),
        ("set vm.nr_hugepages", True),
        ("install nvidia-container-toolkit", True),
        ("write /etc/sysctl.d/gpufleet.conf", True),
    ],
)
def test_a_text_of_a_plan_has_to_name_an_item(text: str, expected: bool) -> None:
    assert drift_items.without_items(text, listed()) is expected


# --- names in texts ---


@pytest.mark.parametrize(
    ("kind", "name", "text", "expected"),
    [
        ("package", "docker.io", "install docker.io, docker-cli", True),
        ("package", "docker", "install docker.io, docker-cli", False),
        ("package", "nvidia-smi", "install the driver 550.1: nvidia-smi=550.1-2", True),
        ("package", "nvidia-smi", "hold nvidia-smi", False),
        ("hold", "nvidia-smi", "hold libcuda1, nvidia-smi", True),
        ("hold", "nvidia-smi", "release the hold on nvidia-smi", False),
        ("file", "/etc/a", "write /etc/a.d/x, /etc/a", True),
        ("file", "/etc/a", "write /etc/a.d/x", False),
        ("file", "/etc/a", "remove /etc/a", False),
        ("service", "docker.service", "enable and start docker.service", True),
        ("service", "docker.service", "unmask docker.service", True),
        ("service", "docker.service", "apply the pending options x of docker.service", False),
        ("module", "nvidia", "load nvidia_uvm", False),
        ("module", "nvidia", "load nvidia, nvidia_uvm", True),
        ("option", "features.cdi", f"change features, live-restore in {owned.DAEMON_JSON}", True),
        ("option", "features.cdi", f"change live-restore in {owned.DAEMON_JSON}", False),
        ("option", "live-restore", f"change features.live-restore in {owned.DAEMON_JSON}", False),
        ("volume", sample.VOLUME, f"repair volume {sample.VOLUME}: add 1, replace 0, remove 0 of its files", True),
        ("volume", sample.VOLUME, f"register {sample.VOLUME} with docker", False),
        ("volume", sample.VOLUME, f"create the driver volume once driver {sample.VERSION} is loaded", True),
        ("registration", "docker", f"register {sample.VOLUME} with docker", True),
        ("registration", "docker", "create the driver volume once driver 550.1 is loaded", False),
        ("persistence_mode", "0000:01:00.0", "turn on persistence mode of GPU 0000:01:00.0 (T4)", True),
    ],
)
def test_texts_name_items_exactly(kind: str, name: str, text: str, expected: bool) -> None:
    assert drift_items.names(Item("any", kind, name), text) is expected


# --- states ---


def unload(host: dict[str, Any]) -> None:
    host["modules_loaded"].remove("nvidia_uvm")


def change_volume(host: dict[str, Any]) -> None:
    host["driver_volume"]["actions"] = [f"repair volume {sample.VOLUME}: add 1"]


def unregister(host: dict[str, Any]) -> None:
    host["driver_volume"]["actions"] = [f"register {sample.VOLUME} with docker"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda host: None, set()),
        (lambda host: host["installed_packages"].pop("libcuda1"), {"package libcuda1"}),
        (lambda host: host["held_packages"].remove("libcuda1"), {"hold libcuda1"}),
        (lambda host: host["files"][owned.MODULES_LOAD].update(content="x"), {f"file {owned.MODULES_LOAD}"}),
        (lambda host: host["files"][owned.MODULES_LOAD].update(mode="0600"), {f"file {owned.MODULES_LOAD}"}),
        (lambda host: host["files"].update({owned.MODULES_LOAD: drift_items.NO_FILE}), {f"file {owned.MODULES_LOAD}"}),
        (lambda host: host["services"]["docker.service"].update(active_state="failed"), {"service docker.service"}),
        (lambda host: host["services"]["docker.service"].update(load_state="masked"), {"service docker.service"}),
        (lambda host: host["services"]["docker.service"].update(active_since_us=7), set()),
        (
            lambda host: host["services"]["nvidia-persistenced.service"].update(active_state="inactive"),
            {"service nvidia-persistenced.service"},
        ),
        (unload, {"module nvidia_uvm"}),
        (lambda host: host["kernel"]["kernels"][0].update(nvidia_module=None), {f"build {sample.KERNEL}"}),
        (lambda host: host["docker_daemon_json"].update(content={"live-restore": True}), {"option features.cdi"}),
        (
            lambda host: host["docker_daemon_json"].update(content=None),
            {"option features.cdi", "option live-restore"},
        ),
        (change_volume, {f"volume {sample.VOLUME}"}),
        (unregister, {"registration docker"}),
    ],
)
def test_broken_items_are_recognized(change: Callable[[dict[str, Any]], Any], expected: set[str]) -> None:
    known, changed = listed(), sample.converged_host()
    change(changed)
    converged = sample.converged_host()
    assert {str(item) for item in known if not drift_items.is_intact(item, changed, converged)} == expected
