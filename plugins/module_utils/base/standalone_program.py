# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a program without Ansible's module library needs: its result, and other programs on the host.

Action plugins pipe such a program into the host's Python (see plugin_utils/host_program.py).
"""

from __future__ import annotations

import os
import sys

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment

# Marks the line with the result, because a host may also print a login banner.
MARK = "gpufleet-result:"


def finish(result: dict) -> None:
    """Print the result and end the process."""
    import json  # noqa: PLC0415 (slow: must not delay NVML)

    sys.stdout.write(f"{MARK}{json.dumps(result)}\n")
    sys.stdout.flush()
    os._exit(0)  # Skips the cleanup of the interpreter, which takes time.


def run(argv: list[str], environment: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Run a program with a pinned environment. Return its status, output and errors."""
    import subprocess  # noqa: PLC0415 (rarely needed)

    variables = pinned_environment.environment(dict(os.environ), environment)
    try:
        completed = subprocess.run(
            argv,
            capture_output=True,
            # AnsibleModule sets the pinned locale, whose encoding is ASCII.
            encoding="utf-8",
            errors="replace",
            check=False,
            env=variables,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        return 127, "", str(error)
    return completed.returncode, completed.stdout, completed.stderr
