# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print lines about a fleet in Ansible's colors, for the action plugins gpu_plan_text and gpu_fleet_text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible import constants as C
from ansible.utils.display import Display

from ansible_collections.gpufleet.hosts.plugins.module_utils.output import fleet_lines

_COLORS = {
    fleet_lines.CONVERGED: C.COLOR_OK,
    fleet_lines.CHANGES: C.COLOR_CHANGED,
    fleet_lines.ERROR: C.COLOR_ERROR,
    fleet_lines.UNREACHABLE: C.COLOR_UNREACHABLE,
}
# Callbacks whose output is data for programs, which text would make invalid.
_DATA_CALLBACKS = ("json", "jsonl", "null")


def show(lines: Sequence[fleet_lines.SiteLine]) -> dict[str, Any]:
    """Print the lines, and return the result of the task. With a callback whose output is data, print nothing."""
    if str(C.DEFAULT_STDOUT_CALLBACK).rpartition(".")[2] not in _DATA_CALLBACKS:
        for line in lines:
            Display().display(line.text, color=_COLORS.get(line.kind))
    # With -v, Ansible would print the lines again.
    return {"changed": False, "lines": [line.text for line in lines], "_ansible_verbose_override": True}
