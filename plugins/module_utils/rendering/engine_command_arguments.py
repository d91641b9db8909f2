# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the options of an engine's module as arguments of the engine's command.

The options are those that give access to GPUs (see container.engine_module_options.module_arguments). An option that
this file does not know is an error, so that no argument is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.engine_module_options import OptionError

Words = Callable[[Any], "list[str]"]


def docker_args(options: Mapping[str, Any]) -> list[str]:
    """Return arguments of `docker run` and `docker create`."""
    return _words(options, _DOCKER)


def podman_args(options: Mapping[str, Any]) -> list[str]:
    """Return arguments of `podman run` and `podman create`."""
    return _words(options, _PODMAN)


def _words(options: Mapping[str, Any], writers: Mapping[str, Words]) -> list[str]:
    words = []
    for key, value in options.items():
        if key not in writers:
            raise unknown_option(key)
        words += writers[key](value)
    return words


def unknown_option(key: str) -> OptionError:
    return OptionError(f"state=rendered cannot write the option {key}. Use another isolation, or state=started.")


def _repeated(flag: str) -> Words:
    return lambda values: [f"--{flag}={value}" for value in values]


def _env(value: Mapping[str, str]) -> list[str]:
    return [f"--env={name}={text}" for name, text in value.items()]


def _requests(value: Sequence[Mapping[str, Any]]) -> list[str]:
    words = []
    for request in value:
        if request["driver"] == "cdi":
            words += [f"--device={name}" for name in request["device_ids"]]
        else:
            # The value is a line of CSV: a list of several devices is one quoted field (docker/cli, opts/gpus.go).
            fields = [f"device={','.join(request['device_ids'])}"]
            # Docker adds the capability gpu itself.
            capabilities = [name for name in request["capabilities"][0] if name != "gpu"]
            fields += [f"capabilities={','.join(capabilities)}"] if capabilities else []
            words.append(f"--gpus={','.join(_quoted(field) for field in fields)}")
    return words


def _quoted(field: str) -> str:
    return f'"{field}"'


_DOCKER: dict[str, Words] = {
    "device_requests": _requests,
    "devices": _repeated("device"),
    "env": _env,
    "ipc_mode": lambda value: [f"--ipc={value}"],
    "runtime": lambda value: [f"--runtime={value}"],
    "volumes": _repeated("volume"),
}
_PODMAN: dict[str, Words] = {
    "cmd_args": list,
    "device": _repeated("device"),
    "env": _env,
    "ipc": lambda value: [f"--ipc={value}"],
    "volume": _repeated("volume"),
}
