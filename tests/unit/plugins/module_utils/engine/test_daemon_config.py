# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import codecs
import json
import re
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import daemon_config
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.daemon_config import DaemonConfigError, Flag, State
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.merge import EMPTY_RECORD

FILE = "/etc/docker/daemon.json"
DEBIAN_UNIT = """
[Service]
EnvironmentFile=-/etc/default/docker
ExecStart=/usr/sbin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock $DOCKER_OPTS
"""


def plan(
    before: str | None, options: dict[str, t.Any] | None, state: State | None = None, **more: t.Any
) -> daemon_config.Plan:
    settings: dict[str, t.Any] = {"present": True, "lists": "union", "flags": [], "path": FILE, **more}
    manager = settings.pop("manager", "us")
    return daemon_config.plan(before, state or State(EMPTY_RECORD), manager, options, **settings)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\x1c", "line 1 column 1"),
        ("\ufeff\ufeff{}", "line 1 column 1"),
        # Python 3.13 and newer name the comma, older ones what stands in place of the next key.
        ('{\n  "debug": true,\n}', "line 2 column 16" if sys.version_info >= (3, 13) else "line 3 column 1"),
        ('{\n  "debug": tru\n}', "line 2 column 12"),
        ('{"debug": true} x', "line 1 column 17: Extra data"),
        ('// comment\n{"debug": true}', "line 1 column 1"),
        ("[]", "line 1 column 1: dockerd needs a JSON object, and the file holds []"),
        ('"x"', 'the file holds "x"'),
        ('{"a": {"b": 1, "b": 2}}', 'the key "b" stands there twice'),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": {"b": [0, 1e400]}}', "the number of a.b is larger than dockerd can read"),
        pytest.param('{"a": ' + "1" * 5000 + "}", "digits", id="a long number"),
        pytest.param("[" * 100000, "more than 100 levels deep", id="deep lists"),
        pytest.param('{"a":' * 100000, "more than 100 levels deep", id="deep objects"),
        pytest.param('{"a":' * 101 + "1" + "}" * 101, "more than 100 levels deep", id="101 levels"),
    ],
)
def test_a_broken_file_is_reported_with_its_place(text: str, words: str) -> None:
    with pytest.raises(DaemonConfigError) as caught:
        plan(text, {"live-restore": True})
    assert FILE in str(caught.value)
    assert words in str(caught.value)
    assert "by hand" in str(caught.value) or "has not been changed" in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, '{\n  "debug": true\n}\n'),
        ("{}", '{\n  "debug": true\n}\n'),
        ('{\n    "z": "ü"\n}', '{\n    "z": "ü",\n    "debug": true\n}\n'),
        ('{\n\t"z": 1\n}\n', '{\n\t"z": 1,\n\t"debug": true\n}\n'),
        ('{"debug":true,\n     "z": 1}', '{"debug":true,\n     "z": 1}'),
    ],
)
def test_the_form_of_the_file_is_kept(before: str | None, after: str) -> None:
    assert plan(before, {"debug": True}).text == after


def test_no_endless_number_of_an_old_record_comes_back_into_the_file() -> None:
    done = plan('{"of-the-future": {"x": 1}}', {"of-the-future": {"x": 2}})
    text = daemon_config.dump_state(done.state).replace('"previous": 1', '"previous": Infinity')
    with pytest.raises(DaemonConfigError, match=r"of-the-future\.x: JSON has no number inf"):
        plan(done.text, None, daemon_config.load_state(text, "x"), present=False)


def test_a_hundred_levels_are_not_too_many() -> None:
    assert plan('{"a":' * 100 + "1" + "}" * 100, {"debug": True}).text


EMPTY = ["", " \n\n", "\u00a0\v", "null", "\ufeff", "\ufeff \r\n", "\ufeff{}"]


@pytest.mark.parametrize("text", EMPTY)
def test_what_dockerd_reads_as_no_options_is_no_error(text: str) -> None:
    assert plan(text, {"debug": True}).text == '{\n  "debug": true\n}\n'
    assert plan(text, {}).text == text


