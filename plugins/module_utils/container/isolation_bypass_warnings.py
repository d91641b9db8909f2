# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which warnings the user's options cause that give a container more GPUs than `gpus`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import virtual_machine_runtimes
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.container_options import (
    extra_gpus_by_option,
    visible_devices_in_env,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_access import vendor_of_runtime


def isolation_bypass_warnings(
    options: Mapping[str, Any],
    state: EngineState,
    access: Access,
    uuids: Sequence[str],
    allowed: Sequence[str],
    *,
    vendor: str,
    by_option: bool = True,
) -> list[str]:
    """Return warnings about user options that give access to more GPUs than `gpus`.

    `access`: what the container is given, `vendor`: the vendor of these devices. Without `by_option`, the user's
    environment can be the request, like that of an image.
    """
    warnings = extra_gpus_by_option.found(options, allowed)
    named = access.runtime or next(iter(extra_gpus_by_option.runtimes(options)), state.default_runtime)
    runtime_vendor = vendor_of_runtime(named, state.runtimes.get(named))
    # For a device request, the engine itself sets the vendor's variable.
    is_set = bool(access.device_ids) and runtime_vendor == vendor
    warnings += visible_devices_in_env.found(
        options,
        uuids,
        vendor=vendor,
        runtime=None if is_set else runtime_vendor,
        replaced=access.env,
        by_option=by_option,
    )
    runtimes = extra_gpus_by_option.runtimes(options) or [state.default_runtime]
    return warnings + virtual_machine_runtimes.warnings(runtimes)
