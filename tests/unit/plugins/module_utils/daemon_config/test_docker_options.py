# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import docker_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DaemonConfigError
from ansible_collections.gpufleet.hosts.tests.unit.plugins.daemon_json_changes import plan


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"live-restore": "true"}, 'live-restore: dockerd requires true or false, not "true"'),
        ({"mtu": True}, "mtu: dockerd requires an integer, not true"),
        ({"mtu": "9000"}, 'mtu: dockerd requires an integer, not "9000"'),
        ({"dns": "1.1.1.1"}, "dns: dockerd requires a list"),
        ({"dns": [1]}, "dns: dockerd requires a string, not 1"),
        ({"labels": ["a=1", "b=1", "a=2"]}, "labels: 'a=1' and 'a=2' contradict each other"),
        ({"features": ["cdi"]}, 'features: dockerd requires an object, not ["cdi"]'),
        ({"features": {"cdi": "yes"}}, 'features.cdi: dockerd requires true or false, not "yes"'),
        ({"log-opts": {"max-file": 3}}, 'log-opts.max-file: dockerd requires a string, not 3. Write "3"'),
        ({"log-opts": {"max-size": "ten"}}, "log-opts.max-size: 'ten' is not a size"),
        ({"log-opts": {"max-file": "0"}}, "log-opts.max-file: '0' is not a number of files"),
        ({"live_restore": True}, "live_restore: dockerd has no such option. Did you mean live-restore?"),
        ({"live-restor": True}, "live-restor: dockerd has no such option. Did you mean live-restore?"),
        ({"label": ["a=b"]}, "label: dockerd has no such option. Did you mean labels?"),
        ({"http-proxy": "http://p"}, "http-proxy: dockerd has no such option. Did you mean proxies.http-proxy?"),
        ({"proxies": {"http_proxy": "http://p"}}, "proxies.http_proxy: dockerd has no such option. Use http-proxy"),
        (
            {"proxies": {"ftp": "p"}},
            "proxies.ftp: dockerd has no such option. Use http-proxy, https-proxy or no-proxy.",
        ),
        ({"proxies": {"no-proxy": ["p"]}}, 'proxies.no-proxy: dockerd requires a string, not ["p"]'),
        ({"default-runtime": "nvidia"}, "default-runtime: 'nvidia' is not one of the runtimes"),
        ({"runtimes": {"runc": {"path": "x"}}}, "runtimes.runc: the name runc is reserved"),
        ({"runtimes": {"nvidia": "x"}}, 'runtimes.nvidia: dockerd requires an object, not "x"'),
        (
            {"runtimes": {"nvidia": {"args": []}}},
            "runtimes.nvidia: the runtime has neither path nor runtimeType",
        ),
        ({"runtimes": {"nvidia": {"path": "n", "args": ["-x"]}}}, "Use runtimeArgs"),
        ({"default-ulimits": {"nofile": 1024}}, "default-ulimits.nofile: dockerd requires an object"),
        ({"mtu": float("inf")}, "mtu: JSON does not allow infinite numbers"),
        ({"of-the-future": {"x": [1, {"y": float("nan")}]}}, "of-the-future: JSON does not allow infinite numbers"),
        ({"default-stop-timeout": "30"}, 'default-stop-timeout: dockerd requires an integer, not "30"'),
        ({"nri-opts": "enable=true"}, 'nri-opts: dockerd requires an object, not "enable=true"'),
        (
            {"default-address-pools": [{"base": "10.0.0.0/8", "size": 24}, {"base": "10.0.0.0/8", "size": 26}]},
            "default-address-pools: '10.0.0.0/8' has two sizes, 24 and 26. Keep one of them.",
        ),
        (
            {"default-address-pools": ["10.0.0.0/8"]},
            'default-address-pools: dockerd requires an object, not "',
        ),
    ],
)
def test_wrong_value_is_reported(values: dict[str, t.Any], words: str) -> None:
    assert any(words in problem for problem in docker_options.config_problems(values))
    with pytest.raises(DaemonConfigError, match=re.escape(words)):
        plan(None, values)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"live-restore": None, "features": {"cdi": None}, "runtimes": {"nvidia": None}},
        {"an-option-of-the-future": {"x": 1}},
        {"proxies": {"http-proxy": "http://p", "no-proxy": None}},
        {"log-opts": {"max-size": "10m", "max-file": "3", "tag": "x"}, "default-shm-size": "1G"},
        {"default-runtime": "io.containerd.runsc.v1"},
        {"default-ulimits": {"nofile": {"Name": "nofile", "Hard": 1, "Soft": 1}}},
        {"default-address-pools": [{"base": "172.30.0.0/16", "size": 24}]},
        {"runtimes": {"kata": {"runtimeType": "io.containerd.kata.v2", "values": {}}}},
    ],
)
def test_valid_values_are_accepted(values: dict[str, t.Any]) -> None:
    assert docker_options.config_problems(values) == []


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
def test_invalid_networks_are_reported(key: str, value: str, is_right: bool) -> None:
    problems = docker_options.value_problems({key: value})
    assert problems == ([] if is_right else [f"{key}: {value!r} is not an address with a prefix length. "
                                             "Use a value such as 172.26.0.1/16."])  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("registry-mirrors", "m.example:5000", "must begin with https:// or http://"),
        ("registry-mirrors", "ftp://m.example", "must begin with https:// or http://"),
        ("registry-mirrors", "https://", "must begin with https:// or http://"),
        ("registry-mirrors", "https://bob:s3cret@m.example", "accepts no user or password in 'https://bob:****"),
        ("registry-mirrors", "https://m.example/?q=1", "must not contain ?"),
        ("registry-mirrors", "https://m.example/#x", "must not contain ? or #"),
        ("insecure-registries", "ftp://m.example", "'ftp://m.example' is not a registry"),
        ("insecure-registries", "a b", "'a b' is not a registry"),
        ("insecure-registries", "-x", "'-x' is not a registry"),
        ("insecure-registries", "", "'' is not a registry"),
        ("insecure-registries", "bob:s3cret@m.example:5000", "accepts no user or password in 'bob:********@m"),
        ("insecure-registries", "http://bob:s3cret@m.example", "accepts no user or password in 'http://bob:****"),
        ("insecure-registries", "s3cret@m.example", "accepts no user or password in '********@m.example'"),
        ("insecure-registries", "bob:s3cret /x@m.example", "accepts no user or password in 'bob:********@m.ex"),
    ],
)
def test_invalid_registry_is_reported(key: str, value: str, words: str) -> None:
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
def test_valid_registry_is_accepted(key: str, value: str) -> None:
    assert plan(None, {key: [value]}).config == {key: [value]}
