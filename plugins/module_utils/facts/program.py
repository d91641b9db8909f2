# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`nvidia_gpu_facts` as a standalone program. The action plugin pipes it into the host's Python."""

from __future__ import annotations

import json
import os
import sys

from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import call as facts_call

# Marks the line with the result, because a host may also print a login banner.
MARK = "gpufleet-result:"


def main(arguments: str) -> None:
    """Print the result and end the process. `arguments` has the values of all options as JSON."""
    options = json.loads(arguments)
    if options["driver_root"]:
        options["driver_root"] = os.path.expanduser(os.path.expandvars(options["driver_root"]))
    sys.stdout.write(f"{MARK}{json.dumps(facts_call.result(options, run))}\n")
    sys.stdout.flush()
    os._exit(0)  # Skips the cleanup of the interpreter, which takes time.


def run(argv: list[str]) -> tuple[int, str, str]:
    """Run a program. Return its status, output and errors."""
    import subprocess  # noqa: PLC0415 (rarely needed)

    try:
        completed = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        return 127, "", str(error)
    return completed.returncode, completed.stdout, completed.stderr
