# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The capabilities of NVIDIA's driver that a container can have."""

from __future__ import annotations

from collections.abc import Mapping

CAPABILITIES = ("compat32", "compute", "display", "graphics", "ngx", "utility", "video")
DEFAULT_CAPABILITIES = ("compute", "utility")


def driver_capabilities(env: Mapping[str, str]) -> list[str]:
    """Return the driver capabilities that NVIDIA's runtime takes from a container's environment."""
    names = [part.strip() for part in env.get("NVIDIA_DRIVER_CAPABILITIES", "").split(",") if part.strip()]
    if "all" in names:
        return list(CAPABILITIES)
    return names or list(DEFAULT_CAPABILITIES)
