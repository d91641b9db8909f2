# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program behind `ansible_run`: imports Ansible once, then forks a process for each run of one of its commands.

It reads one JSON object a line from standard input: the command, its arguments, the environment, the directory and two
files for the output of a run. It writes the exit status of each run as one line.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback

from ansible import constants
from ansible.cli.adhoc import AdHocCLI
from ansible.cli.playbook import PlaybookCLI
from ansible.executor import module_common, playbook_executor, task_executor, task_queue_manager, task_result
from ansible.plugins import loader
from ansible.plugins.action import command, copy, debug, fail, include_vars, set_fact
from ansible.plugins.strategy import linear

# Most of the time of a start is the import of these modules. A run loads its other plugins itself.
IMPORTED = (
    module_common, playbook_executor, task_executor, task_queue_manager, task_result, loader, linear,
    command, copy, debug, fail, include_vars, set_fact,
)  # fmt: skip


COMMANDS = {"ansible": AdHocCLI, "ansible-playbook": PlaybookCLI}


def perform(run: dict) -> int:
    """Run a command in this process. Return its exit status."""
    for number, name in ((0, os.devnull), (1, run["stdout"]), (2, run["stderr"])):
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(run["environment"])
    os.chdir(run["directory"])
    sys.argv = [run["command"], *run["arguments"]]
    # Ansible keeps packed modules there by name, but different tests have fake modules of the same name.
    with tempfile.TemporaryDirectory() as constants.DEFAULT_LOCAL_TMP:
        try:
            COMMANDS[run["command"]].cli_executor(sys.argv)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
            return 250
    return 0


def main() -> None:
    """Fork a process for each line of standard input."""
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            status = perform(json.loads(line))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
