# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A registered runtime whose program is gone, or is that of another toolkit: the same checks for all engines.

CHECKS is the table of the checks of container engines. An empty cell has a reason.
"""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia import access_risks
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import podman_cdi_directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.docker_info import read_info
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import nvidia_runtimes
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import (
    docker_runtime,
    registered_runtimes,
    version_compatibility,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import registration_and_removal as cri_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.containerd_versions import ROOT_FILE
from ansible_collections.gpufleet.hosts.tests.unit.plugins import container_toolkit_samples as samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins import gpu_hosts
from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_tree import Tree

V2, V3 = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"
OTHER = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
OURS = "/usr/bin/nvidia-container-runtime"


def containerd(version: str, table: str, program: str, number: int) -> dict[str, t.Any]:
    text = (
        f'version = {number}\n[plugins."{table}".containerd]\ndefault_runtime_name = "nvidia"\n'
        f'[plugins."{table}".containerd.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
        f'[plugins."{table}".containerd.runtimes.nvidia.options]\nBinaryName = "{program}"\n'
    )
    return engine("containerd", version, containerd={ROOT_FILE: text})


def crio(program: str) -> dict[str, t.Any]:
    text = f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{program}"\n'
    return engine("crio", "1.30.0", crio={"/etc/crio/crio.conf.d/99-nvidia.toml": text})


def docker(program: str) -> dict[str, t.Any]:
    content = {"runtimes": {"nvidia": {"path": program}}}
    found = samples.host("debian-13", {"docker.io": "26.1.5"})
    found["engines"]["docker"] = {"package": "docker.io", "version": "26.1.5", "info": None}
    found["files"]["/etc/docker/daemon.json"] = {"exists": True, "content": json.dumps(content)}
    seen = {"error": None, "content": content, "flags": [], "missing_runtimes": {"nvidia": program}}
    found["docker_daemon_json"] = {**found["docker_daemon_json"], "path": "/etc/docker/daemon.json", **seen}
    return found


def engine(name: str, version: str, **texts: t.Any) -> dict[str, t.Any]:
    found = samples.host("debian-13", {name: version})
    found["engines"][name] = {"package": name, "version": version}
    found["services"][f"{name}.service"] = {"load_state": "loaded", "active_state": "active", "active_since_us": 1}
    found["cri_files"] |= texts
    return found


HOSTS = {
    "docker": docker,
    "containerd 1.7": lambda program: containerd("1.7.24", V2, program, 2),
    "containerd 2": lambda program: containerd("2.1.5", V3, program, 3),
    "crio": crio,
}


def registration(host: dict[str, t.Any]) -> tuple[list[str], list[str]]:
    """Return the planned changes and the reasons for the engine of a host."""
    there = t.cast("t.Any", host)
    if host["engines"]["docker"]["package"]:
        plan = docker_runtime.plan(there, default_runtime=False)
        return plan.changes, plan.reasons
    names = {
        name: host["engines"][name]["version"] for name in ("containerd", "crio") if host["engines"][name]["package"]
    }
    planned = cri_plan.plan(there, names, default_runtime=False, restart_policy="when_safe")
    return planned.changes, planned.reasons


@pytest.mark.parametrize("name", HOSTS)
def test_a_runtime_whose_program_is_gone_is_registered_again(name: str) -> None:
    changes, _reasons = registration(HOSTS[name](OTHER))
    assert changes


@pytest.mark.parametrize("name", [name for name in HOSTS if name != "docker"])
def test_verify_names_a_runtime_whose_program_is_gone(name: str) -> None:
    # For Docker, see test_runtime_without_its_program_is_a_problem.
    host = HOSTS[name](OTHER)
    (problem,) = registered_runtimes.missing(t.cast("t.Any", host))
    assert f"is registered as {OTHER}, which does not exist" in problem
    host["nvidia_runtimes"] = {OTHER: None}
    assert registered_runtimes.missing(t.cast("t.Any", host)) == []


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize(
    ("version", "words"), [("1.17.4", "1.17.4, which has known vulnerabilities: CVE-2026-24260"), (None, "is unknown")]
)
def test_the_program_of_another_toolkit_stays_and_is_named_with_its_version(
    name: str, version: str | None, words: str
) -> None:
    host = HOSTS[name](OTHER)
    host["nvidia_runtimes"] = {OTHER: version}
    host["docker_daemon_json"]["missing_runtimes"] = {}
    changes, reasons = registration(host)
    assert changes == []
    assert any(OTHER in reason for reason in reasons)
    (text,) = registered_runtimes.foreign(t.cast("t.Any", host))
    assert OTHER in text
    assert words in text


@pytest.mark.parametrize("name", HOSTS)
def test_the_program_of_the_package_is_no_finding(name: str) -> None:
    host = HOSTS[name](OURS)
    host["nvidia_runtimes"] = {OURS: None}
    there = t.cast("t.Any", host)
    assert (registered_runtimes.missing(there), registered_runtimes.foreign(there)) == ([], [])


def test_the_runtime_of_our_own_drop_in_is_looked_at_too() -> None:
    text = f'version = 3\nimports = ["{owned.CONTAINERD_DROP_IN}"]\n'
    drop_in = f'version = 3\n[plugins."{V3}".containerd.runtimes.nvidia.options]\nBinaryName = "{OURS}"\n'
    host = engine("containerd", "2.1.5", containerd={ROOT_FILE: text, owned.CONTAINERD_DROP_IN: drop_in})
    assert OURS in registered_runtimes.missing(t.cast("t.Any", host))[0]


def test_programs_and_versions_are_read_from_the_host(tmp_path) -> None:
    calls = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        calls.append(argv)
        return 0, "NVIDIA Container Runtime version 1.17.4\ncommit: x\nspec: 1.2.0\n", ""

    for path in (OTHER, OURS):
        file = tmp_path / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    texts = [f'BinaryName = "{OTHER}"\nx = "/gone/nvidia-container-runtime"', f"runtime_path = '{OURS}'", OTHER]
    assert nvidia_runtimes.read(str(tmp_path), texts, run) == {OTHER: "1.17.4", OURS: None}
    assert calls == [[OTHER, "--version"]]


# --- the table ----------------------------------------------------------------------------------------------------

NO_CRI = "gpu_container starts no containers there, and Kubernetes decides."


def podman_directories(folder: Path) -> bool:
    file = folder / "etc/containers/containers.conf"
    file.parent.mkdir(parents=True)
    file.write_text('[engine]\ncdi_spec_dirs = ["/srv/cdi"]\n')
    return podman_cdi_directories.cdi_directories((5, 6), str(folder)) == ("/srv/cdi",)


def keeps_label(state: t.Any, folder: Path, userns: str | None = None) -> bool:
    """Return whether the nodes of a container in a user namespace keep the host's label."""
    return access_risks.node_label("cdi", state, Tree(folder).host(), userns) == access_risks.HOST_LABEL


