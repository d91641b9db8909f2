# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Translate the container options to the options of each engine's module."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import whole_number
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import user_options_bypassing_isolation
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.optional_features import Extras
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_access import vendor_of_runtime

MODULES = {
    "docker": "community.docker.docker_container",
    "podman": "containers.podman.podman_container",
}
PULL_MODULES = {
    "docker": "community.docker.docker_image_pull",
    "podman": "containers.podman.podman_image",
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
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
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
LIBRARY_PATH = "LD_LIBRARY_PATH"
# PATH in a container whose image does not set it, in Docker and Podman.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

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


def validate_name(engine: str, name: str) -> None:
    """Raise OptionError for a name that the engine does not accept."""
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"name={name!r} is not a valid container name. Use letters, digits, _, . and -, and start with a letter "
            "or a digit."
        )
    if engine == "docker" and len(name) == 1:
        raise OptionError(f"name={name} is too short: docker requires at least two characters. Use a longer name.")


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


def extra_options(engine: str, options: Mapping[str, Any], extras: Extras) -> dict[str, Any]:
    """Return the user's options together with what the requested features need. The user's values have priority."""
    names, combined = NAMES[engine], dict(options)
    _extend(combined, names["devices"], extras.devices)
    _extend(combined, names["volumes"], extras.volumes)
    if extras.env:
        combined["env"] = {**extras.env, **(options.get("env") or {})}
    if extras.shares_ipc:
        combined.setdefault(names["ipc_mode"], "host")
    return combined


def has_more_variables(options: Mapping[str, Any]) -> bool:
    """Return whether the container gets variables in addition to those of the image and of the option `env`."""
    words = [str(word).partition("=")[0] for word in options.get("cmd_args") or ()]
    if any(options.get(name) for name in _VARIABLE_OPTIONS) or not _MORE_VARIABLES.isdisjoint(words):
        return True
    return any(re.match(r"-[diPqt]*e", word) for word in words)  # -eNAME=VALUE


def docker_host(engine_options: Mapping[str, Any], environment: Mapping[str, str]) -> str | None:
    """Return the Docker host from the options or the task's environment, or None if neither sets it."""
    for name in ("docker_host", "docker_url"):
        if engine_options.get(name):
            return str(engine_options[name])
    return environment.get("DOCKER_HOST") or None


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
    env.update(_search_paths(access, {"PATH": DEFAULT_PATH, **image_env, **env}))
    if env:
        arguments["env"] = env
    _extend(arguments, names["volumes"], (*access.volumes, *access.file_mounts))
    _extend(arguments, names["devices"], access.devices)
    _extend(arguments, "groups" if engine == "docker" else "group_add", [str(gid) for gid in access.groups])
    if labels:
        arguments[names["labels"]] = {**(options.get(names["labels"]) or {}), **labels}
    if engine == "docker":
        _extend(arguments, "device_requests", kept_requests or _device_requests(access))
        if access.runtime:
            arguments["runtime"] = access.runtime
    else:
        _extend(arguments, "device", access.cdi_devices)
        if access.runtime:
            _extend(arguments, "cmd_args", [f"--runtime={access.runtime}"])
    return arguments


