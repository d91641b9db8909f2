# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import dockerd_validation
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DaemonConfigError


def runner(answers: dict[str, tuple[int, str, str]]) -> t.Callable[..., tuple[int, str, str]]:
    def run(command: list[str]) -> tuple[int, str, str]:
        return answers[" ".join(command[1:])]

    return run


ROOT_WANTED = (
    "dockerd needs to be started with root privileges. To run dockerd in rootless mode as an unprivileged user, see …"
)


@pytest.mark.parametrize(
    ("version", "asked", "unprivileged", "expected"),
    [
        ("Docker version 20.10.24+dfsg1, build 297e128", None, (1, "", ROOT_WANTED), "/usr/sbin/dockerd 20.10.24"),
        ("Docker version 26.1.5+dfsg1, build a72d7cd", (0, "configuration OK\n", ""), None, "/usr/sbin/dockerd 26.1.5"),
        ("Docker version 29.2.0, build x", (0, "configuration OK\n", ""), None, "/usr/sbin/dockerd 29.2.0"),
        ("Docker version 18.09.1, build x", None, None, ""),
        ("something else", None, None, ""),
    ],
)
def test_version_determines_validation(
    version: str, asked: tuple[int, str, str] | None, unprivileged: tuple[int, str, str] | None, expected: str
) -> None:
    run = runner({"--version": (0, version, ""), **({"--validate --config-file /t/f": asked} if asked else {})})
    nobody = runner({"--config-file /t/f": unprivileged} if unprivileged else {})
    assert dockerd_validation.validate(run, nobody, "/usr/sbin/dockerd", "/t/f") == expected


@pytest.mark.parametrize("version", ["20.10.24", "28.3.0"])
def test_error_contains_the_message_of_dockerd(version: str) -> None:
    refused = (1, "", "unable to configure the Docker daemon with file /t/f: the following directives don't match: x\n")
    run = runner({"--version": (0, f"Docker version {version}", ""), "--validate --config-file /t/f": refused})
    nobody = runner({"--config-file /t/f": refused})
    with pytest.raises(DaemonConfigError, match=f"dockerd {version} rejects the new file: .* with it: .* match: x"):
        dockerd_validation.validate(run, nobody, "/usr/sbin/dockerd", "/t/f")


@pytest.mark.parametrize(
    ("directives", "words"),
    [
        ("storage-drver", "storage-drver: dockerd 20.10.24 has no such option. Did you mean storage-driver?"),
        ("frobnicate", "frobnicate: dockerd 20.10.24 has no such option. See https://docs.docker.com/"),
        ("log-format", "log-format: dockerd 20.10.24 has no such option, but other versions do."),
        ("http-proxy", "proxies.http-proxy: dockerd 20.10.24 has no such option, but other versions do."),
        ("mtv, frobnicate", "mtv: dockerd 20.10.24 has no such option. Did you mean mtu? frobnicate: dockerd"),
    ],
)
def test_unsupported_option_is_reported(directives: str, words: str) -> None:
    said = f"unable to configure it: the following directives don't match any configuration option: {directives}\n"
    run = runner({"--version": (0, "Docker version 20.10.24", "")})
    with pytest.raises(DaemonConfigError, match="^" + re.escape(words)):
        dockerd_validation.validate(run, runner({"--config-file /t/f": (1, "", said)}), "dockerd", "/t/f")


@pytest.mark.parametrize(
    ("version", "requested", "words"),
    [
        # dockerd accepts unknown features and ignores them.
        ("20.10.24", {"features": {"cdi": True}}, "Docker 20.10.24 does not support CDI and ignores this option."),
        ("24.0.9", {"cdi-spec-dirs": ["/etc/cdi"]}, "Docker 24.0.9 does not have this option. Remove it, or install"),
        ("29.1.0", {"nri-opts": {"enable": True}}, "install Docker 29.2 or later."),
        ("29.6.2", {"default-stop-timeout": 30}, "install Docker 29.7 or later."),
        ("20.10.24", {"features": {"cdi": False, "buildkit": True}, "cdi-spec-dirs": None}, None),
        ("25.0.0", {"features": {"cdi": True}, "cdi-spec-dirs": ["/etc/cdi"]}, None),
        ("29.7.0", {"nri-opts": {"enable": True}, "default-stop-timeout": 30}, None),
    ],
)
def test_options_of_newer_versions_are_refused(version: str, requested: dict[str, t.Any], words: str | None) -> None:
    valid = (0, "configuration OK\n", "")
    answers = {"--version": (0, f"Docker version {version}", ""), "--validate --config-file /t/f": valid}
    nobody = runner({"--config-file /t/f": (1, "", ROOT_WANTED)})
    if words is None:
        assert (
            dockerd_validation.validate(runner(answers), nobody, "dockerd", "/t/f", requested) == f"dockerd {version}"
        )
        return
    with pytest.raises(DaemonConfigError, match=re.escape(words)):
        dockerd_validation.validate(runner(answers), nobody, "dockerd", "/t/f", requested)


def test_unprivileged_daemon_that_exits_with_0_is_an_error() -> None:
    run = runner({"--version": (0, "Docker version 20.10.1", "")})
    with pytest.raises(DaemonConfigError, match="exit status 0"):
        dockerd_validation.validate(run, runner({"--config-file /t/f": (0, "", "")}), "dockerd", "/t/f")


@pytest.mark.parametrize(
    ("show", "expected"),
    [
        pytest.param("MainPID=0", {"reload": [], "restart": []}, id="stopped"),
        pytest.param(
            "MainPID=9\nExecMainStartTimestampMonotonic=50\nStateChangeTimestampMonotonic=60",
            {"reload": ["a"], "restart": ["b"]},
            id="neither reloaded nor restarted",
        ),
        pytest.param(
            "MainPID=9\nExecMainStartTimestampMonotonic=50\nStateChangeTimestampMonotonic=160",
            {"reload": [], "restart": ["b"]},
            id="reloaded",
        ),
        pytest.param(
            "MainPID=9\nExecMainStartTimestampMonotonic=50\nStateChangeTimestampMonotonic=160\nReloadResult=success",
            {"reload": [], "restart": ["b"]},
            id="reload succeeded",
        ),
        pytest.param(
            "MainPID=9\nExecMainStartTimestampMonotonic=50\nStateChangeTimestampMonotonic=160\nReloadResult=exit-code",
            {"reload": ["a"], "restart": ["b"]},
            id="reload failed",
        ),
        pytest.param(
            "MainPID=9\nExecMainStartTimestampMonotonic=150\nStateChangeTimestampMonotonic=60",
            {"reload": [], "restart": []},
            id="restarted",
        ),
    ],
)
def test_pending_options_are_listed(show: str, expected: dict[str, list[str]]) -> None:
    written = {"at": 100, "boot_id": "now", "reload": ["a"], "restart": ["b"]}

    def run(command: list[str]) -> tuple[int, str, str]:
        assert command[:3] == ["systemctl", "show", "docker.service"]
        return 0, show, ""

    assert dockerd_validation.pending(written, "now", run, "docker.service") == expected
    assert dockerd_validation.pending(written, "another", run, "docker.service") == {"reload": [], "restart": []}
    assert dockerd_validation.pending(None, "now", run, "docker.service") == {"reload": [], "restart": []}
