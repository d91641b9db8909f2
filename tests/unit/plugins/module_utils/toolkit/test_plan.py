# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DEFAULT_PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import config_toml
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import plan as toolkit_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import removal as toolkit_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.package_plan import UNIT
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.plan import ToolkitPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.variables import read
from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_toolkit_samples import (
    OFFERS,
    PLATFORMS,
    configured,
    host,
    refreshed,
    registered,
    unit,
    with_options,
)

PATH = "/usr/bin/nvidia-container-runtime"
RUNTIME = {"runtimes": {"nvidia": {"path": PATH}}}
CONFIG = "/etc/nvidia-container-runtime/config.toml"
RUNNING = {"load_state": "loaded", "active_state": "active", "unit_file_state": "enabled", "active_since_us": 4711}


def plan(
    seen: dict[str, t.Any], *, engines: t.Any = None, driver: str = "580.95.05", **variables: t.Any
) -> ToolkitPlan:
    """Return the plan, with the answer to the query."""
    request, there = read(variables), t.cast("t.Any", seen)
    more = {"engines": engines or {"docker": "20.10.24"}, "driver": driver}
    first = toolkit_plan.plan(there, request, PLATFORMS, **more)
    return toolkit_plan.plan(there, request, PLATFORMS, OFFERS, **more) if first.query else first


def converged(key: str = "debian-12") -> dict[str, t.Any]:
    return refreshed(registered(configured(key, {**unit(), "docker.io": "20.10.24"})))


# --- packages and runtime ---------------------------------------------------------------------------------------------


def test_bare_host_gets_the_packages_and_the_runtime() -> None:
    done = plan(host("debian-12", {"docker.io": "20.10.24"}))
    assert (done.problems, done.version, done.options) == ([], "1.20.1-1", RUNTIME)
    assert (done.acts, done.adds_hook, done.config_needed, done.restart) == (True, True, True, [])
    assert done.changes == [
        "add repository https://nvidia.github.io/libnvidia-container/stable/deb/amd64",
        f"write {owned.CONTAINER_TOOLKIT_APT_PREFERENCES}",
        f"install {', '.join(f'{name}=1.20.1-1' for name in UNIT)}",
        f"hold {', '.join(UNIT)}",
        f"change runtimes.nvidia in {DEFAULT_PATH}",
        "enable nvidia-cdi-refresh.path",
        "enable nvidia-cdi-refresh.service",
        "refresh the CDI specification /var/run/cdi/nvidia.yaml for driver 580.95.05",
    ]
    assert done.reason == "the toolkit is not installed"


def test_specification_follows_the_driver() -> None:
    assert plan(converged(), driver="590.48.01").changes == [
        "refresh the CDI specification /var/run/cdi/nvidia.yaml for driver 590.48.01"
    ]


@pytest.mark.parametrize("key", ["debian-12", "ubuntu-24.04", "el-9", "sles-15"])
def test_converged_host_has_nothing_to_do(key: str) -> None:
    done = plan(converged(key))
    assert (done.problems, done.acts, done.changes, done.query) == ([], False, [], None)


def test_host_without_docker_gets_only_the_packages() -> None:
    done = plan(host("debian-12", {"podman": "4.3.1"}), engines={"podman": "4.3.1"})
    assert (done.problems, done.options, done.config_needed) == ([], {}, False)
    assert done.transaction is not None
    (problem,) = plan(
        host("debian-12", {"podman": "4.3.1"}), engines={"podman": "4.3.1"}, default_runtime=True
    ).problems
    assert "this host has neither Docker, containerd nor CRI-O" in problem


def test_default_runtime_is_set_and_revoked_on_request() -> None:
    assert plan(converged(), default_runtime=True).options == {**RUNTIME, "default-runtime": "nvidia"}
    assert plan(converged(), default_runtime=True).changes == [f"change default-runtime in {DEFAULT_PATH}"]
    default = with_options(converged(), "nvidia_container_toolkit", {"default-runtime": "nvidia"})
    assert plan(default, default_runtime=True).acts is False
    assert plan(default).changes == [f"change default-runtime in {DEFAULT_PATH}"]


