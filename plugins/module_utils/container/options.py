# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One set of container options in the words of each engine's own module. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import EngineState
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume.driver_volume import container_env

MODULES = {
    "docker": "community.docker.docker_container",
    "podman": "containers.podman.podman_container",
}
PULL_MODULES = {
    "docker": "community.docker.docker_image_pull",
    "podman": "containers.podman.podman_image",
}
# What reaches an engine rather than a container: needed by every call of its modules.
CONNECTION = {
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
# What also counts for a container that is only stopped or removed.
ENDING = {
    "docker": ("force_kill", "keep_volumes", "kill_signal", "removal_wait_timeout", "stop_timeout"),
    "podman": ("delete_depend", "delete_time", "delete_volumes", "force_delete", "stop_time"),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_OURS = ("name", "image", "state", "pull")
_OUR_LABELS = "gpufleet."
_CHARACTER_NODES = "/dev/char/195:"

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
# What Docker and Podman give a container whose image sets no PATH.
ENGINES_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

NAMES = {"docker": _DOCKER, "podman": _PODMAN}
# Other names that the engines' modules take for the same options.
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
        "volumes": "volume",
        "working_dir": "workdir",
    },
}


# Options that this module adds to or looks into, so that it has to know their form; the engine's module sees to all
# others.
_LISTS = {
    "docker": ("device_cgroup_rules", "devices", "security_opts", "volumes"),
    "podman": ("cmd_args", "device", "device_cgroup_rules", "security_opt", "volume"),
}
_TEXTS = ("device_cgroup_rule", "executable", "restart_policy", "runtime")
_MAPPINGS = {"docker": ("env", "labels"), "podman": ("env", "label")}


class OptionError(Exception):
    """Options that contradict each other or cannot be understood."""


def refuse_name(engine: str, name: str) -> None:
    """Refuse a name that no engine gives a container, before an image is pulled for it."""
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"name={name!r} is no name for a container. Write letters, digits, _, . and -, a letter or a digit first."
        )
    if engine == "docker" and len(name) == 1:
        raise OptionError(f"name={name} is too short: a name has two characters at least under docker.")


def own_options(engine: str, named: Mapping[str, Any], engine_options: Mapping[str, Any]) -> dict[str, Any]:
    """Bring the user's options together in the words of the engine's module."""
    names, aliases = NAMES[engine], _ALIASES[engine]
    options = {
        names[name]: _CONVERT[engine].get(name, _unchanged)(value)
        for name, value in named.items()
        if value is not None and name in names
    }
    meant = {target: name for name, target in names.items()}
    for given, value in engine_options.items():
        if value is None:
            continue
        key = aliases.get(given, given)
        if key in _OURS:
            raise OptionError(f"engine_options.{given}: use the option {key} of this module.")
        if key in options:
            raise OptionError(f"engine_options.{given} and {meant.get(key, key)} say the same: keep one of them.")
        options[key] = _understood(engine, given, key, value)
    _refuse_our_labels(options.get(names["labels"]) or {})
    return options


def docker_host(engine_options: Mapping[str, Any], environment: Mapping[str, str]) -> str | None:
    """Tell where docker is asked for, by the options or by the task's environment; None where nobody says."""
    for name in ("docker_host", "docker_url"):
        if engine_options.get(name):
            return str(engine_options[name])
    return environment.get("DOCKER_HOST") or None


def _understood(engine: str, given: str, key: str, value: Any) -> Any:
    """Bring an option of the engine's module into the form that this module adds to."""
    where = f"engine_options.{given}={value!r}"
    if key in _MAPPINGS[engine]:
        if not isinstance(value, Mapping):
            raise OptionError(f"{where} is no mapping. Write engine_options: {{{given}: {{name: value}}}}.")
        return _env(value) if key == "env" else _text_values(value)
    if key in _LISTS[engine]:
        # As Ansible takes a text for a list.
        values = value.split(",") if isinstance(value, str) else value
        if not isinstance(values, (list, tuple)) or not all(isinstance(one, (str, int, float)) for one in values):
            raise OptionError(f"{where} is no list of texts. Write engine_options: {{{given}: [text]}}.")
        return [str(one).strip() for one in values]
    if key in _TEXTS and not isinstance(value, str):
        raise OptionError(f"{where} is no text. Write engine_options: {{{given}: text}}, in quotes.")
    if key == "device_requests":
        if not isinstance(value, (list, tuple)) or not all(isinstance(one, Mapping) for one in value):
            raise OptionError(f"{where} is no list of mappings. Write engine_options: {{{given}: [{{driver: name}}]}}.")
        return list(value)
    return value


def _refuse_our_labels(labels: Mapping[str, Any]) -> None:
    for name in labels:
        if str(name).startswith(_OUR_LABELS):
            raise OptionError(
                f"label {name}: labels that begin with {_OUR_LABELS} are set by this module alone. Leave it out, or "
                "name it otherwise."
            )


