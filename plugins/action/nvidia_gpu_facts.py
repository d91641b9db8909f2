# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugin of nvidia_gpu_facts: have the host's Python read a program of its own, in one exchange.

To load Ansible's library for modules takes a host longer than to tell all about a GPU, so the call goes without it (see
plugin_utils/host_program.py). Where that can not be, the module is run as every module is: in the background, for
another host, where the connection passes no input, where Python is still to be found, and where the options are wrong.
"""

from __future__ import annotations

import json
import os
import shlex
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

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

# All that the module returns.
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
# Keys that Ansible keeps for itself. A fact cache takes a dictionary with `__ansible_type` for a value of its own, and
# with it a host could have the controller render a template.
_INTERNAL = ("_ansible_", "__ansible_")
# Paths are the host's, and are looked at there.
_SPEC = {name: {**option, "type": option["type"].replace("path", "str")} for name, option in OPTIONS.items()}


class ActionModule(NvmlAction):
    """The module does the work; see plugin_utils/nvml_binding.py for what is added."""

    def run(self, tmp=None, task_vars=None):
        result = self._ask(task_vars or {})
        return super().run(tmp, task_vars) if result is None else result

    def _ask(self, task_vars: dict) -> dict | None:
        """Give the module's result; None where it has to be asked as a module."""
        python = host_python.reads_input(self, task_vars)
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
        """Run the program with the host's Python; None where it did not come to a result."""
        if binding and os.path.basename(binding) == "__init__.py":
            return None  # An old one, of several files.
        name = archive_name(binding) if binding else None
        program = host_program.make(
            "facts.program",
            {**options, "_nvml_binding_path": name},
            {name: {"pynvml": binding}} if binding else {},
        )
        # A list of one dictionary: Ansible has merged and rendered the keyword `environment` before it runs an action.
        environment = {name: value for level in self._task.environment or () for name, value in level.items()}
        prefix = self._connection._shell.env_prefix(**environment)
        command = f"{prefix} {shlex.join([python, '-c', host_program.READER])}".strip()
        output = host_python.run(self, command, program)
        return None if output is None else told(output)


def told(output: str) -> dict | None:
    """Find the result in what the host printed; None where there is none.

    The answer is a host's, and a result of an action may tell the controller much: only what the module returns counts.
    Its text is never a template: Ansible renders only strings that carry a mark of trust, and json.loads sets none.
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
    """Copy JSON without the keys that Ansible reserves for itself, at every depth."""
    if isinstance(value, dict):
        return {name: _without_internal_keys(inner) for name, inner in value.items() if not name.startswith(_INTERNAL)}
    if isinstance(value, list):
        return [_without_internal_keys(inner) for inner in value]
    return value


def _options(arguments: dict) -> dict | None:
    """Give the values of the options; None where they are wrong, which the module says in Ansible's own words."""
    checked = ArgumentSpecValidator(_SPEC).validate(arguments)
    if checked.error_messages:
        return None
    return {name: value for name, value in checked.validated_parameters.items() if not name.startswith("_")}