@pytest.mark.parametrize(
    ("there", "changes"),
    [
        ({"path": "nvidia-container-runtime"}, []),
        ({"path": "nvidia-container-runtime", "args": []}, []),
        ({"path": PATH, "runtimeArgs": []}, []),
        ({"path": "/opt/nvidia/bin/nvidia-container-runtime"}, []),
        ({"path": "/usr/bin/runc"}, [f"change runtimes.nvidia in {DEFAULT_PATH}"]),
    ],
)
def test_runtime_that_somebody_else_registered_stays(there: dict[str, t.Any], changes: list[str]) -> None:
    seen = refreshed(configured("debian-12", {**unit(), "docker.io": "20.10.24"}))
    content = {"runtimes": {"nvidia": there, "other": {"path": "/x"}}}
    seen["files"][DEFAULT_PATH] = {"exists": True, "content": json.dumps(content)}
    seen["docker_daemon_json"]["content"] = content
    assert plan(seen).changes == changes


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("/opt/nvidia/bin/nvidia-container-runtime", [f"change runtimes.nvidia in {DEFAULT_PATH}"]),
        # Docker finds the program of the packages.
        ("nvidia-container-runtime", []),
    ],
)
def test_runtime_whose_program_is_gone_is_registered_again(path: str, changes: list[str]) -> None:
    seen = refreshed(configured("debian-12", {**unit(), "docker.io": "20.10.24"}))
    content = {"runtimes": {"nvidia": {"path": path}}}
    seen["files"][DEFAULT_PATH] = {"exists": True, "content": json.dumps(content)}
    seen["docker_daemon_json"] |= {"content": content, "missing_runtimes": {"nvidia": path}}
    assert plan(seen).changes == changes


def test_runtime_of_a_flag_stays() -> None:
    seen = refreshed(configured("amazon-2023", {**unit(), "docker": "25.0.16"}))
    flag = {"text": "--add-runtime", "key": "runtimes", "value": [f"nvidia={PATH}"], "place": "/etc/docker-runtimes.d"}
    seen["docker_daemon_json"]["flags"] = [flag]
    done = plan(seen)
    assert (done.problems, done.options, done.acts) == ([], {}, False)
    assert "a flag of docker.service registers runtime nvidia" in done.reason


def test_invalid_daemon_json_is_refused_before_the_installation() -> None:
    seen = host("debian-12", {"docker.io": "20.10.24"})
    seen["docker_daemon_json"]["error"] = "/etc/docker/daemon.json is not JSON"
    assert plan(seen).problems == ["/etc/docker/daemon.json is not JSON"]


@pytest.mark.parametrize(
    ("marker", "state", "restarts"),
    [("4711\n", "active", True), ("4710\n", "active", False), ("4711\n", "inactive", False), (None, "active", False)],
)
def test_docker_that_started_before_the_hook_is_restarted(marker: str | None, state: str, restarts: bool) -> None:
    seen = converged()
    seen["services"]["docker.service"] = {**RUNNING, "active_state": state}
    seen["files"][owned.CONTAINER_TOOLKIT_RESTART_MARKER] = {"exists": marker is not None, "content": marker}
    done = plan(seen)
    assert (done.acts, done.config_needed, bool(done.restart)) == (restarts, restarts, restarts)
    assert done.changes == (["restart docker.service for the new hook"] if restarts else [])


def test_changes_need_root() -> None:
    (problem,) = plan(host("debian-12", {"docker.io": "20.10.24"}, uid=1000)).problems
    assert "needs root" in problem


def test_password_of_the_mirror_is_not_shown() -> None:
    login = {"mirror": "https://m.example/nct", "repository_username": "robot", "repository_password": "s3cret"}
    done = plan(host("debian-12", {"docker.io": "20.10.24"}), **login)
    assert done.has_secrets
    assert "s3cret" not in " ".join([*done.changes, done.reason])


@pytest.mark.parametrize(
    ("driver", "variables", "words"),
    [
        ("580.95.05", {"isolations": ["runtime", "device_requests"]}, None),
        ("580.95.05", {"isolations": ["cdi"]}, "Docker 20.10.24 does not support CDI. Install Docker 25 or later"),
        ("390.157", {}, "Driver 390.157 is too old"),
    ],
)
def test_incompatible_versions_are_refused_before_the_installation(
    driver: str, variables: dict[str, t.Any], words: str | None
) -> None:
    done = plan(host("debian-12", {"docker.io": "20.10.24"}), driver=driver, **variables)
    assert len(done.problems) == (words is not None)
    assert (words or "") in " ".join(done.problems)


