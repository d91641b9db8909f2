# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import dockerd_flags
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.dockerd_flags import Flag
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DaemonConfigError
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
    assert dockerd_flags.unit_flags(str(tmp_path)) == expected


PLACE = "/etc/systemd/system/docker.service"
LIVE, MTU = Flag("--live-restore", "live-restore", True, PLACE), Flag("--mtu 1400", "mtu", 1400, PLACE)


@pytest.mark.parametrize(
    "command",
    [
        "/usr/bin/dockerd \\\n  # keep containers\n  --live-restore \\\n; also a comment\n  --mtu 1400",
        "/usr/bin/env GODEBUG=x2 -u HTTP_PROXY /usr/bin/dockerd --live-restore --mtu 1400",
        "-/usr/bin/taskset -c 0-3 /usr/bin/nice -n 5 dockerd --live-restore --mtu 1400",
        "/bin/sh -c 'exec /usr/bin/dockerd --live-restore --mtu 1400'",
        "/bin/sh -ec 'sleep 1; ulimit -n 4096 && exec dockerd --live-restore --mtu 1400 >>/var/log/docker 2>&1'",
        "/bin/sh -c 'ulimit -n 4096; exec dockerd --live-restore --mtu 1400; true'",
        "/bin/sh -c 'dockerd --live-restore --mtu 1400>/var/log/docker'",
        "/usr/bin/env /bin/bash -c 'dockerd $OPTIONS'\nEnvironment=\"OPTIONS=--live-restore --mtu 1400\"",
        "/usr/bin/numactl --cpunodebind=0 -- /usr/bin/dockerd --live-restore --mtu 1400",
    ],
)
def test_flags_are_read_however_the_unit_starts_dockerd(tmp_path: Path, command: str) -> None:
    write(tmp_path, {PLACE: f"[Service]\nExecStart={command}\n"})
    assert dockerd_flags.unit_flags(str(tmp_path)) == [LIVE, MTU]


@pytest.mark.parametrize(
    "command",
    ["/opt/start-docker", "/bin/sh -c 'exec dockerd $(cat /etc/docker/flags)'", "/bin/sh -c 'dockerd $FLAGS'"],
)
def test_flags_that_only_a_script_knows_are_those_of_the_running_dockerd(tmp_path: Path, command: str) -> None:
    write(
        tmp_path,
        {
            PLACE: f"[Service]\nExecStart={command}\n",
            "/proc/4/cmdline": "dockerd\0--debug\0",
            "/proc/4/cgroup": "0::/system.slice/other.service\n",
            "/proc/5/cmdline": "dockerd\0--debug\0",
            "/proc/5/cgroup": "0::/user.slice/user-1000.slice/user@1000.service/app.slice/docker.service\n",
            "/proc/17/cmdline": "/usr/bin/dockerd\0--live-restore\0--mtu\0001400\0",
            "/proc/17/cgroup": "0::/system.slice/docker.service\n",
        },
    )
    place = "the command line of process 17"
    assert dockerd_flags.unit_flags(str(tmp_path)) == [LIVE._replace(place=place), MTU._replace(place=place)]


# The unit of Amazon Linux 2023. Its second ExecStartPre writes runtimes.env.
AMAZON_UNIT = """
[Service]
EnvironmentFile=-/etc/sysconfig/docker
EnvironmentFile=-/etc/sysconfig/docker-storage
EnvironmentFile=-/run/docker/runtimes.env
ExecStartPre=/bin/mkdir -p /run/docker
ExecStartPre=/usr/libexec/docker/docker-setup-runtimes.sh
ExecStart=/usr/bin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock \\
  $OPTIONS $DOCKER_STORAGE_OPTIONS $DOCKER_ADD_RUNTIMES
"""
AMAZON_OPTIONS = 'DAEMON_MAXFILES=1048576\nOPTIONS="--default-ulimit nofile=32768:65536"\nDAEMON_PIDFILE_TIMEOUT=10\n'
ULIMITS = Flag(
    "--default-ulimit nofile=32768:65536",
    "default-ulimits",
    ["nofile=32768:65536"],
    "OPTIONS in /etc/sysconfig/docker",
)


def runtimes_flag(*names: str) -> Flag:
    values = [f"{name}=/etc/docker-runtimes.d/{name}" for name in names]
    return Flag(" ".join(f"--add-runtime={value}" for value in values), "runtimes", values, "/etc/docker-runtimes.d")


ENV = 'DOCKER_ADD_RUNTIMES="--add-runtime nvidia=/etc/docker-runtimes.d/nvidia {}"\n'
BOTH = ("neuron", "nvidia")


