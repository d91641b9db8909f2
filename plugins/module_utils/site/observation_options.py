# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files, services, packages and users of a host a run observes, from the variables of the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import variables as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import variables as engine_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry, volume_part


def of_variables(
    values: Mapping[str, dict[str, Any]], parts: Sequence[str], *, services: Sequence[str], files: Sequence[str]
) -> dict[str, Any]:
    """Return options of gpu_host_info. `values`: the variables by role. `services`, `files`: those of the user."""
    options: dict[str, Any] = {
        "services": services,
        "files": [*files, *registry.files(parts, values)],
        "_declared": registry.observed(),
    }
    driver = driver_request.read(values["nvidia_driver"]) if "nvidia_driver" in values else None
    if driver is not None and (driver.extra_packages or driver.kernel_packages):
        options["packages"] = [*driver.extra_packages, *driver.kernel_packages]
    engine = engine_request.read(values["container_engine"]) if "container_engine" in values else None
    if engine is not None and engine.users and (engine.name, engine.state) == ("docker", "present"):
        options["users"] = engine.users
    if "driver_volume" in parts:
        options["driver_volume"] = volume_part.volume_engines(values, parts)
    return options
