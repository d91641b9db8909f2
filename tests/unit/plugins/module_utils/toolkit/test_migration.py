# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The migration from nvidia-docker in the plan of the toolkit."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DEFAULT_PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import apt_sources
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import plan as toolkit_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import removal as toolkit_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import variables as toolkit_request
from ansible_collections.gpufleet.hosts.tests.unit.plugins import container_toolkit_samples as samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins import old_nvidia_docker as old

LISTS = "/etc/apt/sources.list.d"
NEW = "https://nvidia.github.io/libnvidia-container/stable/deb/amd64"
OLD_LIST = {f"{LISTS}/nvidia-docker.list": "deb https://nvidia.github.io/nvidia-docker/debian10/amd64 /\n"}
SHIPPED = {"path": "nvidia-container-runtime", "runtimeArgs": []}
KATA = {"kata": {"path": "/usr/bin/kata"}}
FLAG = {
    "text": "--add-runtime=nvidia=/usr/bin/nvidia-container-runtime",
    "key": "runtimes",
    "value": ["nvidia=/usr/bin/nvidia-container-runtime"],
    "place": "/etc/systemd/system/docker.service.d/override.conf",
}
ACTIVE = {"load_state": "loaded", "active_state": "active", "unit_file_state": "enabled", "active_since_us": 1}
STOPPED = old.described("train", volumes=[old.VOLUME])
RUNNING = old.described("serve", volumes=[old.VOLUME], running=True)


def host(packages: t.Mapping[str, str] | None = None, content: t.Any = None, **more: t.Any) -> dict[str, t.Any]:
    """Describe a host with Docker, old packages and a daemon.json."""
    seen = old.host(packages, **more)
    seen["services"]["docker.service"] = dict(ACTIVE)
    if content is not None:
        seen["files"][DEFAULT_PATH] = {"exists": True, "content": json.dumps(content), "mode": "0644"}
        seen["docker_daemon_json"] |= {"exists": True, "content": content}
    return seen


def plan(seen: dict[str, t.Any], **variables: t.Any) -> toolkit_plan.ToolkitPlan:
    request, there = toolkit_request.read({"migrate": True, **variables}), t.cast("t.Any", seen)
    more: dict[str, t.Any] = {"engines": {"docker": "20.10.24"}, "driver": "580.95.05"}
    first = toolkit_plan.plan(there, request, samples.PLATFORMS, **more)
    return toolkit_plan.plan(there, request, samples.PLATFORMS, samples.OFFERS, **more) if first.query else first


def with_sources(seen: dict[str, t.Any], files: t.Mapping[str, str]) -> dict[str, t.Any]:
    seen["apt"]["sources"] = [entry for path, text in files.items() for entry in apt_sources.parse(path, text)]
    return seen


WRAPPER = {"nvidia-docker2": "2.6.0-1", "nvidia-container-runtime": "3.4.2-1"}


def test_without_the_variable_nothing_is_removed() -> None:
    newer = {"nvidia-docker2": "2.14.0-1", "nvidia-container-runtime": "3.13.0-1"}
    done = plan(with_sources(host(newer, {"runtimes": {"nvidia": SHIPPED}}), OLD_LIST), migrate=False)
    assert done.transaction is not None
    assert (done.problems, done.transaction.purge, done.migration.changes, done.options) == ([], [], [], {})


@pytest.mark.parametrize(
    "packages",
    [
        WRAPPER,
        {"nvidia-container-runtime": "3.5.0-1"},
        {"nvidia-container-runtime": "2.0.0+docker18.03.1-1", "nvidia-container-runtime-hook": "1.4.0-1"},
    ],
)
def test_packages_that_conflict_with_the_toolkit_are_refused_before_any_change(packages: dict[str, str]) -> None:
    (problem,) = plan(host(packages), migrate=False).problems
    assert all(f"{name} {version}" in problem for name, version in packages.items())
    assert "Set nvidia_container_toolkit_migrate to true" in problem
    assert plan(host(packages)).problems == []