def test_registration_in_containerd_is_a_part_of_the_plan() -> None:
    seen = refreshed(configured("debian-13", {**unit(), "containerd": "1.7.24"}))
    seen["engines"]["containerd"] = {"package": "containerd", "version": "1.7.24"}
    there = {"engines": {"containerd": "1.7.24"}}
    assert plan(seen, **there).changes == [
        f"write {owned.CONTAINERD_DROP_IN}",
        f"write {owned.CONTAINERD_CONFIG_RECORD}",
        "write /etc/containerd/config.toml",
        "restart containerd.service",
    ]
    seen["cri_files"]["containerd"] = {"/etc/containerd/config.toml": "version = 5\n"}
    (problem,) = plan(seen, **there).problems
    assert "/etc/containerd/config.toml has version 5, which is not known" in problem


def test_configuration_is_a_part_of_the_plan() -> None:
    seen, config = converged(), {"nvidia-container-runtime": {"mode": "cdi"}}
    seen["files"][CONFIG] = {"exists": True, "content": '[nvidia-container-runtime]\nmode = "auto"\n'}
    done = plan(seen, config=config)
    assert (done.acts, done.changes) == (True, [f"change nvidia-container-runtime.mode in {CONFIG}"])
    assert done.config is not None
    seen["files"][CONFIG]["content"] = done.config.text
    seen["files"][owned.CONTAINER_TOOLKIT_CONFIG_RECORD] = {"exists": True, "content": done.config.record}
    assert plan(seen, config=config).acts is False
    assert plan(seen).changes == [f"change nvidia-container-runtime.mode in {CONFIG}"]
    (problem,) = plan(seen, config={"nvidia-container-runtime": {"mode": "fast"}}).problems
    assert "nvidia_container_toolkit_config: nvidia-container-runtime.mode is 'fast'" in problem
    seen["files"][CONFIG]["content"] = "mode ="
    (problem,) = plan(seen, config=config).problems
    assert f"{CONFIG} cannot be changed: not valid TOML" in problem


# CRI-O's own packages: cri-o/packaging, templates/latest/cri-o/bundle/10-crio.conf (b111fe9).
CRIO = """\
[crio.runtime]
default_runtime = "crun"

[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
runtime_root = "/run/crun"
"""


@pytest.mark.parametrize("text", [None, '# Ours\n[nvidia-container-runtime]\nruntimes = ["runc", "crun"] # first\n'])
def test_oci_runtime_of_crio_is_added_to_the_configuration_and_taken_back(text: str | None) -> None:
    seen = refreshed(configured("debian-12", unit()))
    seen["engines"]["crio"] = {"package": "cri-o", "version": "1.34.1"}
    seen["cri_files"]["crio"] = {"/etc/crio/crio.conf.d/10-crio.conf": CRIO}
    seen["files"][CONFIG] = {"exists": text is not None, "content": text}
    record = owned.CONTAINER_TOOLKIT_CONFIG_RECORD

    def planned(engine: str = "crio", **variables: t.Any) -> ToolkitPlan:
        done = plan(seen, engines={engine: "1.34.1"}, **variables)
        assert done.problems == []
        return done

    done = planned()
    assert done.changes == [f"write {owned.CRIO_DROP_IN}", f"change nvidia-container-runtime.runtimes in {CONFIG}"]
    assert done.config is not None
    assert 'runtimes = ["runc", "crun", "/usr/libexec/crio/crun"]' in str(done.config.text)
    seen["cri_files"]["crio"][owned.CRIO_DROP_IN] = done.cri.engines[0].files[0].content
    seen["files"] |= {
        CONFIG: {"exists": True, "content": done.config.text},
        record: {"exists": True, "content": done.config.record},
    }
    assert planned().changes == []
    # The variable overrides the list, and the list follows again without the variable.
    mine = planned(config={"nvidia-container-runtime": {"runtimes": ["crun"]}}).config
    assert mine is not None
    assert 'runtimes = ["crun"]' in str(mine.text)
    seen["files"] |= {CONFIG: {"content": mine.text}, record: {"content": mine.record}}
    again = planned().config
    assert again is not None
    assert again.text == done.config.text
    # Without CRI-O, the former line returns.
    seen["files"] |= {CONFIG: {"content": again.text}, record: {"content": again.record}}
    gone = planned("podman").config
    assert gone is not None
    assert (gone.text, gone.record) == (text, None)


