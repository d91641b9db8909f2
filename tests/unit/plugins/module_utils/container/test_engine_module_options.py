# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Translation of the container options to the options of each engine's module."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.container_name import validate_name
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.engine_module_options import (
    NAMES,
    OptionError,
    has_more_variables,
    module_arguments,
    removal_options,
    user_options,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access


@pytest.mark.parametrize(
    ("name", "value", "docker_option", "podman_option"),
    [
        ("command", "sh -c 'a b'", {"command": ["sh", "-c", "a b"]}, {"command": ["sh", "-c", "a b"]}),
        ("command", ["sleep", 5], {"command": ["sleep", "5"]}, {"command": ["sleep", "5"]}),
        ("entrypoint", ["/bin/a", "b"], {"entrypoint": ["/bin/a", "b"]}, {"entrypoint": '["/bin/a", "b"]'}),
        ("env", {"A": 1, "B": "x"}, {"env": {"A": "1", "B": "x"}}, {"env": {"A": "1", "B": "x"}}),
        ("volumes", ["/a:/b"], {"volumes": ["/a:/b"]}, {"volume": ["/a:/b"]}),
        ("published_ports", ["80:80"], {"published_ports": ["80:80"]}, {"publish": ["80:80"]}),
        ("network_mode", "host", {"network_mode": "host"}, {"network": ["host"]}),
        ("restart_policy", "always", {"restart_policy": "always"}, {"restart_policy": "always"}),
        ("labels", {"a": 1}, {"labels": {"a": "1"}}, {"label": {"a": "1"}}),
        ("working_dir", "/w", {"working_dir": "/w"}, {"workdir": "/w"}),
        ("shm_size", "16g", {"shm_size": "16g"}, {"shm_size": "16g"}),
        ("ipc_mode", "host", {"ipc_mode": "host"}, {"ipc": "host"}),
        ("ulimits", ["memlock:-1:-1"], {"ulimits": ["memlock:-1:-1"]}, {"ulimit": ["memlock=-1:-1"]}),
        ("ulimits", ["memlock=-1"], {"ulimits": ["memlock:-1"]}, {"ulimit": ["memlock=-1"]}),
        ("cpus", 1.5, {"cpus": 1.5}, {"cpus": "1.5"}),
        ("tmpfs", ["/a", "/b:size=1g"], {"tmpfs": ["/a", "/b:size=1g"]}, {"tmpfs": {"/a": "rw", "/b": "size=1g"}}),
        ("devices", ["/dev/fuse"], {"devices": ["/dev/fuse"]}, {"device": ["/dev/fuse"]}),
        ("cap_add", ["SYS_PTRACE"], {"capabilities": ["SYS_PTRACE"]}, {"cap_add": ["SYS_PTRACE"]}),
        ("security_opts", ["label=disable"], {"security_opts": ["label=disable"]}, {"security_opt": ["label=disable"]}),
        ("restart", True, {"restart": True}, {"force_restart": True}),
        ("recreate", True, {"recreate": True}, {"recreate": True}),
    ],
)
def test_options_are_translated_for_each_engine(name, value, docker_option, podman_option):
    assert user_options("docker", {name: value}, {}) == docker_option
    assert user_options("podman", {name: value}, {}) == podman_option


def test_unset_options_are_omitted():
    nothing = dict.fromkeys(NAMES["docker"])
    assert user_options("docker", nothing, {}) == {}
    assert user_options("podman", nothing, {}) == {}


@pytest.mark.parametrize(
    ("engine", "engine_options", "expected"),
    [
        ("docker", {"log_driver": "journald"}, {"log_driver": "journald"}),
        ("docker", {"ports": ["1:1"]}, {"published_ports": ["1:1"]}),
        ("docker", {"env": {"A": 1}}, {"env": {"A": "1"}}),
        ("podman", {"volumes": ["/a:/b"]}, {"volume": ["/a:/b"]}),
        ("podman", {"label": {"a": "b"}}, {"label": {"a": "b"}}),
        ("docker", {"labels": {"a": 1}}, {"labels": {"a": "1"}}),
        # A string is split at commas.
        ("docker", {"devices": "/dev/fuse"}, {"devices": ["/dev/fuse"]}),
        ("docker", {"volumes": "/a:/b, /c:/d"}, {"volumes": ["/a:/b", "/c:/d"]}),
        ("docker", {"device_cgroup_rules": "c 10:229 rwm"}, {"device_cgroup_rules": ["c 10:229 rwm"]}),
        ("podman", {"cmd_args": "--replace"}, {"cmd_args": ["--replace"]}),
        ("podman", {"device": "/dev/fuse"}, {"device": ["/dev/fuse"]}),
        ("docker", {"docker_url": "unix:///x"}, {"docker_host": "unix:///x"}),
        ("docker", {"log_driver": None}, {}),
    ],
)
def test_engine_options_are_accepted(engine, engine_options, expected):
    assert user_options(engine, {}, engine_options) == expected


@pytest.mark.parametrize(
    ("engine", "named", "engine_options", "words"),
    [
        (
            "docker",
            {"env": {"A": "1"}},
            {"env": {"B": "2"}},
            "engine_options.env and env set the same option. Remove one",
        ),
        (
            "podman",
            {"volumes": ["a:/a"]},
            {"volume": ["b:/b"]},
            "engine_options.volume and volumes set the same option",
        ),
        (
            "podman",
            {"labels": {"a": "b"}},
            {"labels": {"a": "b"}},
            "engine_options.labels and labels set the same option",
        ),
        ("docker", {}, {"image": "x"}, "engine_options.image is not allowed. Use the option image of this module"),
        ("docker", {}, {"state": "present"}, "Use the option state of this module"),
        ("docker", {"env": {"A": True}}, {}, "env A=True is not a string. Quote the value"),
        ("podman", {"env": {"A": None}}, {}, "env A=None is not a string. Quote the value"),
        ("docker", {}, {"env": {"A": ["x"]}}, "env A=['x'] is not a string"),
        (
            "docker",
            {"command": 'echo "a'},
            {},
            "command='echo \"a' cannot be split like a shell command (no closing quotation). Close the quote, or",
        ),
        ("podman", {"command": "it's"}, {}, 'command="it\'s" cannot be split like'),
        ("docker", {"command": 5}, {}, "command=5 is neither a string nor a list. Write a list of strings"),
        ("docker", {"command": {"a": 1}}, {}, "command={'a': 1} is neither a string nor a list"),
        ("docker", {"command": ["x", True]}, {}, "command: the item True is not a string. Quote the value."),
        ("docker", {"command": ["x", None]}, {}, "command: the item None is not a string. Quote the value."),
        (
            "docker",
            {},
            {"labels": ["a=b"]},
            "engine_options.labels=['a=b'] is not a mapping. Write engine_options: {labels: {name: value}}.",
        ),
        ("podman", {}, {"labels": "a=b"}, "engine_options.labels='a=b' is not a mapping"),
        ("docker", {}, {"env": ["A=1"]}, "engine_options.env=['A=1'] is not a mapping"),
        (
            "docker",
            {},
            {"devices": 5},
            "engine_options.devices=5 is not a list of strings. Write engine_options: {devices:",
        ),
        ("docker", {}, {"volumes": [{"a": "b"}]}, "engine_options.volumes=[{'a': 'b'}] is not a list of strings"),
        ("docker", {}, {"device_cgroup_rules": 5}, "engine_options.device_cgroup_rules=5 is not a list of strings"),
        ("podman", {}, {"device_cgroup_rules": 5}, "engine_options.device_cgroup_rules=5 is not a list of strings"),
        (
            "podman",
            {},
            {"device_cgroup_rule": 5},
            "engine_options.device_cgroup_rule=5 is not a string. Write engine_options: {device_cgroup_rule: string}",
        ),
        ("docker", {}, {"runtime": 5}, "engine_options.runtime=5 is not a string"),
        ("podman", {}, {"runtime": ["crun"]}, "engine_options.runtime=['crun'] is not a string"),
        ("docker", {}, {"restart_policy": False}, "engine_options.restart_policy=False is not a string"),
        ("docker", {}, {"security_opts": 5}, "engine_options.security_opts=5 is not a list of strings"),
        ("podman", {}, {"security_opt": 5}, "engine_options.security_opt=5 is not a list of strings"),
        ("podman", {}, {"executable": 5}, "engine_options.executable=5 is not a string"),
        ("docker", {}, {"device_requests": "all"}, "engine_options.device_requests='all' is not a list of mappings"),
        (
            "docker",
            {"labels": {"gpufleet.exclusive": "true"}},
            {},
            "label gpufleet.exclusive is reserved: the prefix gpufleet. is for labels of this module. Remove or",
        ),
        ("podman", {}, {"label": {"gpufleet.gpus": "x"}}, "label gpufleet.gpus is reserved"),
    ],
)
def test_invalid_and_conflicting_options_are_refused(engine, named, engine_options, words):
    with pytest.raises(OptionError) as error:
        user_options(engine, named, engine_options)
    assert words in str(error.value)


def test_connection_options_reach_the_removal_of_a_container():
    options = {"docker_host": "unix:///x", "timeout": 5, "log_driver": "journald", "executable": "p"}
    assert removal_options("docker", options) == {"docker_host": "unix:///x", "timeout": 5}
    assert removal_options("podman", options) == {"executable": "p"}


@pytest.mark.parametrize(
    ("engine", "name", "words"),
    [
        ("docker", "trainer", None),
        ("docker", "a.b_c-1", None),
        ("podman", "e", None),
        ("docker", "e", "name=e is too short: docker requires at least two characters. Use a longer name."),
        ("docker", "my trainer", "name='my trainer' is not a valid container name. Use letters, digits"),
        ("podman", "-x", "name='-x' is not a valid container name."),
        ("podman", "", "name='' is not a valid container name."),
        ("docker", "größe", "name='größe' is not a valid container name."),
    ],
)
def test_invalid_names_are_refused(engine, name, words):
    if words is None:
        validate_name(engine, name)
        return
    with pytest.raises(OptionError) as error:
        validate_name(engine, name)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"cmd_args": ["--entrypoint", "-", "-it"]}, False),
        ({"env_file": "/a"}, True),
        ({"env_host": True}, True),
        ({"env_merge": {"NVIDIA_VISIBLE_DEVICES": "all"}}, True),
        ({"cmd_args": ["--env=A=b"]}, True),
        ({"cmd_args": ["-e", "A=b"]}, True),
        ({"cmd_args": ["-eA=b"]}, True),
        ({"cmd_args": ["-iteA=b"]}, True),
    ],
)
def test_variables_that_no_option_shows_are_noticed(options, expected):
    assert has_more_variables(options) is expected


def test_no_options_are_added_without_gpus():
    options = {"name": "c", "image": "image", "state": "started"}
    found = module_arguments("docker", {"user": "1000"}, Access(), **options, labels={}, image_env={})
    assert found == {**options, "user": "1000", "pull": "never"}
