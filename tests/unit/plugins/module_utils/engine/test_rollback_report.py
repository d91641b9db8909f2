# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The message if Docker's daemon does not apply changed options."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.secret_masking import masked_tree
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.rollback_report import causes, named_options, report

# As dockerd 20.10 and systemd 252 write it, for each of three attempts.
ATTEMPT = """\
Starting docker.service - Docker Application Container Engine...
time="2026-11-21T21:05:40.5Z" level=info msg="Starting up"
time="2026-11-21T21:05:40.5Z" level=info msg="[core] scheme \\"unix\\" not registered, fallback to default" module=grpc
time="2026-11-21T21:05:40.5Z" level=warning msg="Your kernel does not support cgroup blkio weight"
failed to start daemon: failed to set log opts: unknown log opt 'nonsense' for json-file log driver
docker.service: Main process exited, code=exited, status=1/FAILURE
docker.service: Failed with result 'exit-code'.
Failed to start docker.service - Docker Application Container Engine.
docker.service: Scheduled restart job, restart counter is at 3.
Stopped docker.service - Docker Application Container Engine.
"""
REFUSED = "docker.service: Start request repeated too quickly.\ndocker.service: Failed with result 'exit-code'.\n"
STOP = """\
Stopping docker.service - Docker Application Container Engine...
time="2026-11-21T21:05:30.1Z" level=info msg="Processing signal 'terminated'"
docker.service: Deactivated successfully.
docker.service: Consumed 1.513s CPU time.
"""
NONSENSE = "failed to start daemon: failed to set log opts: unknown log opt 'nonsense' for json-file log driver"


@pytest.mark.parametrize(
    ("journal", "expected"),
    [
        (STOP + ATTEMPT * 3 + REFUSED, [NONSENSE]),
        (
            'time="x" level=error msg="failed to mount overlay: invalid argument" storage-driver=overlay2\n'
            "failed to start daemon: error initializing graphdriver: driver not supported: overlay2",
            [
                "failed to start daemon: error initializing graphdriver: driver not supported: overlay2",
                "failed to mount overlay: invalid argument",
            ],
        ),
        ('time="x" level=fatal msg="no \\"disk\\"" error="write: full"', ['no "disk": write: full']),
        (
            '{"level":"error","msg":"no disk","error":"full","time":"x"}\n{"level":"info","msg":"error"}',
            ["no disk: full"],
        ),
        (
            STOP + "docker.service: start operation timed out. Terminating.\n" + REFUSED,
            ["docker.service: start operation timed out. Terminating."],
        ),
        (
            "Reloading docker.service - X...\ndocker.service: Control process exited, code=exited, status=1/FAILURE\n"
            "Reload failed for docker.service - X.",
            ["docker.service: Control process exited, code=exited, status=1/FAILURE"],
        ),
        (
            "failed to start daemon: bad proxy http://u:s3cret@p",
            ["failed to start daemon: bad proxy http://u:********@p"],
        ),
        # As dockerd 20.10 words them, and as Go does.
        (
            "failed to start daemon: insecure registry u:s3cret@r.example:5000 is not valid: "
            'invalid host "u:s3cret@r.example:5000"',
            [
                "failed to start daemon: insecure registry u:********@r.example:5000 is not valid: "
                'invalid host "u:********@r.example:5000"'
            ],
        ),
        (
            'failed to start daemon: insecure registry s3cret@r is not valid: invalid host "s3cret@r"',
            ['failed to start daemon: insecure registry ********@r is not valid: invalid host "********@r"'],
        ),
        (
            'failed to start daemon: invalid mirror: "https://u:s3%zzcret@m" is not a valid URI: '
            'parse "https://u:s3%zzcret@m": invalid URL escape "%zz"',
            [
                'failed to start daemon: invalid mirror: "https://u:********@m" is not a valid URI: '
                'parse "https://u:********@m": invalid URL escape "********"'
            ],
        ),
        (
            r'level=fatal msg="parse \"https://u:s3/cret@m\": invalid port \":s3\" after host"',
            ['parse "https://u:********@m": invalid port "********" after host'],
        ),
        (
            "failed to start daemon: bad proxy http://p/?to=https%3A%2F%2Fu%3As3cret%40m and u%3As3cret%40m",
            ["failed to start daemon: bad proxy http://p/?to=https%3A%2F%2F********%40m and u%3A********%40m"],
        ),
        # Go cuts the fragment before it builds its error, so the rest of the login has no @.
        (
            'failed to set log opts: parse "tcp://bob:s3cret": invalid port ":s3cret" after host',
            ['failed to set log opts: parse "tcp://bob:********": invalid port "********" after host'],
        ),
        (
            'failed to start daemon: invalid mirror: "https://bob:s3cret#x@m" is not a valid URI: '
            'parse "https://bob:s3cret": invalid port ":s3cret" after host',
            [
                'failed to start daemon: invalid mirror: "https://bob:********@m" is not a valid URI: '
                'parse "https://bob:********": invalid port "********" after host'
            ],
        ),
        (
            r'failed: msg="parse \"tcp://bob:s3cret\": invalid port \":s3cret\" after host"',
            [r'failed: msg="parse \"tcp://bob:********\": invalid port \"********\" after host"'],
        ),
        (
            r'level=fatal msg="parse \"tcp://bob:s3 \\\"cret\": invalid port \":s3 \\\"cret\" after host"',
            ['parse "tcp://bob:********": invalid port "********" after host'],
        ),
        (
            'failed: parse "http://m:5000/a b": invalid character " " in host name',
            ['failed: parse "http://m:5000/a b": invalid character " " in host name'],
        ),
        (
            "failed: invalid index name (s3token@m.example). Cannot begin or end with a hyphen.",
            ["failed: invalid index name (********@m.example). Cannot begin or end with a hyphen."],
        ),
        (
            r'failed: msg="invalid host \"s3@token@m.example\""',
            [r'failed: msg="invalid host \"********@m.example\""'],
        ),
        (STOP, []),
        ("", []),
    ],
)
def test_causes_are_found_in_the_journal(journal: str, expected: list[str]) -> None:
    assert causes(journal) == expected


