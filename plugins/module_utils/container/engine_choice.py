# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the container engine."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import Docker, Podman
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.volumes import EngineError


def choose_engine(requested: str, engines: Mapping[str, Docker | Podman], name: str) -> Docker | Podman:
    """Return the requested engine. For `auto`, prefer the engine that has the container, then the first available."""
    absences = {}
    for engine_name in engines if requested == "auto" else [requested]:
        absences[engine_name] = engines[engine_name].unavailable_reason()
    available = [engines[engine_name] for engine_name, absence in absences.items() if absence is None]
    if not available and requested != "auto":
        raise EngineError(
            f"engine={requested}: {absences[requested]}. Install and start {requested}, for example with "
            "role container_engine, or use another engine."
        )
    if not available:
        reasons = "; ".join(f"{engine_name}: {absence}" for engine_name, absence in absences.items())
        raise EngineError(
            f"No container engine answers ({reasons}). Install and start Docker or Podman, for example with "
            "role container_engine."
        )
    owners = [engine for engine in available if _has_container(engine, name)] if len(available) > 1 else []
    return owners[0] if len(owners) == 1 else available[0]


def _has_container(engine: Docker | Podman, name: str) -> bool:
    try:
        return engine.container(name) is not None
    except EngineError:
        return False  # If this engine is used, a later call reports its error.
