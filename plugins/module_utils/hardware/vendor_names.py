# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendors of GPUs and accelerators, under the names that options, facts, reports and inventory groups use."""

from __future__ import annotations

from typing import Any

NVIDIA, AMD, NEURON, GAUDI, INTEL = VENDORS = ("nvidia", "amd", "neuron", "gaudi", "intel")


def devices(host: Any) -> list[dict]:
    """Return the GPUs and accelerators of all vendors in an observed host."""
    return [device for group in host["accelerators"].values() if group for device in group["devices"]]


def nvidia_group(host: Any) -> Any:
    """Return the GPUs and the PCI functions of NVIDIA in an observed host."""
    return host["accelerators"]["nvidia"]


def nvidia_driver(host: Any) -> Any:
    """Return the state of NVIDIA's driver in an observed host."""
    return host["accelerators"]["nvidia"]["driver"]


def with_nvidia_driver(host: Any, **changes: Any) -> Any:
    """Return an observed host with another state of NVIDIA's driver."""
    group = nvidia_group(host)
    return {
        **host,
        "accelerators": {**host["accelerators"], "nvidia": {**group, "driver": {**group["driver"], **changes}}},
    }