def test_old_packages_are_purged_with_the_installation_and_their_file_is_kept() -> None:
    seen = with_sources(host(WRAPPER, {"log-driver": "local", "runtimes": {"nvidia": SHIPPED, **KATA}}), OLD_LIST)
    done = plan(seen)
    assert done.problems == []
    assert done.changes[:3] == [
        "purge nvidia-container-runtime, nvidia-docker2",
        f"keep {DEFAULT_PATH} through the purge",
        f"remove {LISTS}/nvidia-docker.list",
    ]
    work = done.transaction
    assert work is not None
    assert (work.purge, work.install[0]) == (
        ["nvidia-container-runtime", "nvidia-docker2"],
        "nvidia-container-toolkit=1.20.1-1",
    )
    assert {"path": f"{LISTS}/nvidia-docker.list", "state": "absent"} in work.files
    assert [step["do"] for step in done.migration.before] == ["save"]
    assert [step["do"] for step in done.migration.after] == ["restore", "release_runtime"]
    assert [step["do"] for step in done.migration.last] == ["forget"]
    # Docker's registration is that of the role, which absent removes.
    assert done.options == {"runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}}}
    assert f"change runtimes.nvidia in {DEFAULT_PATH}" in done.changes


def test_half_installed_package_is_purged_and_the_users_file_is_kept() -> None:
    seen = host({}, {"log-driver": "local"})
    seen["package_state"]["unfinished"] = ["nvidia-docker2"]
    done = plan(seen)
    assert done.changes[:2] == ["purge nvidia-docker2", f"keep {DEFAULT_PATH} through the purge"]
    assert [step["do"] for step in done.migration.before + done.migration.after] == ["save", "restore"]


def test_empty_package_is_purged_from_a_converged_host_without_a_query() -> None:
    seen = samples.refreshed(
        samples.registered(samples.configured("debian-12", {**samples.unit(), "docker.io": "20.10.24"}))
    )
    seen["installed_packages"]["nvidia-docker2"] = "2.14.0-1 amd64"
    seen |= {"nvidia_docker": old.traces(), "package_state": {"config_files": []}}
    request = toolkit_request.read({"migrate": True})
    first = toolkit_plan.plan(
        t.cast("t.Any", seen), request, samples.PLATFORMS, engines={"docker": "20.10.24"}, driver="580.95.05"
    )
    assert first.query is None
    assert first.changes == ["purge nvidia-docker2", f"keep {DEFAULT_PATH} through the purge"]


@pytest.mark.parametrize(
    ("content", "takes"),
    [
        ({"runtimes": {"nvidia": SHIPPED}}, True),
        ({"runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime", "runtimeArgs": []}}}, True),
        ({"runtimes": {"nvidia": SHIPPED, **KATA}}, True),
        # The user's.
        ({"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}, **KATA}}, False),
        ({"runtimes": {"nvidia": {**SHIPPED, "runtimeArgs": ["--debug"]}}}, False),
        ({"runtimes": {"nvidia": {"path": "/opt/nvidia-container-runtime", "runtimeArgs": []}}}, False),
        ({"runtimes": {"nvidia": {**SHIPPED, "features": {}}}}, False),
        # Docker would not start without it.
        ({"runtimes": {"nvidia": SHIPPED}, "default-runtime": "nvidia"}, False),
        ({"runtimes": KATA}, False),
        ({}, False),
    ],
)
def test_only_the_runtime_that_the_package_registered_becomes_ours(content: dict[str, t.Any], takes: bool) -> None:
    done = plan(host(WRAPPER, content))
    assert done.migration.takes_runtime is takes
    assert (done.options == {}) is ("nvidia" in content.get("runtimes", {}) and not takes)


def test_runtime_without_the_package_is_the_users() -> None:
    done = plan(host({"nvidia-container-runtime": "3.4.2-1"}, {"runtimes": {"nvidia": SHIPPED}}))
    assert (done.migration.takes_runtime, done.options) == (False, {})


def test_flag_of_the_administrator_is_replaced_by_daemon_json() -> None:
    seen = host(WRAPPER, {})
    seen["docker_daemon_json"]["flags"] = [FLAG]
    done = plan(seen)
    assert {"do": "drop_flag", "path": FLAG["place"]} in done.migration.after
    assert done.migration.after[-1] == {"do": "reload_systemd"}
    assert done.options["runtimes"]["nvidia"]
    seen["docker_daemon_json"]["flags"] = [{**FLAG, "place": "/etc/docker-runtimes.d"}]
    assert plan(seen).options == {}


def test_clashing_entries_do_not_break_the_query() -> None:
    files = {f"{LISTS}/a.list": f"deb {NEW} /\n", f"{LISTS}/b.list": f"deb [signed-by=/k] {NEW} /\n"}
    seen = with_sources(host(), files)
    request = toolkit_request.read({"migrate": True})
    first = toolkit_plan.plan(t.cast("t.Any", seen), request, samples.PLATFORMS, engines={"docker": "20.10.24"})
    assert first.query is not None
    assert first.query["files"] == [{"path": path, "state": "absent"} for path in files]
    # Only the role's own entry remains.
    assert [one["url"] for one in first.query["repositories"]] == [NEW]


@pytest.mark.parametrize(
    ("containers", "remove", "steps", "reason"),
    [
        ([], False, ["mark_restart", "remove_volume", "stop_unit"], None),
        ([STOPPED], False, [], "train (stopped). Create them again"),
        ([STOPPED], True, ["mark_restart", "remove_container", "remove_volume", "stop_unit"], None),
        ([RUNNING], True, [], "serve (running). Create them again"),
        ([STOPPED, RUNNING], True, ["remove_container"], "serve (running)"),
        ([old.described("web", runtime="kata")], False, ["mark_restart", "remove_volume", "stop_unit"], None),
    ],
)
def test_plugin_goes_only_when_no_container_needs_it(
    containers: list[dict[str, t.Any]], remove: bool, steps: list[str], reason: str | None
) -> None:
    service = {"load_state": "loaded", "active_state": "active", "unit_file_state": "enabled"}
    files = ["/etc/docker/plugins/nvidia-docker.spec", "/var/lib/nvidia-docker"]
    more = {"files": files, "has_user": True, "service": service, "answers": True, "volumes": [old.VOLUME]}
    seen = host({"nvidia-docker": "1.0.1-1"}, {"runtimes": KATA}, containers=containers, **more)
    done = plan(seen, migrate_remove_containers=remove)
    assert [step["do"] for step in done.migration.before if step["do"] != "save"] == steps
    assert (reason or "") in done.reason
    goes = reason is None
    assert (
        "nvidia-docker" in done.migration.purge,
        any("/var/lib/nvidia-docker" in text for text in done.changes),
    ) == (
        goes,
        goes,
    )
    assert ("remove user nvidia-docker" in done.changes) is goes
    # Docker waits for a plugin that it has used until it starts again.
    restart = "the volume plugin of nvidia-docker 1.0, which Docker remembers"
    assert (restart in done.restart, f"restart docker.service for {restart}" in done.changes) == (goes, goes)


def test_docker_that_does_not_run_keeps_the_plugin() -> None:
    seen = host({"nvidia-docker": "1.0.1-1"}, volumes=[old.VOLUME])
    seen["services"]["docker.service"]["active_state"] = "inactive"
    done = plan(seen)
    assert (done.migration.purge, done.migration.before) == ([], [])
    assert "the volume plugin stays, because Docker does not run" in done.reason


def test_containers_of_unknown_runtimes_are_named_before_any_change() -> None:
    seen = host(WRAPPER, {"runtimes": {"nvidia": SHIPPED}}, containers=[old.described("old", runtime="nvidia-old")])
    assert "containers with unknown runtimes cannot start: old (stopped)" in plan(seen).reason


def test_absent_removes_what_a_migration_saved() -> None:
    seen = samples.host("debian-12", {"docker.io": "20.10.24"})
    assert toolkit_removal.plan(t.cast("t.Any", seen)).has_saved is False
    seen["files"][owned.MIGRATION] = {"exists": True, "content": None}
    done = toolkit_removal.plan(t.cast("t.Any", seen))
    assert (done.acts, done.changes) == (True, [f"remove {owned.MIGRATION}"])


def test_absent_keeps_what_a_package_from_before_the_role_requires() -> None:
    found = samples.unit()
    base, toolkit = "nvidia-container-toolkit-base", "nvidia-container-toolkit"
    # The role upgraded a toolkit from before version 1.11, which had no base.
    seen = samples.host("debian-12", found, files=samples.recorded(base))
    kept = toolkit_removal.plan(t.cast("t.Any", seen))
    assert kept.packages == []
    assert kept.reasons == [f"{base} stays, because {toolkit} was installed before this role and requires it"]
    seen["files"].update(samples.recorded(*found))
    assert toolkit_removal.plan(t.cast("t.Any", seen)).packages == list(found)
