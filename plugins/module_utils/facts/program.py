# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`nvidia_gpu_facts` as a program of its own, which its action plugin has a host's Python read."""

from __future__ import annotations

import json
import os
import sys

from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import call as facts_call

# Before the result: a host may print other things, such as a banner.
MARK = "gpufleet-result:"


def main(arguments: str) -> None:
    """Print the result of a call, for which `arguments` has the values of all options as JSON, and end the process."""
    options = json.loads(arguments)
    if options["driver_root"]:
        options["driver_root"] = os.path.expanduser(os.path.expandvars(options["driver_root"]))
    sys.stdout.write(f"{MARK}{json.dumps(facts_call.result(options, _run))}\n")
    sys.stdout.flush()
    os._exit(0)  # Nothing is left to do, and to tidy up takes time.


def _run(argv: list[str]) -> tuple[int, str, str]:
    import subprocess  # noqa: PLC0415 (hardly ever needed)

    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr
