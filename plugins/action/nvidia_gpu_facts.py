# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugin of nvidia_gpu_facts: pipe a standalone program into the host's Python.

Loading Ansible's module library takes longer than reading the GPUs, so the program does not use it (see
plugin_utils/host_program.py). The ordinary module runs instead if the task is asynchronous or delegated, the connection
passes no input, Ansible has not discovered the host's Python yet, or an option is invalid.
"""

from __future__ import annotations

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.facts.module_call import OPTIONS
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import facts_program, host_program, host_python
from ansible_collections.gpufleet.hosts.plugins.plugin_utils.nvml_binding import (
    NvmlAction,
    controller_binding,
    lacks_binding,
    no_binding_anywhere,
)

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
        sent = facts_program.with_binding(options, binding)
        if sent is None:
            return None
        # A binding is sent if the observation found none on the host, or if the first call could not load one.
        program = host_program.make("facts.program", *sent, installed_packages=binding is None)
        answer = host_python.answer(self, python, program)
        return facts_program.known_result(answer)


def _options(arguments: dict) -> dict | None:
    """Return the values of the options, or None if they are invalid. The module then reports the error."""
    checked = ArgumentSpecValidator(_SPEC).validate(arguments)
    if checked.error_messages:
        return None
    return {name: value for name, value in checked.validated_parameters.items() if not name.startswith("_")}
