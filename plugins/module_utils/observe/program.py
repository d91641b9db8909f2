# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`gpu_host_info` as a standalone program that can also read the GPUs. The action plugin of gpu_host_plan pipes it into
the host's Python.
"""

from __future__ import annotations

import os
import sys

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment, standalone_program
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import module_call as facts_call
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import module_call as observe_call


def main(given: dict) -> None:
    """Print the result and end the process. `given` has these values.

    `options`: the options of gpu_host_info. `check_mode`: whether the task runs in check mode.
    `facts`: the options of nvidia_gpu_facts, or None. Without a loaded driver, the facts are not gathered.
    """
    if sys.version_info < (3, 9):
        raise SystemExit("Python 3.9 or newer is required")
    pinned_environment.pin()
    options = given["options"]
    options["files"] = [os.path.expanduser(os.path.expandvars(path)) for path in options["files"]]
    host = observe_call.observe(
        options, check_mode=given["check_mode"], find=pinned_environment.find, run=standalone_program.run
    )
    result = {"host": host}
    if given["facts"] and nvidia_driver(host)["loaded"]:
        result["facts"] = facts_call.result(given["facts"], standalone_program.run)
    standalone_program.finish(result)
