# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses the NVIDIA driver for a host and gives the reasons.

A pure function from the observed host (`gpu_host_info`), the request and the platform's data to a source, a flavor, a
branch and packages. This file has the order of the decisions; `driver_source`, `driver_modules`, `driver_version`,
`driver_packages` and `driver_adoption` make them. `driver_plan` turns the result into actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import adoption, modules, packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import request as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source as driver_source
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import version as driver_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.types import Case, Refused
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import generations as hardware_generations

DEFAULTS: dict[str, Any] = {
    "source": "auto",
    "branch": None,
    "version": None,
    "minimum_version": None,
    "flavor": "auto",
    "module_build": "auto",
    "components": ["compute"],
    "extra_packages": [],
    "kernel_packages": None,
    "fabric_manager": "auto",
    "imex": "auto",
    "peermem": False,
    "memory_hotadd_override": False,
    "mirror": None,
    "repository_username": None,
    "repository_password": None,
    "proxy": None,
    "proxy_username": None,
    "proxy_password": None,
    "key_url": None,
    "key_fingerprint": None,
    "runfile_url": None,
    "runfile_checksum": None,
    "secure_boot_key_enrolled": False,
    "module_options": {},
    "reboot_timeout": None,
    "lock_timeout": None,
}

# Settings that only the plan uses.
_PLAN_ONLY = {"hold", "activate"}


def resolve(host: dict, request: dict, platform: dict | None, rejected_branches: Sequence[str] = ()) -> dict:
    """Return the driver for the host. If there is none, `errors` says why.

    `action` is `none` (nothing to do), `adopt` (keep the installed driver) or `install`. `rejected_branches` are not
    chosen; `alternative_branches` are suitable branches besides the chosen one.
    """
    full = {**DEFAULTS, **{name: value for name, value in request.items() if value not in (None, "")}}
    full["rejected_branches"] = rejected_branches
    # YAML reads an unquoted branch as a number.
    full.update({name: str(full[name]) for name in driver_request.TEXTS if full[name] is not None})
    result: dict[str, Any] = {
        "action": "none",
        "source": None,
        "flavor": None,
        "branch": None,
        "branches": [],
        "rejected_branches": list(rejected_branches),
        "alternative_branches": [],
        "other_sources": [],
        "module_build": None,
        "packages": [],
        "optional": [],
        "lockstep": [],
        "name_patterns": [],
        "common_packages": [],
        "prebuilt": [],
        "signed": False,
        "prerequisites": [],
        "prerequisites_bring": [],
        "prerequisites_hint": None,
        "hold_needs": [],
        "kernel_packages": [],
        "headers": {},
        "kernel_meta": None,
        "repository": None,
        "stream": None,
        "services": [],
        "modules": [],
        "build_limit": None,
        "removable": [],
        "replaced": [],
        "replaced_modules": [],
        "leftover_config": [],
        "reasons": [],
        "errors": [],
    }
    ids = host["nvidia"]["device_ids"]
    try:
        # Hosts without a GPU check the request, too, so that errors show before the first change on any host.
        _check_names(request)
        driver_request.check(full)
        if ids:
            generations = {device: hardware_generations.of(device) for device in ids}
            _resolve(Case(host, full, platform, generations, driver_version.window(generations), result))
        else:
            guests = host["nvidia"]["gpus_of_guests"]
            why = (
                f"all GPUs are assigned to virtual machines ({', '.join(guests)})"
                if guests
                else "no NVIDIA GPU on the PCI bus"
            )
            result["reasons"].append(f"{why}: this host needs no NVIDIA driver")
    except (Refused, driver_request.RequestError) as error:
        result["errors"].append(str(error))
    return result


def _check_names(request: dict) -> None:
    unknown = sorted(set(request) - set(DEFAULTS) - _PLAN_ONLY)
    if unknown:
        known = ", ".join(sorted({*DEFAULTS, *_PLAN_ONLY}))
        raise driver_request.RequestError(
            f"The request contains unknown keys: {', '.join(unknown)}. Known keys: {known}."
        )


def _resolve(case: Case) -> None:
    installed = driver_source.installed(case.host, case.platform)
    source = driver_source.choose(case, installed)
    case.result["source"] = source
    if source == "preinstalled":
        adoption.adopt(case)
        return
    data = driver_source.runfile_data(case) if source == "runfile" else driver_source.data_of(case, source)
    case.result["flavor"] = modules.flavor(case, data, installed == source)
    case.result["build_limit"] = modules.build_limit(case.host, data, case.result["flavor"])
    case.result["branch"] = driver_version.choose_branch(case, data, installed == source)
    case.result["branches"] = data["branches"]
    case.result["other_sources"] = driver_source.others(case, source) if installed is None else []
    case.result["action"] = "install"
    if source == "runfile":
        case.result["module_build"] = "dkms"
        case.result["version"] = case.request["version"]
    else:
        case.result["module_build"] = modules.build(case, data)
    packages.choose(case, data)
    modules.check_secure_boot(case, data)
