# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Docker on another host must not get the GPUs of this host."""

from __future__ import annotations

import socket

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.engine_choice import (
    docker_host,
    is_local_address,
    remote_docker,
)

OTHER = "selects Docker on another host, but this module assigns the GPUs of the host that the task runs on."
TLS = "uses TLS, but this module cannot query Docker over TLS. Use Docker's socket instead"


@pytest.mark.parametrize(
    ("options", "environment", "words"),
    [
        ({}, {}, None),
        ({"docker_host": "unix:///var/run/docker.sock", "tls": True}, {}, None),
        ({"docker_host": "tcp://here:2375"}, {}, None),
        ({"docker_host": "tcp://here:2375", "tls": False}, {"DOCKER_TLS_VERIFY": "0"}, None),
        ({"docker_host": "docker.example.com"}, {}, None),  # not an address; the engine's class reports it
        (
            {"docker_host": "tcp://127.0.0.1:2375a"},
            {},
            "docker_host=tcp://127.0.0.1:2375a is not valid. Use unix:///path",
        ),
        ({"docker_host": "tcp://[::1:2375"}, {}, "docker_host=tcp://[::1:2375 is not valid."),
        ({"docker_host": "ssh://root@node2"}, {}, f"docker_host=ssh://root@node2 {OTHER}"),
        ({"docker_host": "ssh://here"}, {}, f"docker_host=ssh://here {OTHER}"),
        ({"docker_url": "tcp://node2:2375"}, {}, f"docker_host=tcp://node2:2375 {OTHER}"),
        ({"docker_host": "tcp://node2:2376", "tls": True}, {}, "and run the task on node2: add it to the inventory"),
        ({"docker_host": "tcp://here:2376", "tls": "yes"}, {}, f"docker_host=tcp://here:2376 {TLS}"),
        ({"docker_host": "tcp://here:2376", "tls_verify": 1}, {}, TLS),
        ({"docker_host": "https://here:2376"}, {}, TLS),
        ({}, {"DOCKER_HOST": "ssh://node2"}, f"The environment variable DOCKER_HOST=ssh://node2 {OTHER}"),
        ({}, {"DOCKER_HOST": "tcp://here:2376", "DOCKER_TLS_VERIFY": "1"}, TLS),
    ],
)
def test_only_a_docker_of_this_host_is_used(options, environment, words):
    host = options.get("docker_host") or options.get("docker_url") or environment.get("DOCKER_HOST")
    reason = remote_docker(host, options, environment, is_local=lambda name: name == "here")
    assert (reason is None) is (words is None), reason
    assert words is None or words in reason


@pytest.mark.parametrize(
    ("name", "local"),
    # 192.0.2.0/24 is reserved for documentation.
    [("127.0.0.1", True), ("localhost", True), ("0.0.0.0", True), ("192.0.2.1", False), ("no such name", True)],
)
def test_addresses_of_this_host_are_recognized(monkeypatch, name, local):
    if name == "no such name":
        monkeypatch.setattr(socket, "getaddrinfo", _unresolved)
    assert is_local_address(name) is local


def _unresolved(*_arguments, **_options):
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        ({}, {}, None),
        ({}, {"DOCKER_HOST": ""}, None),
        ({}, {"DOCKER_HOST": "unix:///env"}, "unix:///env"),
        ({"docker_host": "unix:///option"}, {"DOCKER_HOST": "unix:///env"}, "unix:///option"),
        ({"docker_url": "unix:///option"}, {}, "unix:///option"),
    ],
)
def test_docker_host_is_found(options, environment, expected):
    assert docker_host(options, environment) == expected
