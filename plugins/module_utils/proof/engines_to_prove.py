# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In the containers of which engines the proof runs, and which of them it skips with a warning."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import engines_on_host


def choose(requested: Sequence[str], engines: engines_on_host.ProofEngines, warn: Callable[[str], None]) -> list[str]:
    """Return the engines to prove. Docker has a containerd of its own, whose containers belong to Docker."""
    obstacles = {name: engines.obstacle(name) for name in requested or engines_on_host.ENGINES}
    found = [name for name, obstacle in obstacles.items() if not obstacle]
    for name, obstacle in obstacles.items() if requested else ():
        if obstacle is None or (name == "containerd" and not engines.is_installed(name)):
            continue
        if name != "podman" or not found:
            raise EngineError(f"The proof cannot run in a container of {name}: {obstacle}")
        # Without a daemon, an installed Podman does not mean that somebody uses it.
        warn(f"The proof in a container of {name} was skipped: {obstacle.rstrip('.')}.")
    if not found and not requested:
        texts = "; ".join(f"{name}: {text}" for name, text in obstacles.items())
        raise EngineError(f"The proof cannot run in a container, because no engine answers ({texts}).")
    return [name for name in found if requested or name != "containerd" or "docker" not in found]
