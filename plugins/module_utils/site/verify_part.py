# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part verify: the GPUs are ready after the run."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import variables as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Declaration
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part


def plan(context: Context, _planned: Mapping[str, Part]) -> Part:
    activate = driver_request.read(context.values["nvidia_driver"]).activate
    return Part(plan={"applies": driver_request.is_driver_wanted(context.host, context.values) and activate})


PART = Declaration(name="verify", vendor="nvidia", plan=plan, reads=("nvidia_driver",))
