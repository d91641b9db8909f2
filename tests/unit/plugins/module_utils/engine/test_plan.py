# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import password_digests, record
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import plan as daemon_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DEFAULT_PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.managed_keys import EMPTY_RECORD
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.secret_masking import masked_file
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import plan as engine_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.plan import RECORD_FILE, EnginePlan, Service
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.variables import EngineRequest

SUPPORT = ["ca-certificates", "iptables", "python3-requests"]
PLATFORMS: dict[str, t.Any] = {
    "debian-12": {
        "docker": {"support": SUPPORT, "distribution": {"packages": ["docker.io"], "version": "20.10.24"}},
        "podman": {
            "support": ["iptables"],
            "distribution": {"packages": ["podman", "crun"], "version": "4.3.1"},
        },
    },
    "debian-13": {
        "docker": {
            "support": SUPPORT,
            "distribution": {
                "packages": ["docker.io", "docker-cli"],
                "lockstep": ["docker.io", "docker-cli"],
                "version": "26.1.5",
            },
        },
        "podman": {"support": ["nftables"], "distribution": {"packages": ["podman"], "version": "5.4.2"}},
    },
}
RUNNING = {
    "load_state": "loaded",
    "active_state": "active",
    "unit_file_state": "enabled",
    "fragment_path": "/lib/systemd/system/docker.service",
}
MACHINE = "5f3ab1c29d6e4b0f8a7c6d5e4f3a2b1c"
NO_UNIT = {"load_state": "not-found", "active_state": "inactive", "unit_file_state": None, "fragment_path": None}


def settings(name: str = "docker", source: str = "auto", **options: t.Any) -> EngineRequest:
    return EngineRequest(name=name, source=source, **options)


def plan(seen: dict[str, t.Any], request: EngineRequest) -> EnginePlan:
    return engine_plan.plan(seen, request, PLATFORMS)


def host(key: str | None = "debian-12", packages: tuple[str, ...] = (), **more: t.Any) -> dict[str, t.Any]:
    docker = next((name for name in ("docker-ce", "docker.io") if name in packages), None)
    version = {"docker-ce": "5:27.3.1-1~debian.12~bookworm", "docker.io": "24.0.9-1"}.get(docker or "")
    seen: dict[str, t.Any] = {
        "os": {"key": key, "name": f"Some {key}", "package_manager": "apt"},
        "apt": {"sources": []},
        "held_packages": [],
        "accelerators": {"nvidia": {"gpus": []}},
        "engine_processes": {"containers": {}, "rootless_docker": []},
        "uid": 0,
        "identity": {"machine_id": MACHINE},
        "installed_packages": dict.fromkeys(("dpkg", *packages), "1 amd64"),
        "services": {"docker.service": RUNNING if docker else NO_UNIT, "containerd.service": NO_UNIT},
        "engines": {
            "docker": {"package": docker, "version": version, "info": None},
            "podman": {"package": "podman" if "podman" in packages else None, "version": "4.3.1"},
            "containerd": {"package": None, "version": None},
        },
        "docker_daemon_json": {
            "flags": [],
            "applied": True,
            "in_swarm": False,
            "digests": {"file": [], "record": {}},
        },
        "files": {DEFAULT_PATH: {"exists": False, "content": None}, RECORD_FILE: {"content": None}},
    }
    seen.update(more)
    return seen


def with_daemon_json(seen: dict[str, t.Any], text: str, state: record.State | None = None) -> dict[str, t.Any]:
    seen["files"][DEFAULT_PATH] = {"exists": True, "content": text}
    seen["files"][RECORD_FILE] = {"content": record.dump_state(state) if state else None}
    return seen


def masked(seen: dict[str, t.Any]) -> dict[str, t.Any]:
    """Mask the passwords as the observation does."""
    text, recorded = seen["files"][DEFAULT_PATH]["content"], seen["files"][RECORD_FILE]["content"]
    seen["docker_daemon_json"]["digests"] = {
        "file": sorted(password_digests.of_tree(json.loads(text), MACHINE)),
        "record": password_digests.of_record(record.load_state(recorded, "x").record, MACHINE),
    }
    seen["files"] = {
        DEFAULT_PATH: {"exists": True, "content": masked_file(text)},
        RECORD_FILE: {"content": record.masked_record(recorded, "x")},
    }
    return seen


