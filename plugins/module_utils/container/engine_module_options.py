# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is handed to the Docker or Podman module: the container options under its names, and the other arguments."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.access_as_engine_options import (
    DEFAULT_PATH,
    device_requests,
    extend,
    search_paths,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access

MODULES = {
    "docker": "community.docker.docker_container",
    "podman": "containers.podman.podman_container",
}
# Options that select the engine. Every call of an engine's module needs them.
CONNECTION_OPTIONS = {
    "docker": (
        "api_version",
        "ca_path",
        "client_cert",
        "client_key",
        "debug",
        "docker_host",
        "timeout",
        "tls",
        "tls_hostname",
        "use_ssh_client",
        "validate_certs",
    ),
    "podman": ("executable",),
}
# Options that apply when a container is stopped or removed.
REMOVAL_OPTIONS = {
    "docker": ("force_kill", "keep_volumes", "kill_signal", "removal_wait_timeout", "stop_timeout"),
    "podman": ("delete_depend", "delete_time", "delete_volumes", "force_delete", "stop_time"),
}
_MODULE_OPTIONS = ("name", "image", "state", "pull")
_LABEL_PREFIX = "gpufleet."
# Podman's options that add variables which this module does not know.
_VARIABLE_OPTIONS = ("env_file", "env_host", "env_merge")
_MORE_VARIABLES = frozenset({"--env", "--env-file", "--env-host", "--env-merge"})

_DOCKER = {
    "cap_add": "capabilities",
    "cap_drop": "cap_drop",
    "command": "command",
    "cpus": "cpus",
    "devices": "devices",
    "entrypoint": "entrypoint",
    "env": "env",
    "hostname": "hostname",
    "init": "init",
    "ipc_mode": "ipc_mode",
    "labels": "labels",
    "memory": "memory",
    "network_mode": "network_mode",
    "privileged": "privileged",
    "published_ports": "published_ports",
    "read_only": "read_only",
    "recreate": "recreate",
    "restart": "restart",
    "restart_policy": "restart_policy",
    "security_opts": "security_opts",
    "shm_size": "shm_size",
    "stop_timeout": "stop_timeout",
    "tmpfs": "tmpfs",
    "ulimits": "ulimits",
    "user": "user",
    "volumes": "volumes",
    "working_dir": "working_dir",
}
_PODMAN = {
    **_DOCKER,
    "cap_add": "cap_add",
    "devices": "device",
    "ipc_mode": "ipc",
    "labels": "label",
    "network_mode": "network",
    "published_ports": "publish",
    "restart": "force_restart",
    "security_opts": "security_opt",
    "ulimits": "ulimit",
    "volumes": "volume",
    "working_dir": "workdir",
}

NAMES = {"docker": _DOCKER, "podman": _PODMAN}
# Aliases of the engines' modules.
_ALIASES = {
    "docker": {
        "cacert_path": "ca_path",
        "ca_cert": "ca_path",
        "cert_path": "client_cert",
        "docker_api_version": "api_version",
        "docker_url": "docker_host",
        "forcekill": "force_kill",
        "key_path": "client_key",
        "log_opt": "log_options",
        "ports": "published_ports",
        "tls_ca_cert": "ca_path",
        "tls_client_cert": "client_cert",
        "tls_client_key": "client_key",
        "tls_verify": "validate_certs",
    },
    "podman": {
        "capabilities": "cap_add",
        "ipc_mode": "ipc",
        "labels": "label",
        "net": "network",
        "network_mode": "network",
        "ports": "publish",
        "published": "publish",
        "published_ports": "publish",
        "restart": "force_restart",
        "ulimits": "ulimit",
        "userns_mode": "userns",
        "volumes": "volume",
        "working_dir": "workdir",
    },
}

# Options that this module extends or reads, so it validates their type. The engine's module validates all others.
_LISTS = {
    "docker": ("device_cgroup_rules", "devices", "groups", "security_opts", "volumes"),
    "podman": ("cmd_args", "device", "device_cgroup_rules", "group_add", "security_opt", "volume"),
}
_STRINGS = ("device_cgroup_rule", "executable", "restart_policy", "runtime")
_MAPPINGS = {"docker": ("env", "labels"), "podman": ("env", "label")}


class OptionError(Exception):
    """Options that conflict or are not valid."""


def user_options(engine: str, params: Mapping[str, Any], engine_options: Mapping[str, Any]) -> dict[str, Any]:
    """Combine the user's options under the names of the engine's module."""
    names, aliases = NAMES[engine], _ALIASES[engine]
    options = {
        names[name]: _CONVERT[engine].get(name, _unchanged)(value)
        for name, value in params.items()
        if value is not None and name in names
    }
    param_names = {target: name for name, target in names.items()}
    for given, value in engine_options.items():
        if value is None:
            continue
        key = aliases.get(given, given)
        if key in _MODULE_OPTIONS:
            raise OptionError(f"engine_options.{given} is not allowed. Use the option {key} of this module.")
        if key in options:
            raise OptionError(
                f"engine_options.{given} and {param_names.get(key, key)} set the same option. Remove one of them."
            )
        options[key] = _normalize(engine, given, key, value)
    _refuse_reserved_labels(options.get(names["labels"]) or {})
    return options


