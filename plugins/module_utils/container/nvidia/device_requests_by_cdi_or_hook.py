# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether Docker handles device requests (`--gpus`) through CDI or through NVIDIA's hook."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import specification_kinds
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.cdi_device_of_gpu import cdi_device
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState

# The first Docker that uses CDI for device requests.
_FIRST_DOCKER = (29, 2)


def requests_use_cdi(engine: EngineState, host: IsolationHost, units: Sequence[Unit] = ()) -> bool:
    """Return whether Docker handles device requests through CDI instead of NVIDIA's hook.

    If a unit has no CDI device, Docker uses the hook: moby/moby, daemon/devices_nvidia_linux.go (docker-v29.2.0).
    """
    is_able = engine.version_key >= _FIRST_DOCKER and bool(host.program(("nvidia-cdi-hook",)) and engine.cdi_dirs)
    return is_able and all(cdi_device(unit, host.specs, specification_kinds.KIND) for unit in units)
