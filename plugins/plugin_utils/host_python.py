# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the host's Python for a program of an action plugin, and run the program."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.standalone_program import MARK
from ansible_collections.gpufleet.hosts.plugins.plugin_utils.host_program import ARGUMENTS

display = Display()

STARTED = "gpufleet.hosts: started"
_ISSUES = "https://github.com/gpufleet/hosts/issues"
# Status of a shell and messages of an old Python that cannot run the program. The module reports the error.
_NOT_EXECUTABLE = (126, 127)
_OLD_PYTHON = re.compile(
    r"future feature annotations is not defined|object is not subscriptable|Python \S+ or newer is required"
)
_LONGEST_QUOTE = 300
# Prefixes that Ansible reserves. A fact cache deserializes a dictionary with `__ansible_type`, so a host could make the
# controller render a template.
_INTERNAL = ("_ansible_", "__ansible_")
# sudo with `requiretty` or without the flag -S fails before it reads a password. An ordinary module may get a terminal.
_NO_TERMINAL = re.compile(r"\btty\b|\bterminal is required\b", re.IGNORECASE)

# Errors of a Python older than 3.9 that reads newer syntax, and Ansible's error if there is no Python.
_FAILED_PYTHON = re.compile(
    r"SyntaxError|object is not subscriptable|minimum of Python|interpreter '.*' was not found", re.DOTALL
)
_PYTHON_REQUIRED = (
    "This host needs Python 3.9 or newer. Install it (on Enterprise Linux 8: dnf install python3.12). Ansible finds it "
    "unless ansible_python_interpreter names another Python. The error was:"
)


def command_for_input(action: ActionBase, task_vars: dict) -> str | None:
    """Return the command of the host's Python, or None if the ordinary module must run.

    The module must run for asynchronous and delegated tasks, if files on the host are to be kept for debugging, if the
    connection or the become method passes no input, and if Ansible has not discovered the host's Python yet.

    No public function returns INTERPRETER_PYTHON with the variables of a host. Like Ansible's own plugins, this
    function uses `C.config`. ActionBase documents `_task`, `_connection` and `_templar` for plugins.
    """
    task, connection = action._task, action._connection
    become = getattr(connection, "become", None)
    if (
        task.async_val
        or task.delegate_to
        or C.DEFAULT_KEEP_REMOTE_FILES
        or not getattr(connection, "has_pipelining", False)
        or connection._shell.SHELL_FAMILY != "sh"
        or (become is not None and not _passes_input(connection, become))
    ):
        return None
    configured = C.config.get_config_value("INTERPRETER_PYTHON", variables=task_vars)
    python = str(action._templar.template(configured) or "auto").strip()
    if python.startswith("auto"):
        python = (task_vars.get("ansible_facts") or {}).get("discovered_interpreter_python")
    return python or None


def _passes_input(connection, become) -> bool:
    """Return whether a become method passes the input of a program."""
    if getattr(become, "require_tty", False):
        return False
    if connection.transport == "local" and become.get_option("become_pass") and not connection.get_option("pipelining"):
        return False  # sudo gets a terminal as its input, and the program would wait forever for its end.
    return getattr(become, "pipelining", become.name != "su")


def answer(action: ActionBase, python: str, program: bytes) -> dict | None:
    """Run a program of host_program.py with the host's Python, and return its answer.

    Return None, with a warning if it is a fault of the program, if only the ordinary module can succeed.
    """
    # A list of one dictionary: Ansible merges and renders the keyword `environment` before it runs an action.
    environment = {name: value for level in action._task.environment or () for name, value in level.items()}
    prefix = action._connection._shell.env_prefix(**environment)
    done = run(action, f"{prefix} {shlex.join([python, *ARGUMENTS])}".strip(), program)
    if done is None:
        return None
    found = parse(done["stdout"])
    if found is None:
        _warn_without_answer(action, done)
    return found


def parse(output: str) -> dict | None:
    """Return the answer in the output of a host, or None if the output has none.

    Keys that Ansible reserves are removed, so that a host cannot control the controller. Strings of the host are never
    templates: Ansible renders only strings that are marked as trusted, and json.loads marks none.
    """
    for line in output.splitlines():
        if not line.startswith(MARK):
            continue
        try:
            found = _without_internal_keys(json.loads(line[len(MARK) :]))
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None
    return None


def _without_internal_keys(value: Any) -> Any:
    """Copy JSON without the keys that Ansible reserves, at every depth."""
    if isinstance(value, dict):
        return {name: _without_internal_keys(inner) for name, inner in value.items() if not name.startswith(_INTERNAL)}
    if isinstance(value, list):
        return [_without_internal_keys(inner) for inner in value]
    return value


def _warn_without_answer(action: ActionBase, done: dict) -> None:
    """Warn that the program failed. The text does not name the host, so that Ansible shows it once for all hosts."""
    if done["rc"] in _NOT_EXECUTABLE or _OLD_PYTHON.search(done["stderr"]):
        return
    lines = [line.strip() for line in f"{done['stdout']}\n{done['stderr']}".splitlines()]
    printed = [line for line in lines if line not in ("", STARTED)]
    display.warning(
        f"The program of {action._task.action} returned no result (status {done['rc']}): "
        f"{printed[-1][:_LONGEST_QUOTE] if printed else 'no output'}. The ordinary module runs instead, which takes "
        f"longer. Report this message at {_ISSUES}."
    )


def run(action: ActionBase, command: str, program: bytes) -> dict | None:
    """Run a command on the host with a program as its input. Return its `rc`, `stdout` and `stderr`.

    Return None if only the ordinary module can succeed. A rejected password is an error instead, because a second
    attempt could lock the account.
    """
    become = getattr(action._connection, "become", None)
    try:
        done = action._low_level_execute_command(f"echo '{STARTED}'; {command}", in_data=program)
    except AnsibleConnectionFailure:
        raise
    except AnsibleError as error:
        if not _NO_TERMINAL.search(str(error)):
            raise
        display.vvv(f"{action._task.action}: {error}. The ordinary module runs instead.")
        return None
    if become is None or STARTED in done["stdout"]:
        return done
    if _NO_TERMINAL.search(done["stderr"]):
        return None
    printed = "\n".join(text.strip() for text in (done["stderr"], done["stdout"]) if text.strip())
    raise AnsibleActionFail(
        f"{become.name} on the host failed with status {done['rc']}: {printed or 'no output'}. The command "
        "was not repeated, because failures can lock the account. Check the password and the permissions of the user."
    )


def failure(result: Mapping[str, Any]) -> str:
    """Return the error of a module. An old Python ends with a syntax error before it can report its version."""
    text = " ".join(str(part).strip() for part in (result.get("msg"), result.get("module_stderr")) if part)
    return f"{_PYTHON_REQUIRED} {text}" if _FAILED_PYTHON.search(text) else text


def without_warning(task_vars: dict[str, Any]) -> dict[str, Any]:
    """Return the variables with which Ansible discovers the host's Python without a warning for every host.

    The collection runs with every Python that Ansible discovers, and later tasks use the discovered one.
    """
    if C.config.get_config_value("INTERPRETER_PYTHON", variables=task_vars) != "auto":
        return task_vars
    return {**task_vars, "ansible_python_interpreter": "auto_silent"}