def module_arguments(
    engine: str,
    options: Mapping[str, Any],
    access: Access,
    *,
    name: str,
    image: str | None,
    state: str,
    labels: Mapping[str, str],
    image_env: Mapping[str, str],
    kept_requests: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the arguments of the engine's module: the user's options and the options that give access to the GPUs.

    `kept_requests` are the device requests of a container that keeps its GPUs. They are repeated unchanged, so that the
    engine's module finds no difference.
    """
    names = NAMES[engine]
    arguments: dict[str, Any] = {**options, "name": name, "state": state}
    if image is not None:
        arguments["image"] = image
        if engine == "docker":
            # The requirements of the present image are checked, so no other image may be pulled now. Podman's module
            # pulls only missing images, and would recreate containers of other tools because of this option.
            arguments["pull"] = "never"
    env = {**(options.get("env") or {}), **access.env}
    env.update(search_paths(access, {"PATH": DEFAULT_PATH, **image_env, **env}))
    if env:
        arguments["env"] = env
    extend(arguments, names["volumes"], (*access.volumes, *access.file_mounts))
    extend(arguments, names["devices"], access.devices)
    extend(arguments, "groups" if engine == "docker" else "group_add", [str(gid) for gid in access.groups])
    if labels:
        arguments[names["labels"]] = {**(options.get(names["labels"]) or {}), **labels}
    if engine == "docker":
        extend(arguments, "device_requests", kept_requests or device_requests(access))
        if access.runtime:
            arguments["runtime"] = access.runtime
    else:
        extend(arguments, "device", access.cdi_devices)
        if access.runtime:
            extend(arguments, "cmd_args", [f"--runtime={access.runtime}"])
    return arguments


def has_more_variables(options: Mapping[str, Any]) -> bool:
    """Return whether the container gets variables in addition to those of the image and of the option `env`."""
    words = [str(word).partition("=")[0] for word in options.get("cmd_args") or ()]
    if any(options.get(name) for name in _VARIABLE_OPTIONS) or not _MORE_VARIABLES.isdisjoint(words):
        return True
    return any(re.match(r"-[diPqt]*e", word) for word in words)  # -eNAME=VALUE


def _normalize(engine: str, given: str, key: str, value: Any) -> Any:
    """Return an option of the engine's module in the form that this module extends."""
    where = f"engine_options.{given}={value!r}"
    if key in _MAPPINGS[engine]:
        if not isinstance(value, Mapping):
            raise OptionError(f"{where} is not a mapping. Write engine_options: {{{given}: {{name: value}}}}.")
        return _env(value) if key == "env" else _string_values(value)
    if key in _LISTS[engine]:
        # Ansible also splits strings at commas.
        values = value.split(",") if isinstance(value, str) else value
        if not isinstance(values, (list, tuple)) or not all(isinstance(item, (str, int, float)) for item in values):
            raise OptionError(f"{where} is not a list of strings. Write engine_options: {{{given}: [string]}}.")
        return [str(item).strip() for item in values]
    if key in _STRINGS and not isinstance(value, str):
        raise OptionError(f"{where} is not a string. Write engine_options: {{{given}: string}}, in quotes.")
    if key == "device_requests":
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, Mapping) for item in value):
            raise OptionError(
                f"{where} is not a list of mappings. Write engine_options: {{{given}: [{{driver: name}}]}}."
            )
        return list(value)
    return value


def _refuse_reserved_labels(labels: Mapping[str, Any]) -> None:
    for name in labels:
        if str(name).startswith(_LABEL_PREFIX):
            raise OptionError(
                f"label {name} is reserved: the prefix {_LABEL_PREFIX} is for labels of this module. Remove or "
                "rename the label."
            )


def risk_options(engine: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's options that decide which events can remove the access to the GPUs."""
    names = NAMES[engine]
    return {
        key: options.get(names.get(key, key)) for key in ("privileged", "restart_policy", "security_opts", "userns")
    }


def removal_options(engine: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's options that apply when a container is stopped or removed."""
    keys = {*CONNECTION_OPTIONS[engine], *REMOVAL_OPTIONS[engine]}
    return {key: value for key, value in options.items() if key in keys}


def _unchanged(value: Any) -> Any:
    return value


def _command(value: Any) -> list[str]:
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as error:
            raise OptionError(
                f"command={value!r} cannot be split like a shell command ({str(error).lower()}). Close the quote, or "
                "write a list of strings."
            ) from error
    if not isinstance(value, (list, tuple)):
        raise OptionError(f"command={value!r} is neither a string nor a list. Write a list of strings.")
    for word in value:
        if isinstance(word, (bool, dict, list)) or word is None:
            raise OptionError(f"command: the item {word!r} is not a string. Quote the value.")
    return [str(word) for word in value]


def _env(value: Mapping[str, Any]) -> dict[str, str]:
    env = {}
    for name, content in value.items():
        if isinstance(content, bool) or content is None or isinstance(content, (dict, list)):
            raise OptionError(f"env {name}={content!r} is not a string. Quote the value.")
        env[str(name)] = str(content)
    return env


def _string_values(value: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(content) for name, content in value.items()}


def _podman_tmpfs(value: Sequence[str]) -> dict[str, str]:
    return {path: options or "rw" for path, _sign, options in (str(entry).partition(":") for entry in value)}


def _podman_ulimits(value: Sequence[str]) -> list[str]:
    # Docker's module uses nofile:1024:2048, Podman's module nofile=1024:2048. Both forms are accepted.
    return [entry if "=" in entry else entry.replace(":", "=", 1) for entry in value]


def _docker_ulimits(value: Sequence[str]) -> list[str]:
    return [entry.replace("=", ":", 1) for entry in value]


_CONVERT: dict[str, dict[str, Callable[[Any], Any]]] = {
    "docker": {"command": _command, "env": _env, "labels": _string_values, "ulimits": _docker_ulimits},
    "podman": {
        "command": _command,
        "cpus": str,
        "entrypoint": json.dumps,
        "env": _env,
        "labels": _string_values,
        "network_mode": lambda value: [value],
        "tmpfs": _podman_tmpfs,
        "ulimits": _podman_ulimits,
    },
}