def converged(options: dict[str, t.Any]) -> dict[str, t.Any]:
    done = daemon_plan.plan(
        None,
        record.State(EMPTY_RECORD),
        engine_plan.MANAGER,
        options,
        present=True,
        lists="union",
        flags=[],
        path=DEFAULT_PATH,
    )
    return with_daemon_json(host(packages=("docker.io", *SUPPORT)), done.text or "", done.state)


def test_docker_is_installed_on_a_bare_host() -> None:
    done = plan(host(), settings())
    assert done.problems == []
    assert done.packages == ["docker.io", *SUPPORT]
    assert done.options == {"live-restore": True}
    assert done.config_needed
    assert done.service == Service("docker.service", is_known=False, enable=True, start=True, needed=True)
    assert done.reason == "docker is not installed; the role installs it from Some debian-12"
    assert done.acts
    assert done.changes == [
        "install docker.io, ca-certificates, iptables, python3-requests",
        "change live-restore in /etc/docker/daemon.json",
        "enable and start docker.service",
    ]


def test_debian_13_gets_the_client_and_cdi() -> None:
    done = plan(host("debian-13"), settings())
    assert "docker-cli" in done.packages
    assert done.options == {"live-restore": True, "features": {"cdi": True}}


def test_converged_host_needs_no_change() -> None:
    done = plan(converged({"live-restore": True}), settings())
    assert (done.problems, done.packages, done.config_needed) == ([], [], False)
    assert done.service is not None
    assert not done.service.needed
    assert (done.acts, done.changes) == (False, [])


MASKED = {"load_state": "masked", "unit_file_state": "masked", "active_state": "inactive", "fragment_path": None}
DRIFTS = [
    ({**RUNNING, "active_state": "inactive"}, ["start docker.service"]),
    ({**RUNNING, "active_state": "failed", "unit_file_state": "disabled"}, ["enable and start docker.service"]),
    ({**RUNNING, "unit_file_state": "disabled"}, ["enable docker.service"]),
    ({**RUNNING, "unit_file_state": "enabled-runtime"}, ["enable docker.service"]),
    (MASKED, ["unmask docker.service", "enable and start docker.service"]),
    ({**MASKED, "active_state": "active"}, ["unmask docker.service", "enable docker.service"]),
]


@pytest.mark.parametrize(("service", "expected"), DRIFTS)
def test_unit_that_somebody_changed_is_repaired(service: dict[str, t.Any], expected: list[str]) -> None:
    seen = converged({"live-restore": True})
    seen["services"]["docker.service"] = service
    done = plan(seen, settings())
    assert (done.problems, done.changes, done.acts) == ([], expected, True)
    assert done.service is not None
    assert done.service.is_known
    is_masked = service["load_state"] == "masked"
    assert done.service.unmask == (["docker.service"] if is_masked else [])
    assert ("its unit is masked" in done.reason) == is_masked


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        # docker.service requires the socket, so the next restart would fail.
        (RUNNING, ["unmask docker.socket"]),
        ({**RUNNING, "active_state": "inactive"}, ["unmask docker.socket", "start docker.service"]),
        (MASKED, ["unmask docker.socket, docker.service", "enable and start docker.service"]),
    ],
)
def test_masked_socket_is_unmasked(service: dict[str, t.Any], expected: list[str]) -> None:
    seen = converged({"live-restore": True})
    seen["services"].update({"docker.service": service, "docker.socket": MASKED})
    done = plan(seen, settings())
    assert (done.problems, done.changes, done.acts) == ([], expected, True)
    assert done.service is not None
    assert done.service.needed
    assert ", ".join(done.service.unmask) == expected[0].partition(" ")[2]
    seen["services"]["docker.socket"] = RUNNING
    assert "docker.socket" not in " ".join(plan(seen, settings()).changes)
    podman = host(packages=("podman", "crun", "iptables"), services={"docker.socket": MASKED})
    assert plan(podman, settings("podman")).changes == []


def test_masked_unit_without_a_package_is_no_engine() -> None:
    done = plan(host(services={"docker.service": MASKED}), settings())
    assert (done.is_installed, done.packages) == (False, ["docker.io", *SUPPORT])
    assert done.changes[:2] == [f"install {', '.join(done.packages)}", "unmask docker.service"]


@pytest.mark.parametrize("packages", [(), ("docker.io",)])
def test_none_changes_no_engine(packages: tuple[str, ...]) -> None:
    done = plan(host("el-9", packages, services={"docker.service": MASKED}, uid=1000), settings("none"))
    assert (done.problems, done.changes, done.acts, done.service) == ([], [], False, None)
    assert done.reason == "container_engine_name is none: the role changes no container engine"


