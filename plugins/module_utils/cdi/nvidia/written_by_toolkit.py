# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a CDI specification is recognized that NVIDIA's container toolkit wrote. Pure functions."""

from __future__ import annotations

# Programs of the toolkit. A specification that calls one of them comes from the toolkit.
TOOLKIT_PROGRAMS = ("nvidia-cdi-hook", "nvidia-ctk")


def toolkit_origin(text: str) -> str | None:
    """Return that NVIDIA's toolkit wrote a specification, as the end of a sentence, or None."""
    if not any(program in text for program in TOOLKIT_PROGRAMS):
        return None
    return f"it calls {' or '.join(TOOLKIT_PROGRAMS)}, so it comes from NVIDIA's toolkit"
