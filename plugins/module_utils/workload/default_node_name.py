# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which node of Slurm or Kubernetes is drained if the user names none: the name that this host has as a node."""

from __future__ import annotations

import os


def of_slurm() -> str:
    """Return slurmd's own default: the host name without the domain."""
    return os.uname().nodename.partition(".")[0]


def of_kubernetes() -> str:
    """Return the kubelet's own default: the host name in lower case."""
    return os.uname().nodename.lower()