@pytest.mark.parametrize("mark", [codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
def test_utf_16_is_named(mark: bytes) -> None:
    with pytest.raises(DaemonConfigError, match="this is UTF-16"):
        daemon_config.decoded(mark + b"{\0}\0", FILE)


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        ("", (20, 10, 24), True),
        ("\ufeff{}", (20, 10, 24), True),
        ("{}", (20, 10, 24), False),
        ("null", (20, 10, 24), False),
        ("", (23, 0, 0), False),
        ("\ufeff", (29, 0), False),
        ("", (), False),
    ],
)
def test_which_dockerd_does_not_start_with_it(text: str, version: tuple[int, ...], expected: bool) -> None:
    assert daemon_config.too_old(text, version) is expected


@pytest.mark.parametrize(
    "before", [None, "{}", '{ "dns" :["1.1.1.1"],\n "debug": false}', '\ufeff{"dns": ["1.1.1.1"]}\r\n', *EMPTY]
)
def test_the_way_back_leads_to_the_very_same_text(before: str | None) -> None:
    there = plan(before, {"debug": True, "dns": ["9.9.9.9"], "runtimes": {"nvidia": {"path": "n"}}})
    assert there.text != before
    back = plan(there.text, None, there.state, present=False)
    assert back.text == before
    assert not back.state.record.entries


def test_what_others_added_in_between_survives_the_way_back() -> None:
    there = plan(None, {"debug": True})
    tree = {**json.loads(there.text or ""), "mtu": 9000}
    back = plan(json.dumps(tree), None, there.state, present=False)
    assert json.loads(back.text or "") == {"mtu": 9000}


@pytest.mark.parametrize(
    "have",
    [
        {"path": "n"},
        {"path": "n", "args": []},
        {"path": "n", "runtimeArgs": []},
        {"runtimeArgs": [], "args": [], "path": "n"},
    ],
)
@pytest.mark.parametrize("want", [{"path": "n"}, {"path": "n", "args": []}, {"path": "n", "runtimeArgs": []}])
def test_ways_to_write_one_runtime_are_equal(have: dict[str, t.Any], want: dict[str, t.Any]) -> None:
    text = json.dumps({"runtimes": {"nvidia": have}})
    done = plan(text, {"runtimes": {"nvidia": want}})
    assert (done.text, done.changed_keys) == (text, ())


