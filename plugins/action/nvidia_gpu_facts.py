# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugin of nvidia_gpu_facts: pipe a standalone program into the host's Python.

Loading Ansible's module library takes longer than reading the GPUs, so the program does not use it (see
plugin_utils/host_program.py). The ordinary module runs instead if the task is asynchronous or delegated, the connection
passes no input, Ansible has not discovered the host's Python yet, or an option is invalid.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.utils.display import Display

from ansible_collections.gpufleet.hosts.plugins.module_utils.facts.call import OPTIONS
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts.program import MARK
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import host_program, host_python
from ansible_collections.gpufleet.hosts.plugins.plugin_utils.nvml_binding import (
    NvmlAction,
    archive_name,
    controller_binding,
    lacks_binding,
    no_binding_anywhere,
)

display = Display()

_ISSUES = "https://github.com/gpufleet/hosts/issues"
# Status of a shell and message of an old Python that cannot run the program. The module reports the error.
_NOT_EXECUTABLE = (126, 127)
_OLD_PYTHON = re.compile(r"future feature annotations is not defined")
_LONGEST_QUOTE = 300

# All results of the module.
_RESULT = ("changed", "failed", "msg", "ansible_facts", "nvml_binding", "nvml_binding_version", "nvml_binding_missing")
_FACTS = (
    "nvidia_gpu_state",
    "nvidia_gpu_state_reason",
    "nvidia_driver",
    "nvidia_gpus",
    "nvidia_pci_devices",
    "nvidia_nvswitches",
    "nvidia_topology",
)
# Prefixes that Ansible reserves. A fact cache deserializes a dictionary with `__ansible_type`, so a host could make the
# controller render a template.
_INTERNAL = ("_ansible_", "__ansible_")
# Paths belong to the host and are checked there.
_SPEC = {name: {**option, "type": option["type"].replace("path", "str")} for name, option in OPTIONS.items()}


class ActionModule(NvmlAction):
    """Run the program, or else the module as NvmlAction does."""

    def run(self, tmp=None, task_vars=None):
        result = self._run_program(task_vars or {})
        return super().run(tmp, task_vars) if result is None else result

    def _run_program(self, task_vars: dict) -> dict | None:
        """Return the module's result, or None if the ordinary module must run."""
        python = host_python.command_for_input(self, task_vars)
        options = _options(self._task.args)
        if python is None or options is None:
            return None
        binding = controller_binding() if lacks_binding(task_vars) else None
        result = self._exchange(python, options, binding)
        if result and result.get("nvml_binding_missing") and binding is None:
            binding = controller_binding()
            result = self._exchange(python, options, binding) if binding else no_binding_anywhere()
        if result:
            result["invocation"] = {"module_args": options}
        return result

    def _exchange(self, python: str, options: dict, binding: str | None) -> dict | None:
        """Run the program with the host's Python. Return None if it has no result."""
        if binding and os.path.basename(binding) == "__init__.py":
            return None  # An old pynvml is a package. The program supports only a single file.
        name = archive_name(binding) if binding else None
        program = host_program.make(
            "facts.program",
            {**options, "_nvml_binding_path": name},
            {name: {"pynvml": binding}} if binding else {},
        )
        # A list of one dictionary: Ansible merges and renders the keyword `environment` before it runs an action.
        environment = {name: value for level in self._task.environment or () for name, value in level.items()}
        prefix = self._connection._shell.env_prefix(**environment)
        command = f"{prefix} {shlex.join([python, '-c', host_program.READER])}".strip()
        done = host_python.run(self, command, program)
        if done is None:
            return None
        result = parse_result(done["stdout"])
        if result is None:
            _warn_without_result(done)
        return result


def _warn_without_result(done: dict) -> None:
    """Warn that the program failed. The text does not name the host, so that Ansible shows it once for all hosts."""
    if done["rc"] in _NOT_EXECUTABLE or _OLD_PYTHON.search(done["stderr"]):
        return
    lines = [line.strip() for line in f"{done['stdout']}\n{done['stderr']}".splitlines()]
    printed = [line for line in lines if line not in ("", host_python.STARTED)]
    display.warning(
        f"The program of gpufleet.hosts.nvidia_gpu_facts returned no result (status {done['rc']}): "
        f"{printed[-1][:_LONGEST_QUOTE] if printed else 'no output'}. The ordinary module runs instead, which takes "
        f"longer. Report this message at {_ISSUES}."
    )


def parse_result(output: str) -> dict | None:
    """Return the result from the output of the host, or None if the output has none.

    A host must not control the controller through special result keys, so only the keys of the module are kept. Its
    strings are never templates: Ansible renders only strings that are marked as trusted, and json.loads marks none.
    """
    for line in output.splitlines():
        if not line.startswith(MARK):
            continue
        try:
            answer = _without_internal_keys(json.loads(line[len(MARK) :]))
        except (ValueError, RecursionError):
            return None
        if not isinstance(answer, dict):
            return None
        result = {name: value for name, value in answer.items() if name in _RESULT}
        facts = result.get("ansible_facts")
        if facts is not None:
            if not isinstance(facts, dict):
                return None
            result["ansible_facts"] = {name: value for name, value in facts.items() if name in _FACTS}
        return result
    return None


def _without_internal_keys(value: Any) -> Any:
    """Copy JSON without the keys that Ansible reserves, at every depth."""
    if isinstance(value, dict):
        return {name: _without_internal_keys(inner) for name, inner in value.items() if not name.startswith(_INTERNAL)}
    if isinstance(value, list):
        return [_without_internal_keys(inner) for inner in value]
    return value


def _options(arguments: dict) -> dict | None:
    """Return the values of the options, or None if they are invalid. The module then reports the error."""
    checked = ArgumentSpecValidator(_SPEC).validate(arguments)
    if checked.error_messages:
        return None
    return {name: value for name, value in checked.validated_parameters.items() if not name.startswith("_")}