def test_causes_are_few_and_short() -> None:
    assert len(causes("\n".join(f'level=error msg="{word * 900}"' for word in "abcdefg"))) == 3
    assert max(len(text) for text in causes(f'level=error msg="{"a" * 9000}"')) == 500


@pytest.mark.parametrize(
    ("words", "options", "config", "expected"),
    [
        (NONSENSE, ["log-opts.nonsense", "mtu"], {"log-opts": {"nonsense": "x"}}, ["log-opts.nonsense"]),
        (NONSENSE, ["log-driver", "mtu"], {"log-driver": "json-file"}, ["log-driver"]),
        (NONSENSE, ["log-driver", "log-opts.nonsense"], {"log-driver": "json-file"}, ["log-opts.nonsense"]),
        (
            "driver not supported: zfs",
            ["mtu", "storage-driver"],
            {"mtu": 9, "storage-driver": "zfs"},
            ["storage-driver"],
        ),
        ("bad option: dm.x=1", ["storage-opts"], {"storage-opts": ["dm.x=1"]}, ["storage-opts"]),
        ("the group is not there", ["ip", "log-opts"], {"ip": "x", "log-opts": {"max-size": "1m"}}, []),
        ("init-path is not there", ["init"], {"init": True}, []),
    ],
)
def test_options_that_the_daemon_names_are_found(
    words: str, options: list[str], config: dict[str, t.Any], expected: list[str]
) -> None:
    assert named_options(words, options, config) == expected


CONFIG = {
    "pending": {"reload": ["labels"], "restart": ["log-opts.nonsense"]},
    "config": {"labels": ["a=b"], "log-opts": {"nonsense": "x"}},
}
RESTORED = {"changed": True, "undone_keys": {"container_engine": ["log-opts.nonsense"]}}
UNCHANGED, EDITED = {"changed": False, "undone_keys": {}}, {"failed": False, "msg": "somebody has changed it."}
APPLIED, FAILED = {"changed": True}, {"msg": "Unable to do so."}