# --- removal ----------------------------------------------------------------------------------------------------------


def removal(seen: dict[str, t.Any]) -> toolkit_removal.ToolkitRemoval:
    return toolkit_removal.plan(t.cast("t.Any", seen))


def test_removal_takes_exactly_what_the_role_installed() -> None:
    seen = converged()
    seen["files"][CONFIG] = {"exists": True, "content": ""}
    seen["cdi_specs"] = [{"path": "/var/run/cdi/nvidia.yaml"}, {"path": "/etc/cdi/gpufleet-nvidia.json"}]
    done = removal(seen)
    assert (done.problems, done.packages, done.revokes) == ([], list(UNIT), True)
    assert done.files == [CONFIG, "/run/cdi/nvidia.yaml"]
    assert done.changes == [
        f"remove the options of this role from {DEFAULT_PATH}",
        "disable nvidia-cdi-refresh.path, nvidia-cdi-refresh.service",
        f"remove {', '.join(UNIT)}",
        "remove the repository and holds that this role recorded",
        f"remove {CONFIG}, /run/cdi/nvidia.yaml",
    ]


def test_toolkit_of_others_stays() -> None:
    seen = host("debian-12", unit())
    seen["files"][CONFIG] = {"exists": True, "content": ""}
    done = removal(seen)
    assert (done.acts, done.packages, done.files, done.changes) == (False, [], [], [])
    assert done.reasons == ["the installed toolkit is kept because this role did not install it"]
    assert removal(host("debian-12")).reasons == ["this role has not installed anything on this host"]


def test_registration_in_containerd_is_removed_before_the_packages() -> None:
    seen = converged()
    seen["cri_files"]["containerd"] = {owned.CONTAINERD_DROP_IN: "version = 3\n"}
    changes = removal(seen).changes
    assert changes.index(f"remove {owned.CONTAINERD_DROP_IN}") < changes.index(f"remove {', '.join(UNIT)}")


def test_drop_in_is_removed_from_a_toolkit_that_stays() -> None:
    seen = refreshed(host("debian-12", unit()))
    seen["files"][owned.CDI_REFRESH_DROP_IN] = {"exists": True, "content": ""}
    done = removal(seen)
    assert (done.acts, done.disable, done.changes) == (True, [], [f"remove {owned.CDI_REFRESH_DROP_IN}"])


def test_only_the_runtime_is_removed_if_the_packages_are_of_others() -> None:
    done = removal(registered(host("debian-12", unit())))
    assert (done.acts, done.revokes, done.packages, done.record) == (True, True, [], False)


def test_configuration_of_a_toolkit_that_stays_is_restored() -> None:
    seen = host("debian-12", unit())
    before = '[nvidia-container-runtime]\nmode = "auto" # default\n'
    done = config_toml.plan(before, None, {"nvidia-container-runtime": {"mode": "cdi"}})
    seen["files"][CONFIG] = {"exists": True, "content": done.text}
    seen["files"][owned.CONTAINER_TOOLKIT_CONFIG_RECORD] = {"exists": True, "content": done.record}
    gone = removal(seen)
    assert gone.config == config_toml.ConfigChange(before, None, ["nvidia-container-runtime.mode"])
    assert (gone.acts, gone.changes) == (True, [f"restore nvidia-container-runtime.mode in {CONFIG}"])


def test_removal_is_refused_while_containers_run() -> None:
    seen = converged()
    seen["engine_processes"]["containers"] = {"docker": 2}
    (problem,) = removal(seen).problems
    assert "containers of Docker are running (2)" in problem


def test_removal_is_refused_while_k3s_starts_with_the_runtime() -> None:
    seen = converged()
    seen["services"]["k3s-agent.service"] = RUNNING
    assert removal(seen).problems == []
    seen["cri_files"]["nodes"] = {owned.K3S_SETTINGS: "default-runtime: nvidia\n"}
    assert owned.K3S_SETTINGS in removal(seen).problems[0]
