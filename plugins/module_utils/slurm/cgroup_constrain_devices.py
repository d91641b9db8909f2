# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ConstrainDevices of cgroup.conf: the line of the role, and whether a line of somebody else is as good."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.configuration_files import SlurmLine

# SchedMD/slurm (284c3b95), src/common/parse_value.c.
_TRUE = ("yes", "up", "true", "1")


def plan(others: Iterable[SlurmLine], path: str, *, wanted: bool) -> tuple[list[str], str | None]:
    """Return the lines of the role, and what to correct. `others`: the lines of somebody else in the file `path`."""
    # Slurm uses the last of several lines.
    value = {name: value for line in others for name, value in line.options.items()}.get("constraindevices")
    if not wanted:
        return [], None
    if value is None:
        return ["ConstrainDevices=yes"], None
    if value.lower() in _TRUE:
        return [], None
    return [], (
        f"{path} sets ConstrainDevices={value}, so a job could use the GPUs of other jobs. Remove the line, or set "
        "gpu_slurm_node_constrain_devices to false."
    )