def test_options_without_an_engine_are_refused() -> None:
    (problem,) = plan(host(), settings("none", docker_options={"mtu": 9000})).problems
    assert problem.startswith("container_engine_name is none, but container_engine_docker_options contains options.")
    assert "Remove the options" in problem


def test_option_that_is_no_longer_requested_is_removed() -> None:
    seen = converged({"live-restore": True, "mtu": 9000})
    assert plan(seen, settings()).config_needed
    assert plan(seen, settings()).changes == ["change mtu in /etc/docker/daemon.json"]
    assert not plan(seen, settings(docker_options={"mtu": 9000})).config_needed


STOPPED = {**RUNNING, "active_state": "inactive"}
APPLY, SHOW = (f"{verb} the pending options debug, mtu of docker.service" for verb in ("apply", "show"))


@pytest.mark.parametrize(
    ("applied", "service", "reload", "policy", "expected"),
    [
        (False, RUNNING, ["debug"], "when_safe", [APPLY]),
        (False, RUNNING, ["debug"], "never", [APPLY]),
        (False, RUNNING, [], "when_safe", [APPLY.replace("debug, ", "")]),
        (False, RUNNING, [], "never", [SHOW.replace("debug, ", "")]),
        (False, STOPPED, ["debug"], "when_safe", ["start docker.service"]),
        (True, RUNNING, ["debug"], "when_safe", []),
    ],
)
def test_pending_change_needs_the_module(
    applied: bool, service: dict[str, t.Any], reload: list[str], policy: str, expected: list[str]
) -> None:
    options = {"debug": True, "mtu": 9000}
    seen = converged(options)
    state = record.load_state(seen["files"][RECORD_FILE]["content"], "x")
    written = {"at": 1, "boot_id": "b", "reload": reload, "restart": ["mtu"]}
    with_daemon_json(seen, seen["files"][DEFAULT_PATH]["content"], state._replace(written=written))
    seen["docker_daemon_json"]["applied"] = applied
    seen["services"]["docker.service"] = service
    seen["engines"]["docker"]["info"] = {"containers_running": 0}
    done = plan(seen, settings(docker_options=options, docker_recommended=False, restart_policy=policy))
    assert (done.changes, done.config_needed) == (expected, any("pending" in text for text in expected))


def test_package_from_another_origin_is_kept() -> None:
    done = plan(host("debian-13", packages=("docker-ce", "ca-certificates")), settings())
    assert done.packages == ["iptables", "python3-requests"]
    assert done.origin == "docker"
    assert done.options["features"] == {"cdi": True}
    assert "docker 27.3.1 from Docker's repository is installed and is kept" in done.reason


def test_engine_without_a_package_is_kept_on_any_platform() -> None:
    seen = host(
        "gentoo-2", services={"docker.service": {**RUNNING, "fragment_path": "/etc/systemd/system/docker.service"}}
    )
    done = plan(seen, settings())
    assert (done.problems, done.packages) == ([], [])
    assert done.origin == "unit /etc/systemd/system/docker.service"


@pytest.mark.parametrize(
    ("seen", "wanted", "words"),
    [
        (host("el-9"), settings(), "this role cannot install docker on Some el-9, only on: debian-12, debian-13"),
        (host(None), settings("containerd"), "cannot install containerd on Some None, only on: none."),
        (
            host(),
            settings(source="preinstalled"),
            "container_engine_source=preinstalled, but docker is not installed on this host",
        ),
        (
            host(),
            settings(docker_options={"live_restore": True}),
            "container_engine_docker_options.live_restore: dockerd has",
        ),
        (
            host(),
            settings(docker_options={"log-opts": {"max-file": 3}}),
            "log-opts.max-file: dockerd requires a string, not 3",
        ),
        (
            host(),
            settings(docker_options={"storage-drvr": "x"}),
            "container_engine_docker_options.storage-drvr: dockerd has no such option. Did you mean storage-driver?",
        ),
        (host(), settings(docker_options={"frobnicate": 1}), "docker_options.frobnicate: dockerd has no such option."),
        (host(uid=1000), settings(), "This task needs root, but it runs as uid 1000. Set `become: true`."),
        (with_daemon_json(host(), '{\n"a" 1\n}'), settings(), "/etc/docker/daemon.json, line 2 column 5"),
    ],
)
def test_problems_are_reported_before_any_change(seen: dict[str, t.Any], wanted: EngineRequest, words: str) -> None:
    problems = " ".join(plan(seen, wanted).problems)
    assert words in problems


