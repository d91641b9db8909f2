# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adopts a driver that this collection did not install: checks that it satisfies the request, and holds its packages.

An adopted driver's packages belong to the user, and so do existing holds. The record has the role's own holds, and the
role releases only those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import branch as driver_branch
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import fabric_manager
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import package_membership as driver_membership
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source as driver_source
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import version as driver_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import kernel_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.platform_data import applies
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import (
    Case,
    DriverTodo,
    Refused,
    Resolution,
    named,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import (
    installed_packages as packages_installed,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

_REPLACE = "or replace the driver with the tool that installed it"
_RELEASE = {"apt": "apt-mark unhold", "dnf": "dnf versionlock delete", "zypper": "zypper removelock"}


def found(case: Case) -> Case:
    """Return the case with the installed driver."""
    driver, version = nvidia_driver(case.host), driver_version.installed_version(case.host)
    flavor = driver["kernel_module_flavor"] or driver["on_disk_flavor"]
    return case.but(action="adopt", flavor=flavor, version=version, branch=version and version.partition(".")[0])


def adopt(case: Case) -> Case:
    """Keep the driver of `found`. Refuse it if it does not satisfy the request or does not support the GPUs."""
    driver = nvidia_driver(case.host)
    version, branch, flavor = case.result.version, case.result.branch, case.result.flavor
    if version is None or branch is None:
        raise Refused(
            "nvidia_driver_source is preinstalled, but the driver packages on this host contain neither the driver's "
            "library nor a kernel module. Complete the installation first, or set another source."
        )
    if driver["on_disk"] and not (driver["library"] or driver["library_path"]):
        raise Refused(
            f"The kernel modules {driver['on_disk']} are installed, but the driver's libraries are missing "
            "(libnvidia-ml.so.1). Install them with the tool that installed the modules, or remove the modules."
        )
    _check_version(case, version)
    if not driver_branch.supports_all(branch, case.window):
        gpu = case.window.first_gpu if int(branch) < case.window.first else case.window.last_gpu
        raise Refused(
            f"The installed driver {version} does not support {gpu}. Replace it with the tool that installed it."
        )
    unsupported = ""
    if flavor == "open":
        unsupported = named(case.generations, lambda generation: not generation.open_modules)
    elif flavor:
        unsupported = named(case.generations, lambda generation: not generation.proprietary_modules)
    if unsupported:
        raise Refused(
            f"The installed {flavor} kernel modules do not support {unsupported}. Replace them with the tool that "
            "installed them."
        )
    requested = case.request.flavor
    if requested != "auto" and flavor not in (None, requested):
        raise Refused(
            f"nvidia_driver_flavor is {requested}, but another tool installed the {flavor} kernel modules. Use auto, "
            f"{_REPLACE}."
        )
    _first, limits = driver_branch.limits_of(case, branch, version)
    case = fabric_manager.adopt(case.but(*limits))
    return case.but(*_ignored_settings(case), *_kernel_without_module(case, version))


def _check_version(case: Case, version: str) -> None:
    request = case.request
    installed = f"but another tool installed driver {version}"
    if request.version and upstream_version(request.version) != version:
        raise Refused(f"nvidia_driver_version is {request.version}, {installed}. Remove the setting, {_REPLACE}.")
    if request.branch and request.branch != case.result.branch:
        raise Refused(f"nvidia_driver_branch is {request.branch}, {installed}. Remove the setting, {_REPLACE}.")
    minimum = request.minimum_version
    if minimum and driver_version.older(case.host, minimum):
        raise Refused(f"nvidia_driver_minimum_version is {minimum}, {installed}. Lower the minimum, {_REPLACE}.")


def _kernel_without_module(case: Case, version: str) -> list[str]:
    host, driver = case.host, nvidia_driver(case.host)
    # A driver in a container has no module on disk.
    if driver["on_disk_next"] or driver["prefix"] or (driver["loaded"] and not driver["on_disk"]):
        return []
    packages = _packages(host, version)
    is_held = packages and (case.request.hold or any(package["held"] for package in packages))
    command = _RELEASE[str(host["os"]["package_manager"])] if is_held else ""
    return [
        f"kernel {host['kernel']['next_boot']}, which boots next, has no NVIDIA module, and the role does not change "
        f"an adopted driver. Install or build the module with {tool(host)}"
        f"{f'. If it needs a newer driver, release the holds on the driver first ({command})' if command else ''}"
    ]


def tool(host: Host) -> str:
    """Name the tool that installed a driver that this role did not install."""
    if nvidia_driver(host)["runfile"]:
        return "NVIDIA's installer"
    if _packages(host, nvidia_driver(host)["library"] or nvidia_driver(host)["on_disk"]):
        return str(host["os"]["package_manager"])
    return "the tool that installed the driver"


def _packages(host: Host, version: str | None) -> list[dict]:
    return [
        package
        for name, package in host["packages"].items()
        if driver_membership.is_part_of_driver(name, package["version"], {version})
    ]


def _ignored_settings(case: Case) -> list[str]:
    request, host = case.request, case.host
    components = [name for name in request.components if name != "compute" and not _has_component(case, name)]
    extra = [name for name in request.extra_packages if not packages_installed.is_installed(host, name)]
    has_fabric_manager = request.fabric_manager != "enabled" or fabric_manager.UNIT in case.result.services
    # IMEX does not have to run: its nodes are the user's to configure.
    has_imex = request.imex is not True or _state(host, "nvidia-imex.service").get("load_state") == "loaded"
    ignored = {
        "fabric_manager": "" if has_fabric_manager else "enabled",
        "imex": "" if has_imex else "true",
        "components": ", ".join(components),
        "extra_packages": ", ".join(extra),
    }
    return [
        f"nvidia_driver_{name} ({value}) is ignored because the existing driver is adopted unchanged. Install it with "
        "the tool that installed the driver, or remove the setting"
        for name, value in ignored.items()
        if value
    ]


def _has_component(case: Case, component: str) -> bool:
    """Return whether all packages that one of the platform's sources has for a component are installed."""
    branch = str(case.result.branch)
    context = {"branch": branch, "arch": case.host["os"]["arch"], "flavor": case.result.flavor}
    for data in ((case.platform or {}).get("sources") or {}).values():
        rules = [rule for rule in data["packages"] if rule.get("component") == component and applies(rule, context)]
        names = [rule["name"].replace("{branch}", branch) for rule in rules]
        if names and all(packages_installed.is_installed(case.host, name) for name in names):
            return True
    return False


def _state(host: Host, unit: str) -> dict:
    return host["services"].get(unit, {})


def is_running(host: Host, unit: str) -> bool:
    """Return whether a service starts at boot, and runs if the driver is loaded."""
    state = _state(host, unit)
    active = state.get("active_state") == "active" or not nvidia_driver(host)["loaded"]
    return state.get("unit_file_state") in ("enabled", "static") and active


# --- holds --------------------------------------------------------------------------------------------------------


def hold(host: Host, request: DriverRequest, result: Resolution, todo: DriverTodo, platform: dict | None) -> Resolution:
    """Plan the holds on an adopted driver's packages."""
    source = driver_source.installed(host, platform)
    members, data = driver_membership.of_version(host, result.version, platform, source)
    if nvidia_driver(host)["runfile"]:
        members = []
    # A hold on the vendor's modules for one kernel would keep out its modules of the same driver for the next kernel.
    # The holds on the libraries keep the version of the driver.
    built = driver_membership.modules_of_no_source(host, platform)
    members = [name for name in members if name not in built or not driver_membership.is_prebuilt_kmod(name)]
    if members:
        result = result.but(patterns=data["patterns"])
    of_kernel = []
    if members and request.hold:
        of_kernel, why = _of_kernel(host, result, data, [name for name in built if name not in members])
        result = result.but(*why)
    members = sorted({*members, *of_kernel})
    packages, recorded = host["packages"], recorded_holds(host)
    new = [name for name in members if request.hold and not packages[name]["held"]]
    missing = [name for name in data.get("hold_needs", []) if not packages_installed.is_installed(host, name)]
    if missing:
        # Without the plugin, existing locks have no effect, either.
        if new:
            need = ", ".join(missing)
            return result.but(
                f"the driver's packages are not held: holds require {need}, and the role installs no packages for an "
                f"adopted driver. Install {need}, or set nvidia_driver_hold to false"
            )
        return result
    own = recorded | record_of_role.installed_for_certain(host, record_of_role.DRIVER, members).intersection(members)
    released = set() if request.hold else {name for name in own if name in packages and packages[name]["held"]}
    orphaned = {driver_membership.locked_name(lock) or lock for lock in orphaned_locks(host)}
    work = todo.transaction
    work.release = sorted(released | orphaned | set(kernel_packages.former_holds(host, of_kernel)))
    # All members: the transaction releases the packages in `release` that it does not hold.
    work.hold = members if new or (request.hold and orphaned) else []
    return result


def _of_kernel(host: Host, result: Resolution, data: dict, modules: list[str]) -> tuple[list[str], list[str]]:
    """Name the kernel's meta packages to hold, and why. `modules` are the vendor's modules, which are not held."""
    why = []
    if modules:
        why.append(
            f"the kernel is not held: an upgrade may install a kernel for which {', '.join(modules)} has no module. "
            "Check this with playbook gpufleet.hosts.verify before a reboot"
        )
    names = kernel_packages.held_with_adopted(host, data, str(result.version))
    if names:
        why.append(
            f"the kernel is held together with the adopted driver ({', '.join(names)}): the prebuilt modules of a "
            "newer kernel may need a newer driver. To upgrade them, release these packages and the driver "
            "(apt-mark unhold), then run apt-get dist-upgrade. Do not use 'apt upgrade' or 'apt-get upgrade "
            "--with-new-pkgs': these commands do not remove the old driver's modules, so they would install the new "
            "kernel without its driver modules"
        )
    return names, why


def recorded_holds(host: Host) -> set[str]:
    """Name the packages of an adopted driver that this role holds, or was about to hold when it was interrupted."""
    return set(record_of_role.read(host, record_of_role.DRIVER)["holds"])


def orphaned_locks(host: Host) -> list[str]:
    """Name this role's locks on packages, or versions of packages, that are no longer installed."""
    recorded, locks = recorded_holds(host), host["package_state"]["held_patterns"]
    by_name = [lock for lock in locks if lock in recorded and not packages_installed.is_installed(host, lock)]
    stale = driver_membership.stale_locks(host, ".")
    return [*by_name, *(lock for lock in stale if driver_membership.locked_name(lock) in recorded)]