@pytest.mark.parametrize(
    ("before", "options", "present", "restart"),
    [
        ({}, {"live-restore": True, "debug": True}, True, []),
        ({}, {"runtimes": {"nvidia": {"path": "n"}}, "default-runtime": "nvidia"}, True, []),
        ({}, {"features": {"cdi": True}, "live-restore": True}, True, ["features.cdi"]),
        ({}, {"log-opts": {"max-size": "10m"}}, True, ["log-opts.max-size"]),
        ({"live-restore": True}, {"live-restore": False}, True, []),
        ({"live-restore": True}, {"live-restore": None}, True, ["live-restore"]),
        ({"labels": ["a=1", "b=1"]}, {"labels": None, "debug": True}, True, ["labels"]),
        ({"max-concurrent-downloads": 7}, {"max-concurrent-downloads": None}, True, []),
        ({"runtimes": {"nvidia": {"path": "n"}}}, {"runtimes": None}, True, ["runtimes"]),
        ({"runtimes": {"nvidia": {"path": "n"}}}, {"runtimes": {"nvidia": None}}, True, []),
    ],
)
def test_what_waits_for_a_restart(
    before: dict[str, t.Any], options: dict[str, t.Any], present: bool, restart: list[str]
) -> None:
    assert plan(json.dumps(before), options, present=present).restart_keys == restart


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"live-restore": "true"}, 'live-restore: dockerd wants true or false here, not "true"'),
        ({"mtu": True}, "mtu: dockerd wants a whole number here, not true"),
        ({"mtu": "9000"}, 'mtu: dockerd wants a whole number here, not "9000"'),
        ({"dns": "1.1.1.1"}, "dns: dockerd wants a list here"),
        ({"dns": [1]}, "dns: dockerd wants text here, not 1"),
        ({"labels": ["a=1", "b=1", "a=2"]}, "labels: 'a=1' and 'a=2' contradict each other"),
        ({"features": ["cdi"]}, 'features: dockerd wants an object here, not ["cdi"]'),
        ({"features": {"cdi": "yes"}}, 'features.cdi: dockerd wants true or false here, not "yes"'),
        ({"log-opts": {"max-file": 3}}, 'log-opts.max-file: dockerd wants text here, not 3. Write "3"'),
        ({"log-opts": {"max-size": "ten"}}, "log-opts.max-size: 'ten' is not a size"),
        ({"log-opts": {"max-file": "0"}}, "log-opts.max-file: '0' is not a number of files"),
        ({"live_restore": True}, "live_restore: dockerd has no such option. Did you mean live-restore?"),
        ({"live-restor": True}, "live-restor: dockerd has no such option. Did you mean live-restore?"),
        ({"label": ["a=b"]}, "label: dockerd has no such option. Did you mean labels?"),
        ({"http-proxy": "http://p"}, "http-proxy: dockerd has no such option. Did you mean proxies.http-proxy?"),
        ({"proxies": {"http_proxy": "http://p"}}, "has no such option. Did you mean proxies.http-proxy?"),
        (
            {"proxies": {"ftp": "p"}},
            "proxies.ftp: dockerd has no such option. It has http-proxy, https-proxy, no-proxy.",
        ),
        ({"proxies": {"no-proxy": ["p"]}}, 'proxies.no-proxy: dockerd wants text here, not ["p"]'),
        ({"default-runtime": "nvidia"}, "default-runtime: 'nvidia' is not among the runtimes"),
        ({"runtimes": {"runc": {"path": "x"}}}, "runtimes.runc: the name runc is taken"),
        ({"runtimes": {"nvidia": "x"}}, 'runtimes.nvidia: dockerd wants an object like {"path": "…"} here, not "x"'),
        ({"runtimes": {"nvidia": {"args": []}}}, "runtimes.nvidia: neither path nor runtimeType"),
        ({"runtimes": {"nvidia": {"path": "n", "args": ["-x"]}}}, "Write runtimeArgs"),
        ({"default-ulimits": {"nofile": 1024}}, "default-ulimits.nofile: dockerd wants an object"),
        ({"mtu": float("inf")}, "mtu: JSON has no number inf. Write a finite one"),
        ({"default-shm-size": float("-inf")}, "default-shm-size: JSON has no number -inf"),
        ({"of-the-future": {"x": [1, {"y": float("nan")}]}}, "of-the-future.x.y: JSON has no number nan"),
        ({"default-address-pools": ["10.0.0.0/8"]}, 'default-address-pools: dockerd wants objects like {"base"'),
    ],
)
def test_a_wrong_value_is_named_before_dockerd_sees_it(options: dict[str, t.Any], words: str) -> None:
    assert any(words in problem for problem in daemon_config.config_problems(options))
    with pytest.raises(DaemonConfigError, match=re.escape(words)):
        plan(None, options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"live-restore": None, "features": {"cdi": None}, "runtimes": {"nvidia": None}},
        {"an-option-of-the-future": {"x": 1}},
        {"proxies": {"http-proxy": "http://p", "no-proxy": None}},
        {"log-opts": {"max-size": "10m", "max-file": "3", "tag": "x"}, "default-shm-size": "1G"},
        {"default-runtime": "io.containerd.runsc.v1"},
        {"default-ulimits": {"nofile": {"Name": "nofile", "Hard": 1, "Soft": 1}}},
        {"default-address-pools": [{"base": "172.30.0.0/16", "size": 24}]},
        {"runtimes": {"kata": {"runtimeType": "io.containerd.kata.v2", "options": {}}}},
    ],
)
def test_right_values_pass(options: dict[str, t.Any]) -> None:
    assert daemon_config.config_problems(options) == []


DROP_IN = "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd \\\n  -D --live-restore=false -s overlay2\n"
OWN_UNIT = '[Service]\nEnvironment="X=--label a=1"\nExecStart=/usr/bin/dockerd ${X} --add-runtime nvidia=/x\n'
OPTIONS = '# comment\nDOCKER_OPTS="--dns 8.8.8.8 --live-restore --dns=8.8.4.4 --mtu 9000"\n'
IN_DROP_IN = "/etc/systemd/system/docker.service.d/10-flags.conf"


