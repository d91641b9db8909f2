# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dockerd reads the fields of its objects in any case."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import docker_options, option_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.managed_keys import EMPTY_RECORD
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.plan import plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.record import State

NVIDIA = "/usr/bin/nvidia-container-runtime"


@pytest.mark.parametrize(
    ("runtime", "program"),
    [
        ({"path": NVIDIA}, NVIDIA),
        ({"Path": NVIDIA, "runtimeArgs": []}, NVIDIA),
        ({"runtimeType": "io.containerd.runc.v2", "options": {"BinaryName": NVIDIA}}, NVIDIA),
        ({"RuntimeType": "io.containerd.runc.v2", "Options": {"binaryname": NVIDIA}}, NVIDIA),
        ({"runtimeType": "io.containerd.kata.v2"}, None),
        ({"runtimeType": "/opt/kata/bin/containerd-shim-kata-v2"}, "/opt/kata/bin/containerd-shim-kata-v2"),
        ({}, None),
        (None, None),
        ("text", None),
    ],
)
def test_the_program_of_a_runtime(runtime, program):
    assert option_fields.program(runtime) == program


def test_the_exact_name_of_a_field_comes_first():
    assert option_fields.get({"PATH": 1, "path": 2}, "path") == 2


@pytest.mark.parametrize(
    "config",
    [
        {"runtimes": {"nvidia": {"Path": NVIDIA, "RuntimeArgs": []}}},
        {"default-address-pools": [{"Base": "10.9.0.0/16", "Size": 24}]},
        {"default-ulimits": {"nofile": {"name": "nofile", "hard": 5, "soft": 4}}},
        {"Proxies": {"http-proxy": "http://proxy:3128"}},
    ],
)
def test_a_file_with_fields_in_another_case_is_accepted(config):
    assert docker_options.config_problems(config) == []


@pytest.mark.parametrize("key", ["Debug", "LIVE-RESTORE", "Runtimes"])
def test_the_names_of_options_are_case_sensitive(key):
    assert "dockerd has no such option" in " ".join(
        docker_options.config_problems({key: {} if key == "Runtimes" else True})
    )


@pytest.mark.parametrize(
    ("text", "requested"),
    [
        (json.dumps({"runtimes": {"nvidia": {"Path": NVIDIA}}}), {"runtimes": {"nvidia": {"path": NVIDIA}}}),
        ('{"default-ulimits": {"nofile": {"name": "nofile", "hard": 5, "soft": 4}}}',
         {"default-ulimits": {"nofile": {"Name": "nofile", "Hard": 5, "Soft": 4}}}),
        ('{"default-address-pools": [{"Base": "10.9.0.0/16", "Size": 24}]}',
         {"default-address-pools": [{"base": "10.9.0.0/16", "size": 24}]}),
    ],
)  # fmt: skip
def test_the_same_value_with_fields_in_another_case_is_no_change(text, requested):
    state = State(EMPTY_RECORD)
    done = plan(text, state, "me", requested, present=True, lists="union", flags=[], path="/etc/docker/daemon.json")
    assert (done.text, done.changed_keys) == (text, ())
