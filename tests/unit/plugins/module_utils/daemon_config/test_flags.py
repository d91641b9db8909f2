# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import flags
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.daemon_json import DaemonConfigError
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.flags import Flag
from ansible_collections.gpufleet.hosts.tests.unit.plugins.daemon_json_changes import plan

DEBIAN_UNIT = """
[Service]
EnvironmentFile=-/etc/default/docker
ExecStart=/usr/sbin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock $DOCKER_OPTS
"""

DROP_IN = "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd \\\n  -D --live-restore=false -s overlay2\n"

OWN_UNIT = '[Service]\nEnvironment="X=--label a=1"\nExecStart=/usr/bin/dockerd ${X} --add-runtime nvidia=/x\n'

OPTIONS = '# comment\nDOCKER_OPTS="--dns 8.8.8.8 --live-restore --dns=8.8.4.4 --mtu 9000"\n'

IN_DROP_IN = "/etc/systemd/system/docker.service.d/10-flags.conf"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, [], id="no unit"),
        pytest.param(
            {"/lib/systemd/system/docker.service": DEBIAN_UNIT},
            [
                Flag("-H fd://", "hosts", ["fd://"], "/lib/systemd/system/docker.service"),
                Flag(
                    "--containerd=/run/containerd/containerd.sock",
                    "containerd",
                    "/run/containerd/containerd.sock",
                    "/lib/systemd/system/docker.service",
                ),
            ],
            id="Debian's",
        ),
        pytest.param(
            {
                "/lib/systemd/system/docker.service": DEBIAN_UNIT.replace(
                    "-H fd:// --containerd=/run/containerd/containerd.sock ", ""
                ),
                "/etc/default/docker": OPTIONS,
            },
            [
                Flag(
                    "--dns 8.8.8.8 --dns=8.8.4.4", "dns", ["8.8.8.8", "8.8.4.4"], "DOCKER_OPTS in /etc/default/docker"
                ),
                Flag("--live-restore", "live-restore", True, "DOCKER_OPTS in /etc/default/docker"),
                Flag("--mtu 9000", "mtu", 9000, "DOCKER_OPTS in /etc/default/docker"),
            ],
            id="environment file",
        ),
        pytest.param(
            {
                "/usr/lib/systemd/system/docker.service": DEBIAN_UNIT,
                IN_DROP_IN: DROP_IN,
                IN_DROP_IN.replace("/etc", "/run"): DROP_IN.replace("-D", "--icc"),
            },
            [
                Flag("-D", "debug", True, IN_DROP_IN),
                Flag(
                    "--live-restore=false", "live-restore", False, "/etc/systemd/system/docker.service.d/10-flags.conf"
                ),
                Flag("-s overlay2", "storage-driver", "overlay2", IN_DROP_IN),
            ],
            id="drop-in",
        ),
        pytest.param(
            {
                "/etc/systemd/system/docker.service": OWN_UNIT,
                "/lib/systemd/system/docker.service": DEBIAN_UNIT,
            },
            [
                Flag("--label a=1", "label a", "1", "X in /etc/systemd/system/docker.service"),
                Flag("--add-runtime nvidia=/x", "runtimes", ["nvidia=/x"], "/etc/systemd/system/docker.service"),
            ],
            id="the unit of /etc wins, ${X} stays one word",
        ),
        pytest.param(
            {"/lib/systemd/system/docker.service": "[Service]\nExecStart=/opt/wrapper --debug\n"}, [], id="a wrapper"
        ),
    ],
)
def test_flags_are_read_from_the_unit(tmp_path: Path, files: dict[str, str], expected: list[Flag]) -> None:
    write(tmp_path, files)
    assert flags.unit_flags(str(tmp_path)) == expected


def flag(text: str, key: str, value: t.Any) -> Flag:
    return Flag(text, key, value, "/etc/systemd/system/docker.service.d/x.conf")


@pytest.mark.parametrize(
    ("unit_flags", "options", "words"),
    [
        (
            [flag("--live-restore=false", "live-restore", False)],
            {"live-restore": True},
            '"live-restore" would be set twice',
        ),
        ([flag("-H fd://", "hosts", ["fd://"])], {"hosts": ["tcp://0.0.0.0:2375"]}, '"hosts" would be set twice'),
        ([flag("--label a=1", "labels", ["a=1"])], {"labels": ["b=1"]}, '"labels" would be set twice'),
        (
            [flag("--http-proxy x", "proxies.http-proxy", "x")],
            {"proxies": {"http-proxy": "y"}},
            '"proxies.http-proxy" would be set',
        ),
    ],
)
def test_flag_with_another_value_is_reported_with_its_place(
    unit_flags: list[Flag], options: dict[str, t.Any], words: str
) -> None:
    with pytest.raises(DaemonConfigError) as caught:
        plan(None, options, flags=unit_flags)
    message = str(caught.value)
    assert words in message
    assert unit_flags[0].text in message
    assert unit_flags[0].place in message
    assert "systemctl edit docker.service" in message


@pytest.mark.parametrize(
    ("unit_flags", "options", "left"),
    [
        ([flag("--live-restore", "live-restore", True)], {"live-restore": True, "debug": True}, {"debug": True}),
        ([flag("--dns 1.1.1.1", "dns", ["1.1.1.1", "2.2.2.2"])], {"dns": ["2.2.2.2"]}, {}),
        ([flag("--log-opt max-size=1m", "log-opts", ["max-size=1m"])], {"log-opts": {"max-size": "1m"}}, {}),
        ([flag("--feature cdi=true", "features", ["cdi=true"])], {"features": {"cdi": True}}, {}),
        (
            [flag("--add-runtime n=/x", "runtimes", ["n=/x"])],
            {"runtimes": {"n": {"path": "/x"}}},
            {"runtimes": {"n": {"path": "/x"}}},
        ),
    ],
)
def test_option_is_left_to_a_flag_with_the_same_value(
    unit_flags: list[Flag], options: dict[str, t.Any], left: dict[str, t.Any]
) -> None:
    done = plan(None, options, flags=unit_flags)
    assert done.config == left
    assert done.satisfied == sorted(set(options) - set(left))


def test_live_restore_is_refused_in_a_swarm(tmp_path: Path) -> None:
    write(tmp_path, {"/data/swarm/docker-state.json": "{}"})
    assert flags.is_in_swarm({"data-root": "/data"}, [], str(tmp_path))
    assert flags.is_in_swarm({}, [flag("--data-root /data", "data-root", "/data")], str(tmp_path))
    assert not flags.is_in_swarm({}, [], str(tmp_path))
    with pytest.raises(DaemonConfigError, match="swarm member"):
        plan(None, {"live-restore": True}, in_swarm=True)
    assert plan(None, {"live-restore": False}, in_swarm=True).config == {"live-restore": False}
