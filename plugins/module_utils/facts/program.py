# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`nvidia_gpu_facts` as a standalone program. The action plugin pipes it into the host's Python.

Imports in this file delay NVML. tests/unit/plugins/module_utils/facts/test_program_imports.py limits them.
"""

from __future__ import annotations

import os

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment, standalone_program
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import module_call as facts_call


def main(options: dict) -> None:
    """Print the result and end the process. `options` has the values of all options."""
    pinned_environment.pin()
    if options["driver_root"]:
        options["driver_root"] = os.path.expanduser(os.path.expandvars(options["driver_root"]))
    standalone_program.finish(facts_call.result(options, standalone_program.run))
