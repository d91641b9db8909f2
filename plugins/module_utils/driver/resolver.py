# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which NVIDIA driver a host shall have, and why.

A pure function from what was observed of the host (`gpu_host_info`), what was asked for, and what is known of the
platform (data of role `nvidia_driver`) to a source, a flavor, a branch, packages and reasons. It looks at nothing else,
so every rule is a row of a table in the unit tests. Here is the order of the questions; each has a file of its own
(`driver_source`, `driver_modules`, `driver_branch`, `driver_packages`, `driver_adoption`). What has to be done to get
there is worked out by `driver_plan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import adoption, branch, modules, packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import request as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source as driver_source
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.case import Case, Refused
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
    "proxy": None,
    "key_url": None,
    "key_fingerprint": None,
    "runfile_url": None,
    "runfile_checksum": None,
    "secure_boot_key_enrolled": False,
    "module_options": {},
    "reboot_timeout": None,
    "lock_timeout": None,
}

# Wishes that change what is done, and not what is chosen.
_FOR_THE_PLAN = {"hold", "activate"}


def resolve(host: dict, request: dict, platform: dict | None, passed_over: Sequence[str] = ()) -> dict:
    """Return what the host shall have; `errors` says why not, where it cannot be had.

    `action` is `none` (nothing to do here), `adopt` (keep the driver that is there) or `install`. `passed_over` are
    branches that are not to be chosen; `next_branches` are those that may do in place of the chosen one.
    """
    wish = {**DEFAULTS, **{name: value for name, value in request.items() if value not in (None, "")}}
    wish["passed_over"] = passed_over
    # YAML reads an unquoted branch as a number.
    wish.update({name: str(wish[name]) for name in driver_request.TEXTS if wish[name] is not None})
    result: dict[str, Any] = {
        "action": "none",
        "source": None,
        "flavor": None,
        "branch": None,
        "branches": [],
        "passed_over": list(passed_over),
        "next_branches": [],
        "other_sources": [],
        "module_build": None,
        "packages": [],
        "optional": [],
        "lockstep": [],
        "kin": [],
        "core": [],
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
        "rivals": [],
        "replaces": [],
        "replaced_modules": [],
        "left_behind": [],
        "reasons": [],
        "errors": [],
    }
    ids = host["nvidia"]["device_ids"]
    try:
        # On every host: what is wrong is found before the first one that has a GPU.
        _check_names(request)
        driver_request.check(wish)
        if ids:
            generations = {device: hardware_generations.of(device) for device in ids}
            _resolve(Case(host, wish, platform, generations, branch.window(generations), result))
        else:
            guests = host["nvidia"]["gpus_of_guests"]
            why = (
                f"all GPUs are handed to virtual machines ({', '.join(guests)})"
                if guests
                else "no NVIDIA GPU on the PCI bus"
            )
            result["reasons"].append(f"{why}: nothing of NVIDIA's is needed here")
    except (Refused, driver_request.RequestError) as refused:
        result["errors"].append(str(refused))
    return result


def _check_names(request: dict) -> None:
    unknown = sorted(set(request) - set(DEFAULTS) - _FOR_THE_PLAN)
    if unknown:
        raise driver_request.RequestError(
            f"{', '.join(unknown)} is nothing that can be asked of a driver. Ask for some of: "
            f"{', '.join(sorted({*DEFAULTS, *_FOR_THE_PLAN}))}."
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
    case.result["branch"] = branch.choose(case, data, installed == source)
    case.result["branches"] = data["branches"]
    case.result["other_sources"] = driver_source.others(case, source) if installed is None else []
    case.result["action"] = "install"
    if source == "runfile":
        case.result["module_build"] = "dkms"
        case.result["version"] = case.wish["version"]
    else:
        case.result["module_build"] = modules.build(case, data)
    packages.choose(case, data)
    modules.check_secure_boot(case, data)