def test_a_default_runtime_that_others_registered_is_known() -> None:
    text = '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}'
    assert plan(text, {"default-runtime": "nvidia"}).changed_keys == ("default-runtime",)


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
def test_flags_are_read_from_the_unit_as_systemd_does(
    tmp_path: Path, files: dict[str, str], expected: list[Flag]
) -> None:
    write(tmp_path, files)
    assert daemon_config.unit_flags(str(tmp_path)) == expected


def flag(text: str, key: str, value: t.Any) -> Flag:
    return Flag(text, key, value, "/etc/systemd/system/docker.service.d/x.conf")


@pytest.mark.parametrize(
    ("flags", "options", "words"),
    [
        (
            [flag("--live-restore=false", "live-restore", False)],
            {"live-restore": True},
            '"live-restore" would be given twice',
        ),
        ([flag("-H fd://", "hosts", ["fd://"])], {"hosts": ["tcp://0.0.0.0:2375"]}, '"hosts" would be given twice'),
        ([flag("--label a=1", "labels", ["a=1"])], {"labels": ["b=1"]}, '"labels" would be given twice'),
        (
            [flag("--http-proxy x", "proxies.http-proxy", "x")],
            {"proxies": {"http-proxy": "y"}},
            '"proxies.http-proxy" would be',
        ),
    ],
)
def test_a_flag_that_says_otherwise_is_named_with_its_place(
    flags: list[Flag], options: dict[str, t.Any], words: str
) -> None:
    with pytest.raises(DaemonConfigError) as caught:
        plan(None, options, flags=flags)
    message = str(caught.value)
    assert words in message
    assert flags[0].text in message
    assert flags[0].place in message
    assert "systemctl edit docker.service" in message


