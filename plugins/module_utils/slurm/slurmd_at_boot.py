# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For what slurmd waits at boot: units, and the device nodes in gres.conf. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import gres_lines as slurm_gres_lines


# Seconds that slurmd waits for the device nodes at boot.
_WAIT = 120
# Units that create device nodes, or change what they are. An ordering after a unit that does not exist has no effect.
_AFTER = (
    "nvidia-persistenced.service nvidia-mig-manager.service nvidia-fabricmanager.service gpufleet-cdi-refresh.service"
)


def drop_in(selected: Sequence[slurm_gres_lines.SlurmGres]) -> str:
    """Return the drop-in with which slurmd waits at boot for the device nodes in gres.conf.

    slurmd ends if a node of gres.conf does not exist. No unit stands for the nodes of most drivers, so it waits itself.
    """
    paths = list(dict.fromkeys(path for one in selected for path in one.files))
    minors = [path[len("/dev/nvidia") :] for path in paths if path.startswith("/dev/nvidia") and path[-1].isdigit()]
    minors = [minor for minor in minors if minor.isdigit()]
    lines = [
        "# Written by role gpufleet.hosts.gpu_slurm_node. Changes in this file are lost.",
        "[Unit]",
        f"After={_AFTER}",
        "[Service]",
    ]
    if minors:
        # NVIDIA's driver creates no nodes by itself.
        options = " ".join(f"-c {minor}" for minor in minors)
        lines.append(f"ExecStartPre=-/usr/bin/nvidia-modprobe -u {options}")
    # After the time limit, slurmd starts anyway and names the node that is missing.
    until = f"until [ -e $$f ] || [ $$n -ge {_WAIT} ]; do n=$$((n+1)); sleep 1; done"
    loop = f"n=0; for f in {' '.join(paths)}; do {until}; done"
    lines += [f"ExecStartPre=/bin/sh -c '{loop}'", f"TimeoutStartSec={_WAIT + 90}"]
    return "\n".join(lines) + "\n"
