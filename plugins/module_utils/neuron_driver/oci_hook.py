# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the vendor's OCI hook as a runtime of Docker. Pure functions.

The package has a daemon.json of its own. Its content is not documented, so only its key runtimes.neuron is used, and
it is never copied over the host's file.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import json_text, option_fields, record
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import (
    DEFAULT_PATH,
    DaemonConfigError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.supported_versions import HOOK, ROLE
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import installed_packages

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.variables import NeuronDriverRequest

RUNTIME = "neuron"
_DEFAULT = "default-runtime"
_RECORD = record.state_path(record.DEFAULT_STATE_DIRECTORY, DEFAULT_PATH)


@dataclasses.dataclass
class NeuronHook:
    """`install`: the package is missing. `options`: all options of the role in daemon.json, None if they stay.

    `remove`: whether to remove the role's options.
    """

    install: bool = False
    options: dict[str, Any] | None = None
    remove: bool = False
    changes: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)


def plan(host: Host, request: NeuronDriverRequest) -> NeuronHook:
    """Return what registers the runtime. Without the package, its definition is known only after the installation."""
    if not request.oci_hook:
        return removal(host)
    result = NeuronHook()
    if host["os"]["family"] == "amazon":
        result.problems.append(
            f"{ROLE}_oci_hook is true, but AWS does not support the hook on {host['os']['name']}. Set it to false: "
            "containers need only the device nodes."
        )
        return result
    if not installed_packages.is_installed(host, HOOK):
        result.install = True
        result.changes.append(f"register Docker's runtime {RUNTIME}")
        return result
    if host["docker_daemon_json"].get("error"):
        result.problems.append(str(host["docker_daemon_json"]["error"]))
        return result
    found = _definition(observed_files.content(host, owned.NEURON_HOOK_CONFIG))
    if isinstance(found, str):
        result.problems.append(
            f"{found} {DEFAULT_PATH} was not changed. Set {ROLE}_oci_hook to false: containers need only nodes."
        )
        return result
    wanted: dict[str, Any] = {"runtimes": {RUNTIME: found}}
    if request.oci_hook_default_runtime:
        wanted[_DEFAULT] = RUNTIME
    present = host["docker_daemon_json"].get("content") or {}
    is_default = present.get(_DEFAULT) == RUNTIME
    try:
        # A default runtime that the user set stays.
        releases = is_default and not request.oci_hook_default_runtime and (_DEFAULT,) in _own_options(host)
        registered = json_text.runtimes(present).get(RUNTIME)
    except DaemonConfigError as error:
        result.problems.append(str(error))
        return result
    adds_default = request.oci_hook_default_runtime and not is_default
    if adds_default or registered != found:
        extra = ", as the default runtime" if request.oci_hook_default_runtime else ""
        result.changes.append(f"register Docker's runtime {RUNTIME} in {DEFAULT_PATH}{extra}")
    if releases:
        result.changes.append(f"remove {_DEFAULT} from {DEFAULT_PATH}")
    result.options = wanted if result.changes else None
    return result


def has_docker(host: Host, planned: str | None) -> bool:
    """Return whether the host has Docker, or gets it in this run. `planned`: the engine of role container_engine."""
    service = host["services"].get("docker.service") or {}
    is_there = bool(host["engines"]["docker"]["package"]) or service.get("load_state") == "loaded"
    return is_there or planned == "docker"


def problems_without_docker(request: NeuronDriverRequest, *, has_docker: bool) -> list[str]:
    """Return what to correct if Docker is neither installed nor will be. Another engine has no such runtime."""
    if not request.oci_hook or has_docker:
        return []
    return [
        "neuron_driver_oci_hook is true, but the hook is a runtime of Docker, which is not installed. Install Docker "
        "with role container_engine, or set the variable to false: containers need only the device nodes."
    ]


def removal(host: Host) -> NeuronHook:
    """Return what removes the options of the role from daemon.json."""
    result = NeuronHook()
    try:
        own = _own_options(host)
    except DaemonConfigError as error:
        result.problems.append(str(error))
        return result
    if own:
        result.remove = True
        result.changes.append(f"remove Docker's runtime {RUNTIME} from {DEFAULT_PATH}")
    return result


def _own_options(host: Host) -> set[tuple[str, ...]]:
    """Return the paths of the options in daemon.json that the role has set."""
    entries = record.load_state(observed_files.content(host, _RECORD), _RECORD).record.entries
    return {tuple(leaf.path) for leaf, entry in entries.items() if ROLE in entry.managers}


def _definition(text: str | None) -> dict[str, Any] | str:
    """Return the definition of the runtime in the package's file, or a sentence that says why there is none."""
    path = owned.NEURON_HOOK_CONFIG
    if text is None:
        return f"{path} of package {HOOK} does not exist."
    try:
        found = json.loads(text)
    except ValueError:
        return f"{path} of package {HOOK} is not valid JSON."
    definition = option_fields.runtimes(found).get(RUNTIME)
    if not isinstance(definition, dict) or not isinstance(definition.get("path"), str):
        return f"{path} of package {HOOK} has no key runtimes.{RUNTIME} with the path of a program."
    return definition