def test_unknown_option_is_left_to_the_installed_dockerd() -> None:
    seen = host(packages=("docker.io", *SUPPORT))
    assert plan(seen, settings(docker_options={"of-the-future": 1})).problems == []


def test_preinstalled_installs_no_package() -> None:
    assert plan(host(packages=("docker-ce",)), settings(source="preinstalled")).packages == []


def test_converged_host_needs_no_root() -> None:
    assert plan({**converged({"live-restore": True}), "uid": 1000}, settings()).problems == []


def test_podman_has_no_daemon() -> None:
    done = plan(host(), settings("podman"))
    assert done.packages == ["podman", "crun", "iptables"]
    assert done.service is None
    assert not done.config_needed


def test_installed_packages_of_podman_are_not_planned_again() -> None:
    assert plan(host("debian-13", packages=("podman",)), settings("podman")).packages == ["nftables"]
    assert plan(host("debian-13", packages=("podman", "nftables")), settings("podman")).packages == []


def test_host_without_systemd_has_no_service() -> None:
    assert plan(host(services={}), settings()).service is None


def test_values_of_the_administrator_stay_in_a_default_run() -> None:
    text = '{"live-restore": false, "features": {"cdi": false}}'
    seen = with_daemon_json(host(packages=("docker-ce", *SUPPORT)), text)
    done = plan(seen, settings())
    assert (done.options, done.changes, done.config_needed) == ({}, [], False)
    done = plan(seen, settings(docker_options={"live-restore": True}))
    assert done.changes == ["change live-restore in /etc/docker/daemon.json"]


def test_flags_override_recommended_options() -> None:
    seen = host("debian-13", packages=("docker.io", "docker-cli", *SUPPORT))
    off = {"text": "--live-restore=false", "key": "live-restore", "value": False, "place": "/etc/default/docker"}
    seen["docker_daemon_json"]["flags"] = [off]
    done = plan(seen, settings())
    assert (done.problems, done.options) == ([], {})
    problems = plan(seen, settings(docker_options={"live-restore": True})).problems
    assert "--live-restore=false in /etc/default/docker" in problems[0]
    assert not plan(seen, settings(docker_options={"live-restore": False})).config_needed


IN_SWARM = {"server_version": "20.10.24", "swarm": True}


@pytest.mark.parametrize(
    ("info", "has_file", "service"),
    [
        (IN_SWARM, True, RUNNING),
        # Not every observation can read the data directory.
        (IN_SWARM, False, RUNNING),
        # A stopped Docker, and one that the role has just installed, report nothing.
        (None, True, {**RUNNING, "active_state": "inactive"}),
        (None, True, NO_UNIT),
    ],
)
def test_swarm_member_gets_no_live_restore(
    info: dict[str, t.Any] | None, has_file: bool, service: dict[str, t.Any]
) -> None:
    seen = host(packages=("docker.io", *SUPPORT) if service != NO_UNIT else ())
    seen["engines"]["docker"]["info"] = info
    seen["services"]["docker.service"] = service
    seen["docker_daemon_json"]["in_swarm"] = has_file
    done = plan(seen, settings())
    assert (done.problems, done.options) == ([], {})
    (problem,) = plan(seen, settings(docker_options={"live-restore": True})).problems
    assert "this daemon is a swarm member" in problem


def test_plan_can_be_written_as_json() -> None:
    assert json.loads(json.dumps(plain(plan(host(), settings()))))


