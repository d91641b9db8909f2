# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run ansible-lint with the same results in less CPU time.

ansible_lint.py [ARGUMENT OF ANSIBLE-LINT...]

ansible-lint starts `ansible-playbook --syntax-check` for each playbook, role and imported playbook. Here, these runs
are forked from a process that has imported Ansible. And for each rule, ansible-lint copies each task. Here, it does not
copy the strings and their positions in the file, which do not change.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import types
import typing as t
from collections.abc import Sequence
from pathlib import Path

from ansible.module_utils._internal import _datatag
from ansible_compat import runtime
from ansible_compat.runtime import Runtime
from ansiblelint import __main__ as program
from ansiblelint import runner

ROOT = Path(__file__).resolve().parents[1]
# Not through ansible_collections, whose modules ansible-lint imports in its own way.
sys.path.append(str(ROOT / "tests" / "unit" / "plugins"))

import ansible_run

CONSTANTS = (
    _datatag.AnsibleDatatagBase,
    _datatag._AnsibleTaggedFloat,
    _datatag._AnsibleTaggedInt,
    _datatag._AnsibleTaggedStr,
)
checked = Runtime.has_playbook
_one = threading.Lock()


def run(command: Sequence[str], **options: t.Any) -> subprocess.CompletedProcess[str]:
    """Run a command for ansible-lint. Its threads call this, but the process that forks handles one run at a time."""
    if command[0] != "ansible-playbook":
        return subprocess.run(command, check=options.pop("check", False), **options)
    with _one:
        return ansible_run.run(command, env=options["env"], cwd=options.get("cwd"))


def has_playbook(self: Runtime, playbook: str, *, basedir: Path | None = None) -> bool:
    """Check the syntax of an imported playbook once. To ansible-lint, a/../site.yml is another playbook."""
    return checked(self, os.path.normpath(playbook), basedir=basedir)


if __name__ == "__main__":
    # ansible-lint keeps all files that it has read. The garbage collector need not look at them again and again.
    gc.disable()
    for kind in CONSTANTS:
        kind.__deepcopy__ = lambda self, _memo: self
    Runtime.has_playbook = has_playbook
    runner.subprocess = runtime.subprocess = types.SimpleNamespace(**{**vars(subprocess), "run": run})
    sys.argv[0] = "ansible-lint"
    sys.exit(program._run_cli_entrypoint())
