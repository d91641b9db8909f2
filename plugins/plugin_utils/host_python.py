# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Python an action plugin can have read a program on the host of its task, and how it runs such a program."""

from __future__ import annotations

import re

from ansible import constants as C
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()

_STARTED = "gpufleet.hosts: started"
# sudo with `requiretty`, or without the flag -S, refuses before it reads a password. A module may get a terminal.
_NO_TERMINAL = re.compile(r"\btty\b|\bterminal is required\b", re.IGNORECASE)


def reads_input(action: ActionBase, task_vars: dict) -> str | None:
    """Tell the command of the host's Python; None where a task has to go the way of every module.

    That is so in the background and for other hosts, where files on the host are to be kept for a look at them, where
    the connection or the way to become another user passes no input, and where Ansible has yet to find out which Python
    the host has.

    For the setting INTERPRETER_PYTHON there is no public function that also looks at a host's variables. `C.config` is
    what Ansible's own plugins ask. `_task`, `_connection` and `_templar` are what ActionBase documents for its plugins.
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
    """Tell whether a way to become another user lets a program's input through; it says so where it does not."""
    if getattr(become, "require_tty", False):
        return False
    if connection.transport == "local" and become.get_option("become_pass") and not connection.get_option("pipelining"):
        return False  # sudo gets a terminal as its input, and the program would wait forever for the end of that.
    return getattr(become, "pipelining", become.name != "su")


def run(action: ActionBase, command: str, program: bytes) -> str | None:
    """Run a command on the host with a program as its input, and return what it printed.

    None means that the module may succeed where this way cannot. A rejected password is never such a case: a second
    attempt could lock the account.
    """
    become = getattr(action._connection, "become", None)
    try:
        done = action._low_level_execute_command(f"echo '{_STARTED}'; {command}", in_data=program)
    except AnsibleConnectionFailure:
        raise
    except AnsibleError as error:
        if not _NO_TERMINAL.search(str(error)):
            raise
        display.vvv(f"{action._task.action}: {error}; the module is run instead")
        return None
    if become is None or _STARTED in done["stdout"]:
        return done["stdout"]
    if _NO_TERMINAL.search(done["stderr"]):
        return None
    printed = "\n".join(text.strip() for text in (done["stderr"], done["stdout"]) if text.strip())
    raise AnsibleActionFail(
        f"{become.name} on the host failed with status {done['rc']}: {printed or 'it printed nothing'}. There was no "
        "second attempt, since repeated failures can lock the account. Check the password and the rights of the user."
    )
