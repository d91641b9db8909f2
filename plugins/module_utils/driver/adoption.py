# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a driver that came by other means than this collection's is what was asked for."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import branch as driver_branch
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import fabric
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.case import Case, Refused, named
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.rules import applies
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import installed


def adopt(case: Case) -> None:
    """Keep the driver that is there; refuse where it is not what was asked for, or does not serve the GPUs."""
    driver = case.host["driver"]
    version = driver["library"] or driver["loaded"] or driver["on_disk"]
    case.result["action"] = "adopt"
    case.result["flavor"] = driver["kernel_module_flavor"] or driver["on_disk_flavor"]
    case.result["branch"] = version.partition(".")[0] if version else None
    if version is None:
        raise Refused(
            "nvidia_driver_source is preinstalled, but the driver on this host is packages alone, with neither a "
            "library nor a kernel module. Finish its installation first, or choose another source."
        )
    case.result["version"] = version
    wanted = case.wish["version"]
    if wanted and upstream_version(wanted) != version:
        raise Refused(
            f"nvidia_driver_version is {wanted}, but the driver that is there is {version}, and it was not put there "
            "by "
            "this role. Drop the version, or replace the driver by its own means."
        )
    if case.wish["branch"] and case.wish["branch"] != case.result["branch"]:
        raise Refused(
            f"nvidia_driver_branch is {case.wish['branch']}, but the driver that is there is {version}, and it was "
            "not put "
            "there by this role. Drop the branch, or replace the driver by its own means."
        )
    if case.wish["minimum_version"] and driver_branch.older(case.host, case.wish["minimum_version"]):
        raise Refused(
            f"nvidia_driver_minimum_version is {case.wish['minimum_version']}, but the driver that is there is "
            f"{version}, and it "
            "was not put there by this role. Lower it, or replace the driver by its own means."
        )
    if not driver_branch.fits(case.result["branch"], case.window):
        gpu = case.window[2] if int(case.result["branch"]) < case.window[0] else case.window[3]
        raise Refused(
            f"the driver that is there is {version}, which does not serve {gpu}. Replace it by its own means."
        )
    if case.result["flavor"] == "open":
        unfit = named(case.generations, lambda generation: not generation.open_modules)
    else:
        unfit = (
            named(case.generations, lambda generation: not generation.proprietary_modules)
            if case.result["flavor"]
            else ""
        )
    if unfit:
        raise Refused(
            f"the {case.result['flavor']} kernel modules that are there do not drive {unfit}. Replace them by their "
            "own means."
        )
    asked = case.wish["flavor"]
    if asked != "auto" and case.result["flavor"] not in (None, asked):
        raise Refused(
            f"nvidia_driver_flavor is {asked}, but the kernel modules that are there are the {case.result['flavor']} "
            "ones, and they were not put there by this role. Set it to auto, or replace the driver by its own means."
        )
    fabric.adopt(case)
    _say_what_it_does_not_get(case)


def _say_what_it_does_not_get(case: Case) -> None:
    wish, host = case.wish, case.host
    components = [name for name in wish["components"] if name != "compute" and not _has_component(case, name)]
    extra = [name for name in wish["extra_packages"] if not installed.is_there(host, name)]
    has_fabric_manager = wish["fabric_manager"] != "enabled" or fabric.UNIT in case.result["services"]
    # Its nodes are the user's to configure, so that it need not run.
    has_imex = wish["imex"] is not True or _state(host, "nvidia-imex.service").get("load_state") == "loaded"
    asked = {
        "fabric_manager": "" if has_fabric_manager else "enabled",
        "imex": "" if has_imex else "on",
        "components": ", ".join(components),
        "extra_packages": ", ".join(extra),
    }
    for name, value in asked.items():
        if value:
            case.result["reasons"].append(
                f"nvidia_driver_{name} ({value}) is not carried out: the driver was there already and is adopted, and "
                "no package is added to it. Install that by the driver's own means, or drop the wish"
            )


def _has_component(case: Case, component: str) -> bool:
    """Tell whether all packages that some source of the platform has for a component are installed."""
    branch = str(case.result["branch"])
    context = {"branch": branch, "arch": case.host["os"]["arch"], "flavor": case.result["flavor"]}
    for data in ((case.platform or {}).get("sources") or {}).values():
        rules = [rule for rule in data["packages"] if rule.get("component") == component and applies(rule, context)]
        names = [rule["name"].replace("{branch}", branch) for rule in rules]
        if names and all(name in case.host["packages"] for name in names):
            return True
    return False


def _state(host: dict, unit: str) -> dict:
    return host["services"].get(unit, {})


def is_at_work(host: dict, unit: str) -> bool:
    """Tell whether a service starts at boot, and runs if the driver is there for it."""
    state = _state(host, unit)
    active = state.get("active_state") == "active" or not host["driver"]["loaded"]
    return state.get("unit_file_state") in ("enabled", "static") and active
