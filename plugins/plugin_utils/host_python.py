# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Python an action plugin can have read a program on the host of its task."""

from __future__ import annotations

from ansible import constants as C
from ansible.plugins.action import ActionBase


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
        or (become is not None and not _passes_input(become))
    ):
        return None
    configured = C.config.get_config_value("INTERPRETER_PYTHON", variables=task_vars)
    python = str(action._templar.template(configured) or "auto").strip()
    if python.startswith("auto"):
        python = (task_vars.get("ansible_facts") or {}).get("discovered_interpreter_python")
    return python or None


def _passes_input(become) -> bool:
    """Tell whether a way to become another user lets a program's input through; it says so where it does not."""
    if getattr(become, "require_tty", False):
        return False
    return getattr(become, "pipelining", become.name != "su")