@pytest.mark.parametrize(
    ("flags", "options", "left"),
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
def test_a_flag_that_says_the_same_is_enough(
    flags: list[Flag], options: dict[str, t.Any], left: dict[str, t.Any]
) -> None:
    done = plan(None, options, flags=flags)
    assert done.config == left
    assert done.satisfied == sorted(set(options) - set(left))


def test_a_conflict_that_was_there_before_is_left_alone_while_nothing_changes() -> None:
    text = '{"debug": true}'
    done = plan(text, {"debug": True}, flags=[flag("--mtu 1", "mtu", 1), flag("-D=false", "debug", False)])
    assert done.text == text
    assert [text.partition(" ")[0] for text in done.conflicts] == ['"debug"']


def test_live_restore_is_refused_in_a_swarm(tmp_path: Path) -> None:
    write(tmp_path, {"/data/swarm/docker-state.json": "{}"})
    assert daemon_config.in_swarm({"data-root": "/data"}, [], str(tmp_path))
    assert daemon_config.in_swarm({}, [flag("--data-root /data", "data-root", "/data")], str(tmp_path))
    assert not daemon_config.in_swarm({}, [], str(tmp_path))
    with pytest.raises(DaemonConfigError, match="member of a swarm"):
        plan(None, {"live-restore": True}, in_swarm=True)
    assert plan(None, {"live-restore": False}, in_swarm=True).config == {"live-restore": False}


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
def test_dockerd_is_asked_in_the_way_it_knows(
    version: str, asked: tuple[int, str, str] | None, unprivileged: tuple[int, str, str] | None, expected: str
) -> None:
    run = runner({"--version": (0, version, ""), **({"--validate --config-file /t/f": asked} if asked else {})})
    nobody = runner({"--config-file /t/f": unprivileged} if unprivileged else {})
    assert daemon_config.validate(run, nobody, "/usr/sbin/dockerd", "/t/f") == expected


@pytest.mark.parametrize("version", ["20.10.24", "28.3.0"])
def test_dockerds_own_words_are_handed_on(version: str) -> None:
    refused = (1, "", "unable to configure the Docker daemon with file /t/f: the following directives don't match: x\n")
    run = runner({"--version": (0, f"Docker version {version}", ""), "--validate --config-file /t/f": refused})
    nobody = runner({"--config-file /t/f": refused})
    with pytest.raises(DaemonConfigError, match=f"dockerd {version} does not accept .* with it: .* match: x"):
        daemon_config.validate(run, nobody, "/usr/sbin/dockerd", "/t/f")


@pytest.mark.parametrize(
    ("directives", "words"),
    [
        ("storage-drver", "storage-drver: dockerd 20.10.24 has no such option. Did you mean storage-driver?"),
        ("frobnicate", "frobnicate: dockerd 20.10.24 has no such option. All that it has: https://docs.docker.com/"),
        ("log-format", "log-format: dockerd 20.10.24 has no such option; dockerd of another version has."),
        ("http-proxy", "proxies.http-proxy: dockerd 20.10.24 has no such option; dockerd of another version has."),
        ("mtv, frobnicate", "mtv: dockerd 20.10.24 has no such option. Did you mean mtu? frobnicate: dockerd"),
    ],
)
def test_an_option_that_this_dockerd_does_not_have_is_named(directives: str, words: str) -> None:
    said = f"unable to configure it: the following directives don't match any configuration option: {directives}\n"
    run = runner({"--version": (0, "Docker version 20.10.24", "")})
    with pytest.raises(DaemonConfigError, match="^" + re.escape(words)):
        daemon_config.validate(run, runner({"--config-file /t/f": (1, "", said)}), "dockerd", "/t/f")


def test_a_daemon_that_really_starts_as_nobody_is_no_yes() -> None:
    run = runner({"--version": (0, "Docker version 20.10.1", "")})
    with pytest.raises(DaemonConfigError, match="exit status 0"):
        daemon_config.validate(run, runner({"--config-file /t/f": (0, "", "")}), "dockerd", "/t/f")


def test_state_survives_writing_and_reading() -> None:
    done = plan('{"a": 1}', {"a": None, "dns": ["1.1.1.1"], "runtimes": {"n": {"path": "p"}}})
    state = done.state._replace(written={"at": 1, "boot_id": "b", "reload": ["dns"], "restart": []})
    assert daemon_config.load_state(daemon_config.dump_state(state), "x") == state
    assert daemon_config.load_state(None, "x") == State(EMPTY_RECORD)


WRITTEN = {"at": 1, "boot_id": "b", "reload": [], "restart": []}
ENTRY = {"path": ["a"], "managers": ["m"]}
RECORD = {"entries": [ENTRY], "containers": [], "original": None, "made_directory": False, "written": WRITTEN}


def test_the_record_below_is_right() -> None:
    assert daemon_config.load_state(json.dumps(RECORD), "x").written == WRITTEN


def record(**more: t.Any) -> str:
    return json.dumps({**RECORD, **more})


def without(tree: dict[str, t.Any], key: str) -> dict[str, t.Any]:
    return {name: value for name, value in tree.items() if name != key}


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"entries": [{}]}', "nonsense", "5", "null", pytest.param("[" * 100000, id="deep")),
        *(json.dumps(without(RECORD, key)) for key in RECORD),
        *(record(written=without(WRITTEN, key)) for key in WRITTEN),
        *(record(written=value) for value in (5, True, "x", [], [1])),
        *(record(written={**WRITTEN, "at": value}) for value in (None, "1", True, [])),
        *(record(written={**WRITTEN, "reload": value}) for value in (None, 5, "ab", [5])),
        *(record(written={**WRITTEN, "former": value}) for value in (5, "x", {}, {"text": 1}, [1])),
        record(written={**WRITTEN, "former": {"text": None, "after": None, "state": 5}}),
        *(record(entries=value) for value in (5, [5], [[]], [{**ENTRY, "path": []}], [{**ENTRY, "path": "ab"}])),
        *(record(entries=[{**ENTRY, **more}]) for more in ({"path": [5]}, {"managers": "m"}, {"item": 5})),
        *(record(containers=value) for value in (5, [5], ["ab"], [[]], [[["a"]]])),
        *(record(original=5), record(made_directory=5)),
    ],
)
def test_a_broken_record_is_named(text: str) -> None:
    with pytest.raises(DaemonConfigError, match=r"/var/lib/x: this record .* Remove it"):
        daemon_config.load_state(text, "/var/lib/x")
    assert daemon_config.masked_record(text, "/var/lib/x") == text


