# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of an engine's runtimes is NVIDIA's."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState

_RUNTIME_BINARY = re.compile(r"(?:^|/)nvidia-container-runtime(?:\.\w+)?$")


def runtime_name(engine: EngineState, host: IsolationHost) -> str | None:
    """Return NVIDIA's runtime: the registered name, or for Podman the path of the binary."""
    if "nvidia" in engine.runtimes:
        return "nvidia"
    for name, path in sorted(engine.runtimes.items()):
        if _RUNTIME_BINARY.search(path or ""):
            return name
    if engine.name == "podman":
        return host.program(("nvidia-container-runtime",))
    return None
