# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.dockerd_flags import Flag
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DaemonConfigError
from ansible_collections.gpufleet.hosts.tests.unit.plugins.daemon_json_changes import plan


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
def test_formatting_is_kept(before: str | None, after: str) -> None:
    assert plan(before, {"debug": True}).text == after


EMPTY = ["", " \n\n", "\u00a0\v", "null", "\ufeff", "\ufeff \r\n", "\ufeff{}"]


@pytest.mark.parametrize(
    "before", [None, "{}", '{ "dns" :["1.1.1.1"],\n "debug": false}', '\ufeff{"dns": ["1.1.1.1"]}\r\n', *EMPTY]
)
def test_release_restores_the_original_text(before: str | None) -> None:
    there = plan(before, {"debug": True, "dns": ["9.9.9.9"], "runtimes": {"nvidia": {"path": "n"}}})
    assert there.text != before
    back = plan(there.text, None, there.state, present=False)
    assert back.text == before
    assert not back.state.record.entries


def test_release_keeps_keys_that_others_added() -> None:
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
def test_equal_definitions_of_a_runtime_are_no_change(have: dict[str, t.Any], want: dict[str, t.Any]) -> None:
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
        ({}, {"shutdown-timeout": 30, "default-shm-size": "1G", "default-ipc-mode": "private"}, True, []),
        ({}, {"default-cgroupns-mode": "host", "network-diagnostic-port": 2000}, True, []),
        ({}, {"nri-opts": {"enable": True}, "default-stop-timeout": 30}, True, []),
        ({"shutdown-timeout": 30}, {"shutdown-timeout": None}, True, ["shutdown-timeout"]),
        ({"nri-opts": {"enable": True}}, {"nri-opts": None}, True, []),
        ({"network-diagnostic-port": 2000}, {"network-diagnostic-port": None}, True, []),
        ({}, {"default-address-pools": [{"base": "10.0.0.0/8", "size": 24}]}, True, ["default-address-pools"]),
        ({"runtimes": {"nvidia": {"path": "n"}}}, {"runtimes": None}, True, ["runtimes"]),
        ({"runtimes": {"nvidia": {"path": "n"}}}, {"runtimes": {"nvidia": None}}, True, []),
    ],
)
def test_keys_that_require_a_restart_are_listed(
    before: dict[str, t.Any], options: dict[str, t.Any], present: bool, restart: list[str]
) -> None:
    assert plan(json.dumps(before), options, present=present).restart_keys == restart


def test_address_pool_with_another_size_is_a_conflict() -> None:
    text = '{"default-address-pools": [{"base": "172.30.0.0/16", "size": 24}]}'
    pool = {"base": "172.30.0.0/16", "size": 26}
    with pytest.raises(DaemonConfigError, match=r"'172\.30\.0\.0/16' has two sizes, 24 and 26"):
        plan(text, {"default-address-pools": [pool]})
    assert plan(text, {"default-address-pools": [{**pool, "size": 24}]}).changed_keys == ()
    assert plan(text, {"default-address-pools": [pool]}, lists="replace").config == {"default-address-pools": [pool]}


def test_default_runtime_may_be_registered_by_others() -> None:
    text = '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}'
    assert plan(text, {"default-runtime": "nvidia"}).changed_keys == ("default-runtime",)


def test_existing_conflict_is_only_reported_while_nothing_changes() -> None:
    text = '{"debug": true}'
    done = plan(
        text, {"debug": True}, flags=[Flag("--mtu 1", "mtu", 1, "unit"), Flag("-D=false", "debug", False, "unit")]
    )
    assert done.text == text
    assert [text.partition(" ")[0] for text in done.conflicts] == ['"debug"']