def composed(
    engine: str,
    own: Mapping[str, Any],
    access: Access,
    *,
    name: str,
    image: str | None,
    state: str,
    labels: Mapping[str, str],
    image_env: Mapping[str, str],
    kept_requests: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Add what the access needs to the user's options: exactly what the engine's module is called with.

    `kept_requests` are the device requests of a container that keeps its GPUs, so that they compare as equal.
    """
    names = NAMES[engine]
    options: dict[str, Any] = {**own, "name": name, "state": state}
    if image is not None:
        options["image"] = image
        if engine == "docker":
            # It was pulled before its requirements were checked; no other one may be fetched now. Podman's module
            # fetches only what is not there, and would take this option for a difference to containers of others.
            options["pull"] = "never"
    env = {**(own.get("env") or {}), **access.env}
    if access.needs_library_path:
        env.update(container_env({"PATH": ENGINES_PATH, **image_env, **env}))
    if env:
        options["env"] = env
    _extend(options, names["volumes"], access.volumes)
    _extend(options, names["devices"], access.devices)
    if labels:
        options[names["labels"]] = {**(own.get(names["labels"]) or {}), **labels}
    if engine == "docker":
        _extend(options, "device_requests", kept_requests or _device_requests(access))
        if access.runtime:
            options["runtime"] = access.runtime
    else:
        _extend(options, "device", access.cdi_devices)
        if access.runtime:
            _extend(options, "cmd_args", [f"--runtime={access.runtime}"])
    return options


def undone_isolation(
    engine: str, own: Mapping[str, Any], state: EngineState, uuids: Sequence[str], allowed: Sequence[str]
) -> list[str]:
    """Warn of the user's own options that give more GPUs than were asked for."""
    names = NAMES[engine]
    warnings = []
    if own.get("privileged"):
        warnings.append("privileged: the container can reach every GPU of the host, not only those that it was given.")
    visible = (own.get("env") or {}).get("NVIDIA_VISIBLE_DEVICES")
    if visible is not None and set(visible.split(",")) != set(uuids) and visible != "void":
        warnings.append(
            f"env NVIDIA_VISIBLE_DEVICES={visible} names other GPUs than gpus does: it is replaced, gpus counts."
        )
    for volume in own.get(names["volumes"]) or ():
        source = str(volume).partition(":")[0]
        if source.rstrip("/") in ("", "/dev") and ":" in str(volume):
            warnings.append(f"volume {volume} shows the host's device nodes, those of other GPUs included.")
    for device in own.get(names["devices"]) or ():
        path = str(device)
        if not path.startswith(_CHARACTER_NODES):
            path = path.partition(":")[0]
        named = path.startswith(("/dev/nvidia", _CHARACTER_NODES)) and path not in allowed
        if path == "/dev" or named or "nvidia.com/gpu=" in path:
            warnings.append(f"device {device} goes past gpus.")
    rules = own.get("device_cgroup_rules") or own.get("device_cgroup_rule") or ()
    warnings += [
        f"device cgroup rule {rule!r} opens the nodes of every GPU."
        for rule in ([rules] if isinstance(rules, str) else rules)
        if str(rule).startswith(("a", "c *:", "c 195:"))
    ]
    if any("gpu" in str(request) for request in own.get("device_requests") or ()):
        warnings.append("device_requests beside gpus gives GPUs that gpus does not know of.")
    if own.get("gpus") is not None:
        warnings.append(f"engine_options.gpus={own['gpus']} gives GPUs that this module does not know of.")
    runtime = own.get("runtime") or state.default_runtime
    if "kata" in runtime:
        warnings.append(f"runtime {runtime} runs the container in a virtual machine, which device nodes do not reach.")
    return warnings


def connection_options(engine: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """Pick of the options, in the words of the engine's module, those by which every module reaches the engine."""
    return {key: value for key, value in own.items() if key in CONNECTION[engine]}


def _device_requests(access: Access) -> list[dict[str, Any]]:
    # Written as docker gives it back, zero included: what is left out would differ in every further run.
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
        have = list(options.get(key) or [])
        options[key] = have + [value for value in values if value not in have]


def _unchanged(value: Any) -> Any:
    return value


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as error:
            raise OptionError(
                f"command={value!r} cannot be split into words as a shell does ({str(error).lower()}). Close the "
                "quote, or write a list of words."
            ) from error
    if not isinstance(value, (list, tuple)):
        raise OptionError(f"command={value!r} is neither a text nor a list. Write a list of words, each a text.")
    for word in value:
        if isinstance(word, (bool, dict, list)) or word is None:
            raise OptionError(f"command: the word {word!r} is no text. Quote it.")
    return [str(word) for word in value]


def _env(value: Mapping[str, Any]) -> dict[str, str]:
    env = {}
    for name, content in value.items():
        if isinstance(content, bool) or content is None or isinstance(content, (dict, list)):
            raise OptionError(f"env {name}={content!r} is no text: quote it.")
        env[str(name)] = str(content)
    return env


def _text_values(value: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(content) for name, content in value.items()}


def _podman_tmpfs(value: Sequence[str]) -> dict[str, str]:
    return {path: options or "rw" for path, _sign, options in (str(entry).partition(":") for entry in value)}


def _podman_ulimits(value: Sequence[str]) -> list[str]:
    # Docker's module writes nofile:1024:2048, podman's nofile=1024:2048; both are taken.
    return [entry if "=" in entry else entry.replace(":", "=", 1) for entry in value]


def _docker_ulimits(value: Sequence[str]) -> list[str]:
    return [entry.replace("=", ":", 1) for entry in value]


_CONVERT: dict[str, dict[str, Callable[[Any], Any]]] = {
    "docker": {"command": _words, "env": _env, "labels": _text_values, "ulimits": _docker_ulimits},
    "podman": {
        "command": _words,
        "cpus": str,
        "entrypoint": json.dumps,
        "env": _env,
        "labels": _text_values,
        "network_mode": lambda value: [value],
        "tmpfs": _podman_tmpfs,
        "ulimits": _podman_ulimits,
    },
}