@pytest.mark.parametrize(
    ("show", "expected"),
    [
        pytest.param("MainPID=0", {"reload": [], "restart": []}, id="stopped"),
        pytest.param(
            "MainPID=9\nExecMainStartTimestampMonotonic=50\nStateChangeTimestampMonotonic=60",
            {"reload": ["a"], "restart": ["b"]},
            id="older",
        ),
        pytest.param(
            "MainPID=9\nExecMainStartTimestampMonotonic=50\nStateChangeTimestampMonotonic=160",
            {"reload": [], "restart": ["b"]},
            id="reloaded",
        ),
        pytest.param(
            "MainPID=9\nExecMainStartTimestampMonotonic=50\nStateChangeTimestampMonotonic=160\nReloadResult=success",
            {"reload": [], "restart": ["b"]},
            id="reloaded well",
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
def test_what_the_running_daemon_has_not_taken_up(show: str, expected: dict[str, list[str]]) -> None:
    written = {"at": 100, "boot_id": "now", "reload": ["a"], "restart": ["b"]}

    def run(command: list[str]) -> tuple[int, str, str]:
        assert command[:3] == ["systemctl", "show", "docker.service"]
        return 0, show, ""

    assert daemon_config.pending(written, "now", run, "docker.service") == expected
    assert daemon_config.pending(written, "another", run, "docker.service") == {"reload": [], "restart": []}
    assert daemon_config.pending(None, "now", run, "docker.service") == {"reload": [], "restart": []}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://u:p@ss@proxy:3128", "http://u:********@proxy:3128"),
        ("http://:pw@proxy/x@y", "http://:********@y"),
        ("http://u:p/w@proxy:3128", "http://u:********@proxy:3128"),
        ("http://u%3Apw%40proxy:3128", "http://********%40proxy:3128"),
        ("u:p/w@registry:5000", "u:********@registry:5000"),
        ("registry 'u:pw@registry'", "registry 'u:********@registry'"),
        ("u%3Apw%40registry", "u%3A********%40registry"),
        ('invalid host "u:p w@registry"', 'invalid host "u:********@registry"'),
        (r'parse "https://u:p \"w@registry"', 'parse "https://u:********@registry"'),
        ("http://p:3128/?to=https%3A%2F%2Fu%3Apw%40m", "http://p:3128/?to=https%3A%2F%2F********%40m"),
        ("m.example:5000/cuda:12@sha256:00ff", "m.example:5000/cuda:12@sha256:00ff"),
        ("cuda:12@sha256:00ff", "cuda:12@sha256:00ff"),
        ("https://[fd00::1]:5000/a@b", "https://[fd00::1]:5000/a@b"),
        ("user@1000.service: failed", "user@1000.service: failed"),
        ("http://token@proxy", "http://********@proxy"),
        ("http://u:p'w:x@a http://v:q@b", "http://u:********@a http://v:********@b"),
        ('{"a":"http://u:p@a","b":"x@y"}', '{"a":"http://u:********@a","b":"x@y"}'),
        (r'{"a": "http:\/\/u:p@a"}', r'{"a": "http:\/\/u:********@a"}'),
        (r'{"original": "{\"a\": \"http://u:p@a\"}"}', r'{"original": "{\"a\": \"http://u:********@a\"}"}'),
        ("https://m.example:5000/a@b", "https://m.example:5000/a@b"),
    ],
)
def test_user_info_is_masked_up_to_its_last_at_sign(text: str, expected: str) -> None:
    assert daemon_config.masked(text) == expected
    assert daemon_config.masked(expected) == expected
    assert daemon_config.masked_tree({"k": [text, 1, None]}) == {"k": [expected, 1, None]}


@pytest.mark.parametrize(
    ("key", "value", "is_right"),
    [
        ("bip", "172.26.0.1/16", True),
        ("bip", "", True),
        ("bip", "300.1.1.1/24", False),
        ("bip", "172.26.0.1/33", False),
        ("fixed-cidr-v6", "fd00::/80", True),
        ("fixed-cidr", "everything", False),
    ],
)
def test_networks_that_dockerd_accepts_and_then_can_not_make(key: str, value: str, is_right: bool) -> None:
    problems = daemon_config.value_problems({key: value})
    assert problems == ([] if is_right else [f"{key}: {value!r} is no address with a prefix length. "
                                             "Write for example 172.26.0.1/16."])  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("registry-mirrors", "m.example:5000", "begin with https:// or http://"),
        ("registry-mirrors", "ftp://m.example", "begin with https:// or http://"),
        ("registry-mirrors", "https://", "begin with https:// or http://"),
        ("registry-mirrors", "https://bob:s3cret@m.example", "takes no user or password in 'https://bob:****"),
        ("registry-mirrors", "https://m.example/?q=1", "may have no ?"),
        ("registry-mirrors", "https://m.example/#x", "no #"),
        ("insecure-registries", "ftp://m.example", "'ftp://m.example' is no registry"),
        ("insecure-registries", "a b", "'a b' is no registry"),
        ("insecure-registries", "-x", "'-x' is no registry"),
        ("insecure-registries", "", "'' is no registry"),
        ("insecure-registries", "bob:s3cret@m.example:5000", "takes no user or password in 'bob:********@m"),
        ("insecure-registries", "http://bob:s3cret@m.example", "takes no user or password in 'http://bob:****"),
        ("insecure-registries", "s3cret@m.example", "takes no user or password in '********@m.example'"),
        ("insecure-registries", "bob:s3cret /x@m.example", "takes no user or password in 'bob:********@m.ex"),
    ],
)
def test_registries_that_dockerd_accepts_and_then_does_not_start_with(key: str, value: str, words: str) -> None:
    with pytest.raises(DaemonConfigError) as caught:
        plan(None, {key: [value]})
    assert f"{key}: " in str(caught.value)
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("registry-mirrors", "https://m.example/proxy@x"),
        ("registry-mirrors", "http://10.0.0.1:5000"),
        ("insecure-registries", "m.example:5000"),
        ("insecure-registries", "10.0.0.0/8"),
        ("insecure-registries", "http://m.example"),
    ],
)
def test_registries_that_dockerd_takes(key: str, value: str) -> None:
    assert plan(None, {key: [value]}).config == {key: [value]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"proxies": {"http-proxy": "u:pw@p:3128"}}', '{"proxies": {"http-proxy": "u:********@p:3128"}}'),
        ('{"log-opts": {"splunk-token": "s3 c\\"r,t"}}', '{"log-opts": {"splunk-token": "********"}}'),
        (r'{"original": "{\"splunk-token\": \"s3cret\"}"}', r'{"original": "{\"splunk-token\": \"********\"}"}'),
        ("dockerd --log-opt splunk-token=s3cret --debug", "dockerd --log-opt splunk-token=******** --debug"),
        (
            '{"insecure-registries": ["s3cret@r:5", "u:s3 cret@r", "[::]", "s3cret@x"], "labels": ["mail=a@b"]}',
            '{"insecure-registries": ["********@r:5", "u:********@r", "[::]", "********@x"], "labels": ["mail=a@b"]}',
        ),
        ("dockerd --http-proxy u:pw@p:3128", "dockerd --http-proxy u:********@p:3128"),
        ('{"labels": ["mail=a@b"], "log-opts": {"tag": "x"}}', '{"labels": ["mail=a@b"], "log-opts": {"tag": "x"}}'),
    ],
)
def test_what_a_key_calls_a_secret_is_masked(text: str, expected: str) -> None:
    assert daemon_config.masked_file(text) == expected
    assert daemon_config.masked_file(expected) == expected
    if text.startswith("{"):
        assert daemon_config.masked_tree(json.loads(text)) == json.loads(expected) or "original" in text


def test_the_record_is_masked_although_it_keeps_values_apart_from_their_keys() -> None:
    before = '{"log-opts": {"splunk-token": "0ld"}, "proxies": {"http-proxy": "u:0ld@p"}}'
    options = {"log-opts": {"splunk-token": "n3w"}, "proxies": {"http-proxy": "u:n3w@p"}}
    done = plan(before, options)
    text = daemon_config.masked_record(daemon_config.dump_state(done.state), "record")
    assert "0ld" not in text
    assert "n3w" not in text
    assert daemon_config.load_state(text, "record").record.entries.keys() == done.state.record.entries.keys()
    assert daemon_config.masked_record('{"token": "x"}', "record") == '{"token": "********"}'


def test_passwords_in_addresses_are_masked() -> None:
    text = '{"proxies": {"http-proxy": "http://me:s3cr3t@proxy:3128"}, "registry-mirrors": ["https://m.example"]}'
    assert "s3cr3t" not in daemon_config.masked(text)
    assert "https://m.example" in daemon_config.masked(text)
    assert "http://me:********@proxy:3128" in daemon_config.masked(text)
