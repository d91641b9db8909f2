# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which runtimes run a container in a virtual machine, and the warning that device nodes do not work there."""

from __future__ import annotations

from collections.abc import Iterable

# What the names of such runtimes contain.
_NAME = "kata"


def warnings(runtimes: Iterable[str]) -> list[str]:
    """Return a warning for each of the runtimes that uses a virtual machine."""
    return [
        f"runtime {runtime} runs the container in a virtual machine, where the host's device nodes do not work."
        for runtime in runtimes
        if _NAME in runtime
    ]
