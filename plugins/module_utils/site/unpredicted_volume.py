# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Announce a driver volume that cannot be predicted yet. Pure functions of the observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def text(host: Host, options: Mapping[str, list[str]], version: str) -> str:
    """Return the change. `options`: those of module nvidia_driver_volume. `version`: that of the driver."""
    expected, is_any = options["expected_engines"], options["engine"] != ["none"]
    engines = [
        name for name in ("docker", "podman") if name in expected or (is_any and host["engines"][name]["package"])
    ]
    registered = f" and register it with {' and '.join(engines)}" if engines else ""
    return f"create the driver volume once driver {version} is loaded{registered}"