@pytest.mark.parametrize(
    ("executables", "environment", "expected"),
    [
        pytest.param((), None, [ULIMITS], id="no runtimes"),
        pytest.param(BOTH, None, [ULIMITS, runtimes_flag(*BOTH)], id="before the first start"),
        pytest.param(BOTH, ENV.format(""), [ULIMITS, runtimes_flag(*BOTH)], id="one was added after the start"),
        pytest.param((), ENV.format(""), [ULIMITS], id="one was removed after the start"),
        pytest.param(
            ("nvidia",),
            ENV.format("--default-runtime nvidia"),
            [
                ULIMITS,
                Flag(
                    "--default-runtime nvidia",
                    "default-runtime",
                    "nvidia",
                    "DOCKER_ADD_RUNTIMES in /run/docker/runtimes.env",
                ),
                runtimes_flag("nvidia"),
            ],
            id="a script that also sets the default runtime",
        ),
    ],
)
@pytest.mark.parametrize("is_amazon", [True, False])
def test_flags_of_amazons_unit_are_read(
    tmp_path: Path, executables: tuple[str, ...], environment: str | None, expected: list[Flag], is_amazon: bool
) -> None:
    unit = AMAZON_UNIT if is_amazon else DEBIAN_UNIT
    write(tmp_path, {"/usr/lib/systemd/system/docker.service": unit, "/etc/sysconfig/docker": AMAZON_OPTIONS})
    write(tmp_path, {f"/etc/docker-runtimes.d/{name}": "#!/bin/sh\n" for name in (*executables, "README")})
    for name in executables:
        (tmp_path / "etc/docker-runtimes.d" / name).chmod(0o755)
    (tmp_path / "etc/docker-runtimes.d/old").mkdir(parents=True)
    if environment is not None:
        write(tmp_path, {"/run/docker/runtimes.env": environment})
    found = [flag for flag in dockerd_flags.unit_flags(str(tmp_path)) if flag.key not in ("hosts", "containerd")]
    assert found == (expected if is_amazon else [])


def ulimit(soft: int, hard: int) -> dict[str, t.Any]:
    return {"default-ulimits": {"nofile": {"Name": "nofile", "Soft": soft, "Hard": hard}}}


def test_ulimit_of_amazon_is_left_to_the_flag() -> None:
    done = plan(None, {**ulimit(32768, 65536), "debug": True}, flags=[ULIMITS])
    assert (done.config, done.satisfied) == ({"debug": True}, ["default-ulimits"])


def test_other_ulimit_than_that_of_amazon_is_refused_with_the_file_to_change() -> None:
    with pytest.raises(DaemonConfigError) as caught:
        plan(None, ulimit(65536, 65536), flags=[ULIMITS])
    message = str(caught.value)
    assert (
        "by the flag --default-ulimit nofile=32768:65536 in OPTIONS in /etc/sysconfig/docker (docker.service)"
        in message
    )
    assert "Remove the flag from /etc/sysconfig/docker, or remove" in message


@pytest.mark.parametrize("name", ["nvidia", "io.containerd.kata.v2", "aws.firecracker"])
def test_default_runtime_may_be_registered_by_a_flag_or_be_a_shim(name: str) -> None:
    assert plan(None, {"default-runtime": name}, flags=[runtimes_flag("nvidia")]).config == {"default-runtime": name}


@pytest.mark.parametrize("name", ["neuron", "/usr/bin/x.y", ".nvidia"])
def test_unknown_default_runtime_is_refused(name: str) -> None:
    with pytest.raises(DaemonConfigError, match="is not one of the runtimes"):
        plan(None, {"default-runtime": name}, flags=[runtimes_flag("nvidia")])


@pytest.mark.parametrize(
    ("before", "options", "restart"),
    [
        ({}, {"live-restore": True}, []),
        ({}, {"runtimes": {"kata": {"path": "k"}}}, ["runtimes.kata"]),
        ({"runtimes": {"kata": {"path": "k"}}}, {"live-restore": True}, ["live-restore"]),
    ],
)
def test_reload_that_would_remove_the_runtimes_of_flags_is_avoided(
    before: dict[str, t.Any], options: dict[str, t.Any], restart: list[str]
) -> None:
    """After a reload, dockerd knows only the runtimes in the file if the file contains some."""
    assert plan(json.dumps(before), options, flags=[runtimes_flag("nvidia")]).restart_keys == restart
    assert plan(json.dumps(before), options).restart_keys == []


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
    assert dockerd_flags.is_in_swarm({"data-root": "/data"}, [], str(tmp_path))
    assert dockerd_flags.is_in_swarm({}, [flag("--data-root /data", "data-root", "/data")], str(tmp_path))
    assert not dockerd_flags.is_in_swarm({}, [], str(tmp_path))
    with pytest.raises(DaemonConfigError, match="swarm member"):
        plan(None, {"live-restore": True}, in_swarm=True)
    assert plan(None, {"live-restore": False}, in_swarm=True).config == {"live-restore": False}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, False),
        ({"/lib/systemd/system/docker.service": DEBIAN_UNIT}, True),
        ({IN_DROP_IN: DROP_IN}, True),
        ({IN_DROP_IN: "[Service]\nLimitNOFILE=1048576\n"}, False),
    ],
)
def test_command_of_a_unit_or_a_drop_in_is_noticed(tmp_path: Path, files: dict[str, str], expected: bool) -> None:
    write(tmp_path, files)
    assert dockerd_flags.has_command(str(tmp_path)) == expected
