# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an observation contains of the device nodes of a host with NVIDIA's GPUs."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import observed_specification_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia.host_device_nodes import read_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes


def of_host(root: str, addresses: Iterable[str]) -> dict[str, Any]:
    """Return `HostNodes` as plain data. Only MIG capabilities of existing instances or nodes are in it."""
    nodes = read_nodes(root, addresses)
    base = os.path.join(root, "proc/driver/nvidia/capabilities")
    found = glob.glob(f"{glob.escape(base)}/gpu*/mig/gi*/**/access", recursive=True)
    existing = {os.path.relpath(path, base).replace("/mig/", "/") for path in found}
    return {
        "numbers": {
            path: observed_specification_nodes.joined(numbers) if numbers else None
            for path, numbers in nodes.numbers.items()
        },
        "majors": dict(nodes.majors),
        "drm": {address: list(names) for address, names in nodes.drm.items()},
        "mig_minors": {
            key: number
            for key, number in nodes.mig_minors.items()
            if not key.startswith("gpu")
            or key in existing
            or nvidia_device_nodes.capability_node(number) in nodes.numbers
        },
    }
