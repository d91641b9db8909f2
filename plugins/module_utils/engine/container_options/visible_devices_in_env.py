# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether variables of the user such as NVIDIA_VISIBLE_DEVICES are ignored, or request additional devices."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_access import ACCESS


def found(
    options: Mapping[str, Any],
    uuids: Collection[str],
    *,
    vendor: str,
    runtime: str | None,
    replaced: Mapping[str, str],
    by_option: bool = True,
) -> list[str]:
    """Return a warning for each variable in the user's environment that names other devices than the assigned ones.

    `vendor`: that of the assigned devices. `runtime`: the vendor whose runtime reads the variables of the container.
    `replaced`: the variables that the container gets instead of the user's. Without `by_option`, the user's environment
    is the request.
    """
    env, warnings = options.get("env") or {}, []
    for owner, access in ACCESS.items():
        for name in access.variables:
            value = env.get(name)
            if value in (None, "", "void", replaced.get(name)) or set(value.split(",")) == set(uuids):
                continue
            if name not in replaced and owner == runtime:
                if value != "none":
                    warnings.append(f"env {name}={value} requests devices in addition to gpus. Remove it from env.")
            elif by_option and (owner == vendor or name in replaced):
                warnings.append(f"env {name}={value} is ignored, because gpus names the devices. Remove it from env.")
    return warnings
