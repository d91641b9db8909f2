# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part nvidia_driver: NVIDIA's driver."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import request as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Declaration
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.planned import Context, Part, package_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import driver as site_driver


def plan(context: Context, _parts: Mapping[str, Part]) -> Part:
    values, platform = context.values["nvidia_driver"], context.platforms.get("nvidia_driver")
    request = driver_request.read(values)
    if request.state == "absent":
        removal = site_driver.removal(context.host, platform)
        return Part(
            plan=removal,
            acts=removal["acts"],
            changes=removal["summary"],
            reasons=removal["reasons"],
            errors=removal["errors"],
            removal=package_removal(
                "nvidia_driver",
                removal["packages"],
                exists=removal["record"] or removal["together_with"],
                keep=removal["keep"],
                together_with=removal["together_with"],
            ),
            report=removal["report"],
        )
    return Part(
        **site_driver.present(
            context.host,
            request,
            values,
            platform,
            versions=context.versions,
            streams=context.streams,
            dependencies=context.dependencies,
            rejected_sources=context.rejected_sources,
            is_controller=context.is_controller,
            settings=context.settings,
        )
    )


PART = Declaration(
    name="nvidia_driver",
    vendor="nvidia",
    plan=plan,
    request=driver_request.DriverRequest,
    read=driver_request.read,
    reports=True,
)
