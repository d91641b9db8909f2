# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses the NVIDIA driver for a host and gives the reasons.

A pure function from the observed host (`gpu_host_info`), the request and the platform's data to a source, a flavor, a
branch and packages. This file has the order of the decisions; `source`, `modules`, `branch`, `package_choice` and
`adoption` make them. `plan` turns the result into actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import adoption, modules, package_choice
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import branch as driver_branch
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source as driver_source
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.request import Request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.types import Case, Refused, Resolution
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import generations as hardware_generations

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host


def resolve(
    host: Host,
    request: Request,
    platform: dict | None,
    rejected_branches: Sequence[str] = (),
    rejected_sources: Mapping[str, str] | None = None,
) -> Resolution:
    """Return the driver for the host. If there is none, `errors` says why.

    Do not choose `rejected_branches`, nor `rejected_sources`, which maps sources to reasons.
    """
    result = Resolution(rejected_branches=list(rejected_branches), rejected_sources=dict(rejected_sources or {}))
    ids = host["nvidia"]["device_ids"]
    if not ids:
        guests = host["nvidia"]["gpus_of_guests"]
        why = (
            f"all GPUs are assigned to virtual machines ({', '.join(guests)})"
            if guests
            else "no NVIDIA GPU on the PCI bus"
        )
        result.reasons.append(f"{why}: this host needs no NVIDIA driver")
        return result
    generations = {device: hardware_generations.of(device) for device in ids}
    try:
        _resolve(Case(host, request, platform, generations, driver_branch.window(generations), result))
    except Refused as error:
        result.errors.append(str(error))
    return result


def _resolve(case: Case) -> None:
    installed = driver_source.installed(case.host, case.platform)
    source = driver_source.choose(case, installed)
    case.result.source = source
    if source == "preinstalled":
        adoption.adopt(case)
        return
    data = driver_source.runfile_data(case) if source == "runfile" else driver_source.data_of(case, source)
    case.result.flavor = modules.flavor(case, data, installed == source)
    case.result.build_limit = modules.build_limit(case.host, data, case.result.flavor)
    case.result.branch = driver_branch.choose_branch(case, data, installed == source)
    case.result.branches = data["branches"]
    case.result.other_sources = driver_source.others(case, source) if installed is None else []
    case.result.action = "install"
    if source == "runfile":
        case.result.module_build = "dkms"
        case.result.version = case.request.version
    else:
        case.result.module_build = modules.build(case, data)
    package_choice.choose(case, data)
    modules.check_secure_boot(case, data)