@pytest.mark.parametrize(
    ("was_restarted", "undone", "applied", "is_up", "words"),
    [
        (True, RESTORED, APPLIED, True, "The former daemon.json is restored, and the daemon runs with it."),
        (
            True,
            RESTORED,
            APPLIED,
            False,
            "restored, but the daemon does not start with it either.",
        ),
        (
            True,
            RESTORED,
            FAILED,
            False,
            "restored, but the daemon does not start with it either.",
        ),
        (True, UNCHANGED, {}, True, "The daemon is running, and daemon.json was not changed."),
        (True, UNCHANGED, {}, False, "The daemon is not running, and there is no former daemon.json to restore."),
        (True, EDITED, {}, False, "The former daemon.json was not restored: somebody has changed it."),
        (False, RESTORED, APPLIED, True, "is restored, and the daemon has reloaded it. The daemon was not restarted."),
        (
            False,
            RESTORED,
            FAILED,
            True,
            "The daemon was not restarted, and its reload failed: Unable to do so.",
        ),
        (False, UNCHANGED, {}, True, "The daemon is running, and daemon.json was not changed."),
        (False, EDITED, {}, True, "The former daemon.json was not restored: somebody has changed it."),
    ],
)
def test_report_describes_the_current_state(
    was_restarted: bool, undone: dict, applied: dict, is_up: bool, words: str
) -> None:
    text = report("", "Reload the daemon: no", CONFIG, undone, applied, was_restarted=was_restarted, is_up=is_up)
    assert words in text
    assert ("start the daemon (systemctl" in text) is not is_up
    assert ("correct /etc/docker/daemon.json by hand" in text) is (undone is EDITED)


def test_report_has_cause_state_and_remedy() -> None:
    text = report(STOP + ATTEMPT * 3 + REFUSED, "failed", CONFIG, RESTORED, APPLIED, was_restarted=True, is_up=True)
    assert text.splitlines() == [
        f"Docker failed to start with the changed /etc/docker/daemon.json: {NONSENSE}",
        "The message names log-opts.nonsense.",
        "The former daemon.json is restored, and the daemon runs with it.",
        "Correct log-opts.nonsense in container_engine_docker_options, and run this role again. Log: "
        "journalctl --unit=docker.service",
    ]


def test_report_works_without_journal() -> None:
    text = report("", "Reload the daemon: no\nand no", CONFIG, RESTORED, APPLIED, was_restarted=False, is_up=True)
    first, second, *_rest, last = text.splitlines()
    assert first == "Docker failed to apply the changed /etc/docker/daemon.json: Reload the daemon: no and no"
    assert second == "The reload was meant to apply labels, log-opts.nonsense."
    assert last.startswith("Correct the wrong option in container_engine_docker_options, and run this role again.")


def test_report_masks_the_login() -> None:
    options = {"insecure-registries": ["u:s3cret@r.example:5000"]}
    config = {
        "pending": {"reload": ["insecure-registries"], "restart": ["mtu"]},
        "config": masked_tree(options),
    }
    journal = "failed to start daemon: insecure registry u:s3cret@r.example:5000 is not valid"
    text = report(journal, "u:s3cret@r failed", config, RESTORED, APPLIED, was_restarted=True, is_up=True)
    assert "The message names insecure-registries." in text
    assert "s3cret" not in text


def test_report_names_undone_options_of_others() -> None:
    undone = {"changed": True, "undone_keys": {"container_engine": ["mtu"], "nightly": ["log-opts.nonsense"]}}
    text = report(ATTEMPT, "failed", CONFIG, undone, APPLIED, was_restarted=True, is_up=True)
    assert "Options of managed_by=nightly were undone, too: log-opts.nonsense." in text.splitlines()
    assert "Correct the wrong option where it is set, and run this role again." in text
