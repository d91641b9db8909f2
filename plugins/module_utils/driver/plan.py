# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the actions that give a host the driver that `driver_resolver` chose.

A plan is data. It is empty for a converged host, and check mode shows it without executing it.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import (
    activation,
    adoption,
    config_files,
    installer,
    kernel_packages,
    package_plan,
    resolver,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import request as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import version as driver_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.types import NoVersion
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record


def plan(
    host: dict, request: dict, platform: dict | None, available: dict | None = None, streams: dict | None = None
) -> dict:
    """Return the resolution with the actions in `todo`, and the `version` once the available versions are known.

    `available` maps package names to the versions that the repositories offer, `streams` dnf modules to their streams.
    """
    request = driver_request.convert(request)
    result = resolver.resolve(host, request, platform)
    if available is not None and not result["errors"]:
        result = _first_available_branch(host, request, platform, result, available)
        if request.get("module_build", "auto") == "auto":
            result = _dkms_without_prebuilt(host, request, platform, result, available)
    result["todo"] = todo = _nothing()
    result.setdefault("version", None)
    if not result["errors"] and result["action"] != "none":
        try:
            if result["action"] == "install":
                package_plan.plan_packages(host, request, result, todo, available)
                package_plan.plan_repositories(host, result, todo, streams)
                if result["source"] == "runfile":
                    installer.plan(host, request, result, todo)
                elif available is None and todo["query"]:
                    _query_alternatives(host, request, platform, result, todo)
                package_plan.plan_holds(host, request, result, todo)
            else:
                adoption.hold(host, request, result, todo, platform)
            todo["services"] = [unit for unit in result["services"] if not adoption.is_running(host, unit)]
            config_files.plan(host, request, result, todo)
            if request.get("activate", True):
                todo["modules"] = _modules(host, result, todo)
            todo["finish"] = packages_record.is_unfinished(host, packages_record.DRIVER)
        except NoVersion as error:
            result["errors"].append(f"{error}{_unknown_branch(result)}")
    result["steps"] = _steps(todo)
    result["acts"] = any(result["steps"].values())
    result["summary"] = _summary(result, todo)
    return result


def _nothing() -> dict[str, Any]:
    return {
        "finish": False,
        "repair": False,
        "components": [],
        "repository": None,
        "remove_files": [],
        "remove_packages": [],
        "prerequisites": [],
        "stream": None,
        "query": [],
        "look": None,
        "lock": [],
        "unlock": [],
        "release": [],
        "may_go": [],
        "remove": [],
        "purge": [],
        "put_back": [],
        "install": [],
        "runfile": None,
        "build": [],
        "register": None,
        "hold": [],
        "unhold": [],
        # The record's holds of an adopted driver, before and after they are set.
        "holds": None,
        "files": [],
        "initramfs": [],
        "reload_udev": False,
        "services": [],
        "modules": {"load": [], "unload": [], "services": []},
    }


def _unknown_branch(result: dict) -> str:
    if result["branch"] in result["branches"]:
        return ""
    return (
        f" Branch {result['branch']} is not a known branch of source {result['source']} (known: "
        f"{', '.join(result['branches'])})."
    )


def _steps(todo: dict) -> dict[str, bool]:
    names = (
        "install",
        "repair",
        "purge",
        "repository",
        "remove_files",
        "remove_packages",
        "components",
        "prerequisites",
        "stream",
    )
    return {
        "packages": any(bool(todo[name]) for name in names),
        "finish": todo["finish"] and not any(bool(todo[name]) for name in names),
        "runfile": bool(todo["runfile"]),
        "build": bool(todo["build"]),
        "hold": bool(todo["hold"] or todo["unhold"] or todo["holds"]),
        "files": bool(todo["files"] or todo["initramfs"]),
        "modules": bool(todo["modules"]["load"] or todo["modules"]["unload"]),
        "services": bool(todo["services"]),
    }


# --- alternatives -------------------------------------------------------------------------------------------------
# A branch may be suitable by its number while the repositories have only older versions of it, and prebuilt modules may
# be missing for a kernel. One query covers the packages of all alternatives.


def _other_branches(host: dict, request: dict, platform: dict | None, result: dict) -> list[dict]:
    """Return the resolutions for the alternative branches, in order."""
    order = [result["branch"], *result["alternative_branches"]]
    found = [resolver.resolve(host, request, platform, order[:count]) for count in range(1, len(order))]
    return [other for other in found if not other["errors"]]


def _first_available_branch(host: dict, request: dict, platform: dict | None, result: dict, available: dict) -> dict:
    """Return the resolution for the first branch with an available version that satisfies the minimum.

    If that version is incomplete, the refusal is about this branch; without any version, about the first branch.
    """
    if not result["alternative_branches"]:
        return result
    for other in (result, *_other_branches(host, request, platform, result)):
        needed = [name for name in other["lockstep"] if name not in other["optional"]]
        if driver_version.is_available(available, needed, other["branch"], request):
            return other
    return result


def _dkms_without_prebuilt(host: dict, request: dict, platform: dict | None, result: dict, available: dict) -> dict:
    """Return a resolution with DKMS if the repositories lack the next kernel's prebuilt modules."""
    missing = ", ".join(kernel_packages.unavailable_prebuilt(host, result, available))
    if not missing:
        return result
    other = _with_dkms(host, request, platform, result)
    other["reasons"].append(f"dkms modules: the repositories have no {missing}")
    other["errors"] = [
        f"The repositories have no {missing}, so DKMS would build it. {item}" for item in other["errors"]
    ]
    return other


def _with_dkms(host: dict, request: dict, platform: dict | None, result: dict) -> dict:
    return resolver.resolve(host, {**request, "module_build": "dkms"}, platform, result["rejected_branches"])


def _query_alternatives(host: dict, request: dict, platform: dict | None, result: dict, todo: dict) -> None:
    """Add the packages of all alternatives to the query."""
    others = _other_branches(host, request, platform, result)
    names = [name for other in others for name in package_plan.to_query(other)]
    for first in (result, *others):
        if first["prebuilt"]:
            built = _with_dkms(host, request, platform, first)
            names += [] if built["errors"] else [*built["packages"], *built["kernel_packages"]]
    todo["query"] = sorted({*todo["query"], *names})


# --- the rest -----------------------------------------------------------------------------------------------------


def _modules(host: dict, result: dict, todo: dict) -> dict:
    modules = activation.modules(host, bool(todo["install"] or todo["build"] or todo["runfile"]))
    others = [name for name in result["modules"] if name not in host["modules_loaded"]]
    if others and (modules["load"] or host["driver"]["loaded"]):
        modules["load"] = [*others, *modules["load"]]
    return modules


def _summary(result: dict, todo: dict) -> list[str]:
    version = f" {result['version']}" if result["version"] else ""
    modules = todo["modules"]
    parts = (
        ("complete the interrupted package installation", todo["repair"]),
        ("record what an interrupted run installed", todo["finish"]),
        ("remove {}", todo["remove_files"] + todo["remove_packages"]),
        ("add the repository {}", [todo["repository"]["url"]] if todo["repository"] else []),
        ("enable the components {} in the archive's source entries", todo["components"]),
        ("install {}", todo["prerequisites"]),
        ("enable the module stream {}", [todo["stream"]["name"]] if todo["stream"] else []),
        ("remove {}, which the driver's packages replace", todo["remove"]),
        (f"install the driver{version}: {{}}", todo["install"]),
        ("purge {}, whose files direct modprobe to other modules", todo["purge"]),
        ("run the installer {}", [todo["runfile"]["url"]] if todo["runfile"] else []),
        ("build the kernel modules for {}", todo["build"]),
        ("hold {}", todo["hold"]),
        ("release the hold on {}", todo["unhold"]),
        ("record the holds of this role", bool(todo["holds"])),
        ("write {}", [file["path"] for file in todo["files"] if file["state"] == "present"]),
        ("remove {}", [file["path"] for file in todo["files"] if file["state"] == "absent"]),
        ("reload udev rules", todo["reload_udev"]),
        ("rebuild the initramfs of {}", [argv[-1] for argv in todo["initramfs"]]),
        ("stop {} during the reload", modules["services"]),
        ("unload {}", modules["unload"]),
        ("load {}", modules["load"]),
        ("enable and start {}", todo["services"]),
    )
    return [text.format(", ".join(names) if isinstance(names, list) else "") for text, names in parts if names]