def _search_paths(access: Access, known: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to which the access adds directories. `known`: those of the image and the user."""
    first = [directory for directory, is_needed in access.search_first.items() if is_needed]
    env = {}
    for name in dict.fromkeys([*access.search_last, *([LIBRARY_PATH] if first else [])]):
        present = [entry for entry in known.get(name, "").split(":") if entry]
        existing = {entry.rstrip("/") for entry in present}
        last = [directory for directory in access.search_last.get(name, ()) if directory not in existing]
        leading = [one for one in first if name == LIBRARY_PATH and one not in present]
        value = ":".join([*leading, *present, *last])
        if leading or (name in access.search_last and value != known.get(name)):
            env[name] = value
    return env


def isolation_bypass_warnings(
    options: Mapping[str, Any],
    state: EngineState,
    access: Access,
    uuids: Sequence[str],
    allowed: Sequence[str],
    *,
    vendor: str,
    by_option: bool = True,
) -> list[str]:
    """Return warnings about user options that give access to more GPUs than `gpus`.

    `access`: what the container is given, `vendor`: the vendor of these devices. Without `by_option`, the user's
    environment can be the request, like that of an image.
    """
    warnings = user_options_bypassing_isolation.found(options, allowed)
    named = access.runtime or next(iter(user_options_bypassing_isolation.runtimes(options)), state.default_runtime)
    runtime_vendor = vendor_of_runtime(named, state.runtimes.get(named))
    # For a device request, the engine itself sets the vendor's variable.
    is_set = bool(access.device_ids) and runtime_vendor == vendor
    warnings += user_options_bypassing_isolation.requested_by_env(
        options,
        uuids,
        vendor=vendor,
        runtime=None if is_set else runtime_vendor,
        replaced=access.env,
        by_option=by_option,
    )
    warnings += [
        f"runtime {runtime} runs the container in a virtual machine, where the host's device nodes do not work."
        for runtime in user_options_bypassing_isolation.runtimes(options) or [state.default_runtime]
        if "kata" in runtime
    ]
    return warnings


def pull_call(engine: str, options: Mapping[str, Any], image: str, *, always: bool) -> dict[str, Any]:
    """Return the call of the engine's module that pulls an image."""
    arguments: dict[str, Any] = {key: value for key, value in options.items() if key in CONNECTION_OPTIONS[engine]}
    arguments["name"] = image
    if engine == "docker":
        arguments["pull"] = "always" if always else "not_present"
        if options.get("platform"):
            arguments["platform"] = options["platform"]
    else:
        arguments["force"] = always
    return {"module": PULL_MODULES[engine], "args": arguments}


def risk_options(engine: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's options that decide which events can remove the access to the GPUs."""
    names = NAMES[engine]
    return {
        key: options.get(names.get(key, key)) for key in ("privileged", "restart_policy", "security_opts", "userns")
    }


class NodeUser(NamedTuple):
    """Who opens the device nodes in a container: its user, and whether it has a user namespace of its own."""

    user: str
    is_mapped: bool


def node_user(engine: str, options: Mapping[str, Any], image_user: str, *, remaps: bool = False) -> NodeUser:
    """Return the user of a container. `remaps`: whether the engine gives containers a user namespace by default."""
    namespace = options.get("userns_mode" if engine == "docker" else "userns")
    return NodeUser(str(options.get("user") or image_user or ""), namespace != "host" and bool(namespace or remaps))


def removal_options(engine: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's options that apply when a container is stopped or removed."""
    keys = {*CONNECTION_OPTIONS[engine], *REMOVAL_OPTIONS[engine]}
    return {key: value for key, value in options.items() if key in keys}


def stop_timeout(options: Mapping[str, Any], present: Any) -> int:
    """Return the seconds that the engine waits for a container to stop. `present`: the value of the container."""
    values = (options.get("stop_timeout"), options.get("stop_time"), present)
    return max((whole_number(str(value)) for value in values if str(value).isdecimal()), default=0)


def _device_requests(access: Access) -> list[dict[str, Any]]:
    # Docker returns count 0 explicitly, so a missing count would differ in every later run.
    requests: list[dict[str, Any]] = []
    if access.cdi_devices:
        requests.append({"driver": "cdi", "count": 0, "device_ids": list(access.cdi_devices)})
    if access.device_ids:
        requests.append(
            {
                "driver": "",
                "count": 0,
                "device_ids": list(access.device_ids),
                "capabilities": [list(access.request_capabilities)],
            }
        )
    return requests


def _extend(options: dict[str, Any], key: str, values: Sequence[Any]) -> None:
    if values:
        present = list(options.get(key) or [])
        options[key] = present + [value for value in values if value not in present]


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