PROXY = {"proxies": {"http-proxy": "http://u:s3cret@p:3128"}}
NEW_PROXY = {"proxies": {"http-proxy": "http://u:new@p:3128"}}
PLACES = ["https://u:one@m", "https://u:two@m"]
SAME: list[str] = []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (PROXY, PROXY, SAME),
        (PROXY, NEW_PROXY, ["change proxies.http-proxy in /etc/docker/daemon.json"]),
        ({}, PROXY, ["change proxies.http-proxy in /etc/docker/daemon.json"]),
        (PROXY, {}, ["change proxies.http-proxy in /etc/docker/daemon.json"]),
        ({"log-opts": {"splunk-token": "a"}}, {"log-opts": {"splunk-token": "a"}}, SAME),
        (
            {"log-opts": {"splunk-token": "a"}},
            {"log-opts": {"splunk-token": "b"}},
            ["change log-opts.splunk-token in /etc/docker/daemon.json"],
        ),
        ({"allow-nondistributable-artifacts": PLACES}, {"allow-nondistributable-artifacts": PLACES}, SAME),
        (
            {"allow-nondistributable-artifacts": PLACES[:1]},
            {"allow-nondistributable-artifacts": PLACES},
            ["change allow-nondistributable-artifacts in /etc/docker/daemon.json"],
        ),
        # The masked lists are equal.
        (
            {"allow-nondistributable-artifacts": PLACES},
            {"allow-nondistributable-artifacts": PLACES[:1]},
            ["change allow-nondistributable-artifacts in /etc/docker/daemon.json"],
        ),
    ],
)
def test_changed_password_is_noticed(before: dict[str, t.Any], after: dict[str, t.Any], expected: list[str]) -> None:
    seen = masked(converged({"live-restore": True, **before}))
    done = plan(seen, settings(docker_options=after))
    assert (done.problems, done.changes, done.config_needed) == ([], expected, bool(expected))
    assert done.options == {**after, "live-restore": True}
    assert done.has_secrets == bool(after)
    assert not any(secret in json.dumps(seen) for secret in ("s3cret", "one@", "two@"))


def test_password_that_somebody_edited_is_noticed() -> None:
    seen = converged({"live-restore": True, **PROXY})
    text = seen["files"][DEFAULT_PATH]["content"].replace("s3cret", "edited")
    seen["files"][DEFAULT_PATH]["content"] = text
    changed = ["change proxies.http-proxy in /etc/docker/daemon.json"]
    assert plan(masked(seen), settings(docker_options=PROXY)).changes == changed


def test_password_that_somebody_else_has_already_changed_is_recorded() -> None:
    seen = converged({"live-restore": True, **PROXY})
    text = seen["files"][DEFAULT_PATH]["content"].replace("s3cret", "new")
    seen["files"][DEFAULT_PATH]["content"] = text
    changed = ["update the record of the options in /etc/docker/daemon.json"]
    assert plan(masked(seen), settings(docker_options=NEW_PROXY)).changes == changed


def test_password_in_a_flag_is_compared_by_the_module() -> None:
    seen = converged({"live-restore": True})
    flag = {"text": "--label=x", "key": "labels", "value": ["token=********"], "place": "/etc/default/docker"}
    seen["docker_daemon_json"]["flags"] = [flag]
    done = plan(masked(seen), settings(docker_options={"labels": ["token=s3cret"]}))
    assert done.changes == ["compare the passwords in labels with the flags in docker.service"]


def test_equal_passwords_of_two_hosts_have_different_digests() -> None:
    assert set(password_digests.of_tree(PROXY, "a")).isdisjoint(password_digests.of_tree(PROXY, "b"))


def test_passwords_of_others_need_no_module() -> None:
    theirs = '{"proxies": {"http-proxy": "http://u:s3cret@p:3128"}}'
    ours = daemon_plan.plan(
        theirs,
        record.State(EMPTY_RECORD),
        engine_plan.MANAGER,
        {"live-restore": True},
        present=True,
        lists="union",
        flags=[],
        path=DEFAULT_PATH,
    )
    seen = with_daemon_json(host(packages=("docker.io", *SUPPORT)), ours.text or "", ours.state)
    masked(seen)
    assert not plan(seen, settings()).config_needed


def test_shared_password_is_not_a_conflict() -> None:
    options = {"proxies": {"http-proxy": "http://u:s3cret@p:3128"}}
    state = record.State(EMPTY_RECORD)
    text: str | None = None
    for manager in ("other", engine_plan.MANAGER):
        done = daemon_plan.plan(text, state, manager, options, present=True, lists="union", flags=[], path=DEFAULT_PATH)
        text, state = done.text, done.state
    seen = with_daemon_json(host(packages=("docker.io", *SUPPORT)), text or "", state)
    masked(seen)
    done = plan(seen, settings(docker_options=options, docker_recommended=False))
    assert (done.problems, done.changes) == ([], [])


def test_error_of_the_observation_is_reported() -> None:
    seen = with_daemon_json(host(packages=("docker.io", *SUPPORT)), "{")
    seen["docker_daemon_json"]["error"] = "/etc/docker/daemon.json, line 9"
    assert plan(seen, settings()).problems == ["/etc/docker/daemon.json, line 9"]
