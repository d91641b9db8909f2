# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the actions that give a host the driver that `resolver` chose.

A plan is data. It is empty for a converged host, and check mode shows it without executing it.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.capitalized import capitalized
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key, upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import (
    adoption,
    config_files,
    lxc_guest_driver,
    package_plan,
    resolver,
    runfile,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import package_membership as driver_membership
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import variables as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import version as driver_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import (
    kernel_module_loading,
    kernel_packages,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import (
    DriverPlan,
    DriverTodo,
    NoModule,
    NoVersion,
    Offers,
    Resolution,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def plan(
    host: Host,
    values: Mapping[str, Any],
    platform: dict | None,
    available: dict | None = None,
    streams: dict | None = None,
    *,
    dependencies: Mapping[str, Mapping[str, str]] | None = None,
    rejected_sources: Mapping[str, str] | None = None,
) -> DriverPlan:
    """Return the plan for the values of the role's variables. If there is no driver for the host, `errors` says why.

    If the repositories of a source that nobody asked for have no suitable version, the plan is for the next source, and
    its `rejected_sources` differ from those given. It needs a query of its own.

    `available` maps package names to the versions that the repositories offer, `streams` dnf modules to their streams,
    `dependencies` packages to the dependencies of their versions. The driver's version is unknown without them.
    """
    try:
        request = driver_request.read(values)
    except VariableError as error:
        # Also on hosts without a GPU, so that errors show before the first change on any host.
        return DriverPlan(errors=[str(error)])
    result = resolver.resolve(host, request, platform, rejected_sources=rejected_sources)
    if lxc_guest_driver.is_guest(host):
        request, platform = lxc_guest_driver.pinned(host, request), lxc_guest_driver.user_space(platform)
    offers = None
    if available is not None:
        offers = Offers(package_plan.with_versions(host, available), streams, dependencies or {})
    if offers is not None and not result.errors:
        result = _first_available_branch(host, request, platform, result, offers)
        enables = bool(package_plan.enabling_driver(host, result, offers))
        other = None if enables else _next_source(host, values, request, platform, result=result, offers=offers)
        # The refusal for the next source says how to get signed modules, too.
        if other and (not other.errors or result.only_prebuilt):
            return other
        if request.module_build == "auto" and not enables:
            result = _dkms_without_prebuilt(host, request, platform, result, offers)
    todo = DriverTodo()
    if not result.errors and result.action != "none":
        result = _last(host, result, _plan_todo(host, request, platform, resolved=result, todo=todo, offers=offers))
    done = _steps(host, result, todo)
    if done and host["uid"] != 0 and not result.errors:
        result = result.refused(needs_root(host["uid"]))
    return DriverPlan(**vars(result), todo=todo, steps=done, applies=_applies(todo), acts=bool(done))


def _last(host: Host, result: Resolution, plans: Iterator[Resolution]) -> Resolution:
    """Return the last of the resolutions, or the last one before a refusal, with its error."""
    try:
        for one in plans:
            result = one
    except NoVersion as error:
        release = kernel_packages.how_to_release(host) if isinstance(error, NoModule) else ""
        return result.refused(f"{error}{release}{_unknown_branch(result)}{_tried(result)}")
    return result


def _next_source(
    host: Host,
    values: Mapping[str, Any],
    request: DriverRequest,
    platform: dict | None,
    *,
    result: Resolution,
    offers: Offers,
) -> DriverPlan | None:
    """Return the plan for the next source if the repositories of this one, which nobody asked for, lack the driver."""
    may_reject = request.source == "auto" and bool(result.other_sources) and not result.removal
    if not may_reject or not _lacks_version(host, request, result, offers):
        return None
    return plan(host, values, platform, rejected_sources=_rejected(host, request, result, offers))


def _plan_todo(
    host: Host,
    request: DriverRequest,
    platform: dict | None,
    *,
    resolved: Resolution,
    todo: DriverTodo,
    offers: Offers | None,
) -> Iterator[Resolution]:
    """Plan what gives the host the driver: packages or the installer, files, modules and services.

    Yield the resolution with what each step decides, such as the version.
    """
    result = resolved
    if result.action == "install":
        for step in package_plan.plan_packages(host, request, resolved, todo, offers):
            result = step
            yield step
        package_plan.plan_repositories(host, request, result, todo, offers.streams if offers else None)
        if result.source == "runfile":
            result = runfile.plan(host, request, result, todo)
        elif offers is None and todo.query:
            _query_alternatives(host, request, platform, result, todo)
        result = package_plan.plan_holds(host, request, result, todo)
    else:
        result = adoption.hold(host, request, result, todo, platform)
    todo.services = [unit for unit in result.services if not adoption.is_running(host, unit)]
    result = config_files.plan(host, request, result, todo)
    todo.keep = lxc_guest_driver.KEEP if lxc_guest_driver.is_guest(host) else []
    if request.activate:
        todo.modules = _modules(host, result, todo)
    todo.unfinished = _is_unfinished(host, result)
    todo.runfile_record = None if todo.runfile else runfile.outdated_record(host)
    yield result


def _unknown_branch(result: Resolution) -> str:
    if result.branch in result.branches or result.successor:
        return ""
    return (
        f" Branch {result.branch} is not a known branch of source {result.source} (known: "
        f"{', '.join(result.branches)})."
    )


def _tried(result: Resolution) -> str:
    return "".join(f" Source {source} was tried first: {why}." for source, why in result.rejected_sources.items())


def _is_unfinished(host: Host, result: Resolution) -> bool:
    """Return whether an interrupted run left packages to complete or to record."""
    state = host["package_state"]
    incomplete = result.action == "install" and (state["interrupted"] or state["unfinished"])
    return bool(incomplete) or record_of_role.is_unfinished(host, record_of_role.DRIVER)


def _applies(todo: DriverTodo) -> dict[str, bool]:
    """Return which files of the role's tasks have something to do."""
    return {
        "packages": bool(todo.unfinished or todo.prerequisites or any(vars(todo.transaction).values())),
        "runfile": bool(todo.runfile),
        "runfile_record": todo.runfile_record is not None,
        "build": bool(todo.build),
        "files": bool(todo.files or todo.initramfs),
        "modules": bool(todo.modules["load"] or todo.modules["unload"]),
        "services": bool(todo.services),
    }


# --- alternatives -------------------------------------------------------------------------------------------------
# A branch may be suitable by its number while the repositories have only older versions of it, and prebuilt modules may
# be missing for a kernel. One query covers the packages of all alternatives.


def _other_branches(host: Host, request: DriverRequest, platform: dict | None, result: Resolution) -> list[Resolution]:
    """Return the resolutions for the alternative branches, in order."""
    order, sources = [result.branch, *result.alternative_branches], result.rejected_sources
    found = [resolver.resolve(host, request, platform, order[:count], sources) for count in range(1, len(order))]
    return [other for other in found if not other.errors]


def _first_available_branch(
    host: Host, request: DriverRequest, platform: dict | None, result: Resolution, offers: Offers
) -> Resolution:
    """Return the resolution for the first branch with an available version that satisfies the minimum.

    If that version is incomplete, the error names its branch. Without any version, it names the first branch.
    """
    if not result.alternative_branches:
        return result
    for other in (result, *_other_branches(host, request, platform, result)):
        if _is_offered(host, request, other, offers):
            return other
    return result


def _is_offered(host: Host, request: DriverRequest, result: Resolution, offers: Offers) -> bool:
    """Return whether the repositories have a version of the resolved branch that satisfies the request.

    If nothing else can replace prebuilt modules, these decide.
    """
    if result.only_prebuilt:
        complete = _complete_versions(host, result, offers)
        return any(driver_version.satisfies(v, result.branch, request, result.first_version) for v in complete)
    needed = [name for name in result.lockstep if name not in result.optional]
    versions = offers.versions
    return not needed or driver_version.is_available(versions, needed, result.branch, request, result.first_version)


def _lacks_version(host: Host, request: DriverRequest, result: Resolution, offers: Offers) -> bool:
    """Return whether the repositories have the driver, but no suitable version. Without any, they are incomplete.

    The host may not have the repositories with a vendor's prebuilt modules.
    """
    patterns, available = [*result.lockstep, *result.name_patterns], offers.versions
    has_driver = any(fnmatch.fnmatchcase(name, item) for name in available if available[name] for item in patterns)
    return (has_driver or result.only_prebuilt) and not _is_offered(host, request, result, offers)


def _user_space(result: Resolution) -> list[str]:
    return [name for name in result.lockstep if name not in (*result.optional, *result.prebuilt)]


def _complete_versions(host: Host, result: Resolution, offers: Offers) -> set[str]:
    """Return the driver versions with prebuilt modules for the next kernel and all packages of the user space."""
    modules = kernel_packages.driver_versions(host, result, offers) or set()
    return modules.intersection(
        *({upstream_version(version) for version in offers.versions.get(name) or []} for name in _user_space(result))
    )


def _rejected(host: Host, request: DriverRequest, result: Resolution, offers: Offers) -> dict[str, str]:
    branches = ", ".join(name for name in [result.branch, *result.alternative_branches] if name)
    why = f"its repositories have no suitable version of branch {branches}"
    if result.only_prebuilt:
        why = _why_not_prebuilt(host, request, result, offers)
    return {**result.rejected_sources, str(result.source): why}


def _why_not_prebuilt(host: Host, request: DriverRequest, result: Resolution, offers: Offers) -> str:
    """Return why a source without DKMS cannot serve the host, and what to do to use it."""
    upcoming = host["kernel"]["next_boot"]
    modules = ", ".join(kernel_packages.packages_for(result, upcoming))
    missing = [name for name in _user_space(result) if not offers.versions.get(name)]
    complete = sorted(_complete_versions(host, result, offers), key=natural_key)
    if missing and kernel_packages.driver_versions(host, result, offers):
        return (
            f"the repositories have no {', '.join(missing)}, which this host needs; to use the prebuilt modules, "
            "enable a repository that has these packages"
        )
    if complete:
        return (
            f"the repositories have {modules} for kernel {upcoming}, which boots next, only for driver "
            f"{', '.join(complete)}; to use these modules, {_how_to_request(request, complete[-1])}"
        )
    return (
        f"the repositories have no {modules} for kernel {upcoming}, which boots next, together with a driver of the "
        f"same version; to use these modules, {result.prebuilt_hint}"
    )


def _how_to_request(request: DriverRequest, version: str) -> str:
    """Return which setting to change to get a version that the request excludes."""
    minimum = request.minimum_version
    if request.version:
        return f"set nvidia_driver_version to {version}"
    if minimum and natural_key(version) < natural_key(upstream_version(minimum)):
        return f"set nvidia_driver_minimum_version to {version} or lower"
    return f"set nvidia_driver_branch to {version.partition('.')[0]}"


def _dkms_without_prebuilt(
    host: Host, request: DriverRequest, platform: dict | None, result: Resolution, offers: Offers
) -> Resolution:
    """Return a resolution with DKMS if the repositories lack usable prebuilt modules for the next kernel."""
    why = package_plan.no_prebuilt(host, request, result, offers)
    if why is None:
        return result
    other = _with_dkms(host, request, platform, result).but(f"dkms modules: {why}")
    if other.module_build is None:
        return result.refused(
            f"{capitalized(why)}, and source {result.source} has no {result.flavor} modules of branch {result.branch} "
            f"for DKMS. {capitalized(result.prebuilt_hint)}, or request another branch."
        )
    errors = [
        f"Prebuilt modules cannot be used: {why}. DKMS cannot build modules, either: {item} To get usable prebuilt "
        f"modules, {result.prebuilt_hint}.{kernel_packages.how_to_release(host)}"
        for item in other.errors
    ]
    return other.but(errors=errors)


def _with_dkms(host: Host, request: DriverRequest, platform: dict | None, result: Resolution) -> Resolution:
    request = dataclasses.replace(request, module_build="dkms")
    return resolver.resolve(host, request, platform, result.rejected_branches, result.rejected_sources)


def _query_alternatives(
    host: Host, request: DriverRequest, platform: dict | None, result: Resolution, todo: DriverTodo
) -> None:
    """Add the packages of all alternatives to the query."""
    others = _other_branches(host, request, platform, result)
    names = [name for other in others for name in package_plan.to_query(other)]
    for first in (result, *others):
        if first.prebuilt:
            built = _with_dkms(host, request, platform, first)
            names += [] if built.errors else [*built.packages, *built.kernel_packages]
    todo.query = package_plan.names_to_query(host, [*todo.query, *names])
    modules = [name for other in (result, *others) for name in kernel_packages.queried(other)]
    todo.query_dependencies = sorted({*todo.query_dependencies, *modules})


# --- the rest -----------------------------------------------------------------------------------------------------


def _modules(host: Host, result: Resolution, todo: DriverTodo) -> dict:
    modules = kernel_module_loading.modules(host, bool(todo.transaction.install or todo.build or todo.runfile))
    others = [name for name in result.modules if name not in host["modules_loaded"]]
    if others and (modules["load"] or nvidia_driver(host)["loaded"]):
        modules["load"] = [*others, *modules["load"]]
    return modules


def _steps(host: Host, result: Resolution, todo: DriverTodo) -> list[Step]:
    """Return the steps in their order."""
    version = f" {result.version}" if result.version else ""
    modules, work = todo.modules, todo.transaction
    files = [*work.files, *todo.files]
    written, removed = ([file["path"] for file in files if file["state"] == state] for state in ("present", "absent"))
    left, installer = "complete and record what an interrupted run installed", "run the installer {}"
    components = "enable the components {} in the archive's source entries"
    begun = [steps.own("installer", "record what an interrupted installer left")]
    found = [
        *([steps.own(steps.PACKAGES, left)] if todo.unfinished else []),
        *steps.listed("repository", "add the repository {}", [repository["url"] for repository in work.repositories]),
        *steps.listed("repository", components, work.archive_components),
        *steps.listed(steps.PACKAGES, "install {}", todo.prerequisites, item=steps.PACKAGE),
        *steps.listed("repository", "enable the module stream {}", work.module_streams),
        *steps.listed(steps.PACKAGES, "remove {}", work.remove),
        *steps.listed(steps.PACKAGES, f"install the driver{version}: {{}}", work.install, item=steps.PACKAGE),
        *steps.listed(steps.PACKAGES, "purge {}", work.purge),
        *_holds(host, result, todo),
        *steps.listed(steps.HOLD, "release the hold on {}", work.release),
        *steps.listed("installer", installer, [todo.runfile["url"]] if todo.runfile else []),
        *(begun if todo.runfile_record is not None else []),
        *steps.listed(steps.BUILD, "build the kernel modules for {}", todo.build, item=steps.BUILD),
        *steps.listed(steps.FILE, "write {}", written, item=steps.FILE),
        *steps.listed(steps.FILE, "remove {}", removed),
        *([steps.own("udev", "reload udev rules")] if todo.reload_udev else []),
        *steps.listed("initramfs", "rebuild the initramfs of {}", [argv[-1] for argv in todo.initramfs]),
        *steps.listed(steps.SERVICE, "stop {} during the reload", modules["services"]),
        *steps.listed(steps.MODULE, "unload {}", modules["unload"]),
        *steps.listed(steps.MODULE, "load {}", modules["load"], item=steps.MODULE),
        *steps.listed(steps.SERVICE, "enable and start {}", todo.services, item=steps.SERVICE),
    ]
    # A transaction can change only the record, such as which repositories the role needs.
    return found or ([steps.own(steps.PACKAGES, "update the record")] if any(_applies(todo).values()) else [])


def _holds(host: Host, result: Resolution, todo: DriverTodo) -> list[Step]:
    """Return the step that holds packages. A selector among them stands for the dependencies of the driver."""
    found = steps.listed(steps.HOLD, "hold {}", _new_holds(host, result, todo))
    return [dataclasses.replace(step, keeps=steps.kept(steps.HOLD, todo.transaction.hold)) for step in found]


def _new_holds(host: Host, result: Resolution, todo: DriverTodo) -> list[str]:
    """Name the packages that are not held yet. The transaction gets all packages, and a selector of dependencies."""
    work, held = todo.transaction, host["held_packages"]
    coming = [name for name in (item.partition("=")[0] for item in work.install) if name in result.lockstep]
    names = [name for name in work.hold if not name.startswith("~")]
    dependencies = ["new dependencies"] if coming and len(names) < len(work.hold) else []
    if len(names) < len(work.hold):
        names += [name for name in driver_membership.of_resolution(host, result) if name not in names]
    # A lock on a version does not hold another version.
    return [*(name for name in names if name in coming or name not in held), *dependencies]
