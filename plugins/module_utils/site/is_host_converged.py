# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether playbook site has nothing to do on a host after its plan, and skips all further tasks. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_converged(result: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Return whether playbook site has nothing to do on the host. `facts`: what the plan read about the GPUs."""
    if result["acting"] or result["drain"] is not None or needs_record(result.get("adoption")):
        return False
    verify = result["plan"].get("verify") or {}
    return not verify.get("applies") or facts.get("nvidia_gpu_state") == "ready"


def needs_record(adoption: Mapping[str, Any] | None) -> bool:
    """Return whether the run has to hold packages of a prepared image, or to write the report of the adoption."""
    return adoption is not None and bool(adoption["hold"] or not adoption["is_written"])
