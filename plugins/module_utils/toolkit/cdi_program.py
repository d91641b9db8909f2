# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the CDI specification of a host as a standalone program, which a systemd unit runs at boot and on request.

own_cdi_units.py plans the unit and has the options. plugin_utils/host_program.py packs the program.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment, standalone_program
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import specification_writing
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import missing_pynvml

Run = Callable[[list], tuple]


def main(options: dict[str, Any]) -> None:
    """Write the specification, say so, and end with status 1 on an error."""
    pinned_environment.pin()
    try:
        lines = refresh(options, standalone_program.run)
    except (*specification_writing.ERRORS, missing_pynvml.BindingMissing) as error:
        sys.stderr.write(f"{specification_writing.error_text(error, options['path'])}\n")
        raise SystemExit(1) from None
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def refresh(options: dict[str, Any], run: Run) -> list[str]:
    """Write the specification, or remove it if another one describes the GPUs. Return what was done."""
    path, owner = options["path"], _enabled(options["vendor_units"], run)

    def gather_facts() -> dict:
        return gather.gather(
            root=options["root"], run=run, timeout=options["timeout"], driver_root=options["driver_root"]
        )["facts"]

    # That unit may write its specification later than this one, and engines reject two with the same devices.
    params = {**options, "state": "absent"} if owner else options
    result = specification_writing.apply_state(params, gather_facts, check=False, root=options["root"])
    lines = [*result["warnings"], *(f"without GPU {gpu['gpu']}: {gpu['reason']}" for gpu in result["skipped"])]
    if owner:
        return [*lines, f"{owner} writes the CDI specification, so {path} does not exist"]
    if not result["devices"]:
        return [*lines, f"{path} does not exist"]
    verb = "wrote" if result["changed"] else "kept"
    return [*lines, f"{verb} {path} with the devices {', '.join(result['devices'])}"]


def _enabled(units: list[str], run: Run) -> str | None:
    """Return the first of the units that is enabled."""
    return next((unit for unit in units if run(["systemctl", "is-enabled", "--quiet", unit])[0] == 0), None)
