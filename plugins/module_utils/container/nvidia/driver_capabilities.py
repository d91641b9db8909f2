# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which capabilities of NVIDIA's driver a container gets: those of the user, or those that its image requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import complete_graphics

CAPABILITIES = ("compat32", "compute", "display", "graphics", "ngx", "utility", "video")
DEFAULT_CAPABILITIES = ("compute", "utility")


def driver_capabilities(env: Mapping[str, str]) -> list[str]:
    """Return the driver capabilities that NVIDIA's runtime takes from a container's environment."""
    names = [part.strip() for part in env.get("NVIDIA_DRIVER_CAPABILITIES", "").split(",") if part.strip()]
    if "all" in names:
        return list(CAPABILITIES)
    return names or list(DEFAULT_CAPABILITIES)


def effective(
    requested: Sequence[str] | None, env: Mapping[str, str] | None, graphics_fault: Callable[[], str | None]
) -> Sequence[str]:
    """Return the capabilities of the user, else those of the image without graphics that the driver lacks.

    `env` is None if the image is unknown. `graphics_fault` returns why containers cannot have graphics, or None.
    """
    if requested:
        return requested
    if env is None:
        return ("utility",)  # Each image has at least this capability.
    capabilities = driver_capabilities(env)
    wants = any(name in complete_graphics.CAPABILITIES for name in capabilities)
    left_out = complete_graphics.CAPABILITIES if wants and graphics_fault() else ()
    return [name for name in capabilities if name not in left_out]
