# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The short result of a plan for a host that needs nothing.

Ansible copies each result several times in its main process. It copies a text faster than the same observation as a
dictionary of thousands of values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def is_converged(result: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Return whether playbook site has nothing to do on the host. `facts`: what the plan read about the GPUs."""
    if result["acting"] or result["drain"] is not None:
        return False
    verify = result["plan"].get("verify") or {}
    return not verify.get("applies") or facts.get("nvidia_gpu_state") == "ready"


def shortened(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result with the observation as text, and without the plan, which changes nothing."""
    rest = {name: value for name, value in result.items() if name not in ("host", "plan")}
    return {**rest, "host_text": json.dumps(result["host"])}


def host(result: Mapping[str, Any]) -> Any:
    """Return the observation in the result of a plan."""
    return result["host"] if "host" in result else json.loads(result["host_text"])
