# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import time

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import secret_masking


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
def test_user_info_is_masked_up_to_the_last_at_sign(text: str, expected: str) -> None:
    assert secret_masking.masked(text) == expected
    assert secret_masking.masked(expected) == expected
    assert secret_masking.masked_tree({"k": [text, 1, None]}) == {"k": [expected, 1, None]}


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
def test_values_of_secret_keys_are_masked(text: str, expected: str) -> None:
    assert secret_masking.masked_file(text) == expected
    assert secret_masking.masked_file(expected) == expected
    # The value of `original` is a string with JSON, which only masked_file reads.
    if text.startswith("{") and "original" not in text:
        assert secret_masking.masked_tree(json.loads(text)) == json.loads(expected)


@pytest.mark.parametrize(
    "name",
    [
        "splunk-token",
        "gelf-x-auth",
        "x-sharedkey",
        "SharedKey",
        "shared_key",
        "loki-pwd",
        "DB_PWD",
        "private-key",
        "privatekey",
        "api-key",
        "x-credentials",
        "x-authorization",
    ],
)
def test_options_with_the_name_of_a_secret_are_masked(name: str) -> None:
    assert secret_masking.masked(f"dockerd --log-opt {name}=s3cret") == f"dockerd --log-opt {name}=********"
    assert secret_masking.masked_file(f'{{"{name}": "s3cret"}}') == f'{{"{name}": "********"}}'
    assert secret_masking.masked_tree({"log-opts": {name: "s3cret"}}) == {"log-opts": {name: "********"}}


@pytest.mark.parametrize("name", ["authorization-plugins", "max-size", "tag", "tlskey-path", "keyring", "PWD"])
def test_other_options_are_not_masked(name: str) -> None:
    assert secret_masking.masked_tree({name: "value"}) == {name: "value"}
    assert secret_masking.masked(f"--log-opt {name}=value") == f"--log-opt {name}=value"


def test_passwords_in_addresses_are_masked() -> None:
    text = '{"proxies": {"http-proxy": "http://me:s3cr3t@proxy:3128"}, "registry-mirrors": ["https://m.example"]}'
    assert "s3cr3t" not in secret_masking.masked(text)
    assert "https://m.example" in secret_masking.masked(text)
    assert "http://me:********@proxy:3128" in secret_masking.masked(text)


HOSTS = ",".join(f"host{number}.example:5000" for number in range(6000))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"--no-proxy {HOSTS}", f"--no-proxy {HOSTS}"),
        (f'{{"proxies": {{"no-proxy": "{HOSTS}"}}}}', f'{{"proxies": {{"no-proxy": "{HOSTS}"}}}}'),
        (f"{HOSTS} http://u:pw@proxy:3128", f"{HOSTS} http://u:********@proxy:3128"),
        (f"{HOSTS} u:12,pw@r {HOSTS}", f"{HOSTS} u:********@r {HOSTS}"),
        (f"name@r,{HOSTS}", f"name@r,{HOSTS}"),
        (f"u:pw@r,{HOSTS}", f"u:********@r,{HOSTS}"),
        (f"{HOSTS},cuda:12@sha256:00ff", f"{HOSTS},cuda:12@sha256:00ff"),
    ],
    ids=["option", "file", "proxy", "words", "user", "login", "digest"],
)
def test_long_lists_of_hosts_are_masked_quickly(text: str, expected: str) -> None:
    start = time.process_time()
    assert secret_masking.masked_file(text) == expected
    assert time.process_time() - start < 1


@pytest.mark.parametrize("value", ["1234", 1234, 12.5])
def test_secret_of_digits_is_masked(value):
    assert secret_masking.masked_tree({"log-opts": {"splunk-token": value, "max-file": 3}}) == {
        "log-opts": {"splunk-token": "********", "max-file": 3}
    }
