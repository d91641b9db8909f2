# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs that AMD's container runtime gives to a container. Pure functions.

Source: ROCm/container-toolkit, internal/oci and internal/amdgpu (192fe8e): variable AMD_VISIBLE_DEVICES is all, or a
list of indexes, ranges of indexes and unique IDs in hexadecimal. An unknown name is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import whole_number
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Inventory
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState, environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_access import ACCESS, vendor_of_runtime
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import AMD

(VARIABLE,) = ACCESS[AMD].variables
_RANGE = re.compile(r"([0-9]{1,6})-([0-9]{1,6})")


def units(container: Mapping[str, Any], engine: EngineState, inventory: Inventory) -> frozenset[str]:
    """Return the stable IDs of the GPUs, or nothing if the container uses another runtime."""
    host = container.get("HostConfig") or {}
    name = container.get("OCIRuntime") or host.get("Runtime") or engine.default_runtime
    if vendor_of_runtime(name, engine.runtimes.get(name)) != AMD:
        return frozenset()
    env = environment((container.get("Config") or {}).get("Env"))
    words = [word.strip() for word in env.get(VARIABLE, "").split(",")]
    return frozenset(unit.uuid for unit in inventory.units if any(_names(word, unit) for word in words))


def _names(word: str, unit: Any) -> bool:
    if word == "all" or word == str(unit.gpu.index):
        return True
    between = _RANGE.fullmatch(word)
    if between:
        return whole_number(between[1]) <= unit.gpu.index <= whole_number(between[2])
    # All partitions of a GPU can have its ID.
    return word.lower().startswith("0x") and word[2:].lower() == unit.uuid.partition("/")[0]
