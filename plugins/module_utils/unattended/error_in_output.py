# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the output of git and Ansible says. Pure functions.

The user data of the host contains this file before pull_program.py, in one program. It needs only Python 3.9.
"""

from __future__ import annotations

import re

TASK = re.compile(r"(?:TASK|RUNNING HANDLER) \[(.*)\] \*+$")
FAILED_TASK = re.compile(r"(?:fatal|failed): \[localhost(?: -> [^\]]*)?\]")
RECAP = re.compile(r"^\S+ +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", re.MULTILINE)
# git's message if the server does not have a reference.
NO_REFERENCE = re.compile(r"couldn't find remote ref", re.IGNORECASE)
# Messages of git and ansible-galaxy about a revision or a version that does not exist.
NO_SUCH_PIN = re.compile(
    r"reference is not a tree|not our ref|did not match any file|failed to checkout|could not satisfy|"
    r"failed to resolve the requested|failed to switch",
    re.IGNORECASE,
)


def last_line(output: str) -> str:
    """Return the last line of an output that is not empty, without a login in a URL."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return re.sub(r"//[^/@\s]+@", "//...@", lines[-1])[:300] if lines else "no output"


def first_error(output: str) -> str:
    """Return the first error of git. Its later lines are advice."""
    errors = [line for line in output.splitlines() if line.startswith(("fatal: ", "error: "))]
    return last_line(errors[0] if errors else output)


def failed_task(output: str, status: int) -> str:
    """Return which task failed, or the status of ansible-playbook if no task did."""
    task = failed = before = ""
    for line in output.splitlines():
        found = TASK.match(line)
        if found:
            task, before = found[1], failed
        elif FAILED_TASK.match(line):
            failed = task
        elif line.startswith("...ignoring"):
            failed = before
    # The recap does not count failures that a rescue section handled.
    recap = RECAP.findall(output)
    if recap and not any(int(number) for numbers in recap for number in numbers[2:]):
        failed = ""
    return f"task '{failed}' failed" if failed else f"ansible-playbook ended with status {status}"


def last_error(output: str) -> str:
    """Return the last error that Ansible reports, or the last line of its output."""
    errors = [line for line in output.splitlines() if re.search(r"^fatal: |\[ERROR\]|^ERROR!", line)]
    return last_line(errors[-1] if errors else output)
