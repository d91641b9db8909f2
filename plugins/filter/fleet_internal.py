# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filter for the table at the end of the playbooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import end_of_run_verdicts, run_variables

_READERS = {"site": run_variables.of_site, "verify": run_variables.of_verify}


def fleet_report(
    hostvars: Mapping[str, Any], hosts: Sequence[str], working: Sequence[str], playbook: str
) -> list[dict[str, Any]]:
    """Return an entry per host. `working`: the hosts that have not failed."""
    good = set(working)
    return plain(
        end_of_run_verdicts.report({host: _READERS[playbook](hostvars[host], works=host in good) for host in hosts})
    )


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by their names."""
        return {"_fleet_report": fleet_report}