def is_too_old(name: str, version: str) -> bool:
    return "does not support CDI" in str(version_compatibility.obstacle(version_compatibility.CDI, name, version, None))


def gone(name: str) -> t.Callable[[Path], bool]:
    return lambda _folder: bool(registration(HOSTS[name](OTHER))[0])


CHECKS: dict[str, dict[str, str | t.Callable[[Path], bool]]] = {
    "a registered runtime whose program is gone": {
        **{name: gone(name) for name in HOSTS},
        "podman": "Podman registers no runtime of NVIDIA: users pass the program.",
    },
    "directories of CDI specifications other than the default ones": {
        "docker": lambda _folder: read_info({"CDISpecDirs": ["/srv/cdi"]}).cdi_spec_dirs == ["/srv/cdi"],
        "podman": podman_directories,
        **dict.fromkeys(("containerd 1.7", "containerd 2", "crio"), NO_CRI),
    },
    "SELinux with user namespaces": {
        "docker": lambda folder: (
            keeps_label(gpu_hosts.docker(userns_remap=True), folder)
            and not keeps_label(gpu_hosts.docker(userns_remap=True), folder, "host")
            and not keeps_label(gpu_hosts.docker(), folder)
        ),
        "podman": lambda folder: keeps_label(gpu_hosts.podman(), folder, "auto"),
        **dict.fromkeys(("containerd 1.7", "containerd 2", "crio"), NO_CRI),
    },
    "a version without CDI": {
        "docker": lambda _folder: is_too_old("docker", "24.0.9"),
        "podman": lambda _folder: is_too_old("podman", "4.0.0"),
        "containerd 1.7": lambda _folder: is_too_old("containerd", "1.6.20"),
        "containerd 2": "Every version supports CDI.",
        "crio": lambda _folder: is_too_old("crio", "1.22.0"),
    },
}


@pytest.mark.parametrize("name", [*HOSTS, "podman"])
@pytest.mark.parametrize("check", CHECKS)
def test_each_engine_has_the_check_or_a_reason(check: str, name: str, tmp_path: Path) -> None:
    cell = CHECKS[check][name]
    assert cell if isinstance(cell, str) else cell(tmp_path)


def test_userns_remap_is_read_from_docker() -> None:
    found = [read_info({"SecurityOptions": [text]}).userns_remap for text in ("name=userns", "name=seccomp,profile=x")]
    assert found == [True, False]
