# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans what the package manager does for the resolved driver: repositories, prerequisites, packages, holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import natural_key, upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import kernel_packages as driver_kernel_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import membership as driver_membership
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import version as driver_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.request import Request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.types import NoVersion, Resolution, Todo
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import locks as packages_locks
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.installed import is_installed

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host

# --- repositories -------------------------------------------------------------------------------------------------


def plan_repositories(host: Host, result: Resolution, todo: Todo, streams: dict | None) -> None:
    """Plan changes to the package manager's repositories. A host with all packages needs none."""
    _plan_entries(host, result, todo)
    if todo.query:
        todo.preview = _preview(host, result, todo)
    if todo.stream and streams is not None:
        driver_version.check_stream(todo.stream["name"], streams, result.repository["url"])


def _preview(host: Host, result: Resolution, todo: Todo) -> dict:
    """Describe the repositories as the plan will change them, for a query before the change."""
    repository = todo.repository
    without = [*todo.remove_files, *(nvidia_repository.replaced_files(repository) if repository else [])]
    if result.source == "distribution":
        # NVIDIA's repository, added for a CUDA toolkit, has packages with Debian's names up to branch 555.
        without += nvidia_repository.apt_files(host)
    return {
        "repository": nvidia_repository.to_query(repository) if repository else None,
        "components": todo.components,
        "without": without,
        # Alternative branches are in other streams of the module.
        "modules": [result.stream.partition(":")[0]]
        if todo.stream or (result.stream and result.alternative_branches)
        else [],
    }


def _plan_entries(host: Host, result: Resolution, todo: Todo) -> None:
    apt, repository = host["apt"], result.repository
    if todo.query:
        components = result.components
        todo.components = [name for name in components if apt is not None and name in apt["missing_components"]]
        module, _colon, stream = (result.stream or "").partition(":")
        enabled = host["module_streams"].get(module)
        if stream and enabled != stream:
            before = f"{module}:{enabled}" if enabled else None
            todo.stream = {"module": module, "name": result.stream, "before": before}
    if repository is None:
        return
    kept = nvidia_repository.entries_of(host, repository)
    if (todo.query and not kept) or nvidia_repository.is_outdated(host, repository, packages_record.DRIVER):
        todo.repository = repository
    if not todo.query:
        return
    clash = nvidia_repository.clash(host, repository)
    if clash:
        raise NoVersion(clash)
    todo.remove_files, todo.remove_packages = nvidia_repository.superseded(host, repository)


# --- packages -----------------------------------------------------------------------------------------------------


def plan_packages(host: Host, request: Request, result: Resolution, todo: Todo, available: dict | None) -> None:
    """Plan which packages to remove, install and lock. `available` has the versions on offer once they are known."""
    # apt-get completes unfinished installations itself, but does not start while dpkg's journal is incomplete.
    todo.repair = bool(host["package_state"]["interrupted"])
    installed = host["packages"]
    # An interrupted run, or one whose modules failed to build, has not purged them.
    todo.purge = result.leftover_config
    driver_kernel_packages.skip_outgoing_kernel(host, result)
    needed = [*result.kernel_packages, *result.packages]
    missing = [name for name in needed if not is_installed(host, name)]
    have = {name: upstream_version(installed[name]["version"]) for name in result.lockstep if name in installed}
    moves = [name for name, version in have.items() if not driver_version.satisfies(version, result.branch, request)]
    if not missing and not moves and len(set(have.values())) <= 1:
        todo.repair = bool(todo.repair or host["package_state"]["unfinished"])
        todo.build = _kernels_to_build(host, result)
        result.version = result.version or next(iter(have.values()), None)
        # rpm runs the scripts of the removed package last, and they remove the same sources from DKMS.
        registered = [entry["version"] for entry in host["dkms"]]
        if todo.build and result.source == "nvidia" and result.version not in registered:
            todo.register = f"nvidia/{result.version}"
        return
    todo.query = sorted({*to_query(result), *result.name_patterns, *_prerequisites_to_query(host, result)})
    todo.prerequisites = _prerequisites(host, result, available)
    todo.remove = result.replaced
    # Files of removed module packages in /etc still direct modprobe to them. Other packages' files may be the user's.
    if host["os"]["package_manager"] == "apt":
        todo.purge = sorted({*todo.purge, *result.replaced_modules})
    todo.put_back = [f"{name}-{installed[name]['version']}" for name in result.replaced]
    if available is None:
        # The version is unknown until the repositories have been queried.
        todo.install = missing or moves
        return
    driver_kernel_packages.skip_unavailable(host, result, available)
    wanted = [*result.kernel_packages, *result.packages]
    wanted += [name for name in result.optional if available.get(name)]
    lockstep = [name for name in result.lockstep if name in wanted]
    required = [name for name in lockstep if name not in result.optional]
    if required:
        search = _search(request, result)
        version = driver_version.choose_version(available, required, search, set(have.values()))
    else:
        # NVIDIA's installer provides the requested version; the packages only build its modules.
        version = upstream_version(str(result.version))
    result.version = version
    full = {name: driver_version.newest_build(available, name, version) for name in lockstep}
    changing = [name for name in lockstep if have.get(name) != version and full[name]]
    is_update = any(name in installed for name in changing)
    joint = "-" if host["os"]["package_manager"] == "dnf" else "="
    todo.install = [name for name in wanted if name not in lockstep and not is_installed(host, name)]
    todo.install += [f"{name}{joint}{full[name]}" for name in changing]
    todo.lock = [f"{name}{joint}{full[name]}" for name in changing] if request.hold else []
    todo.unlock = [f"{name}-{installed[name]['version'].rpartition(':')[2]}" for name in changing if name in installed]
    kernel_packages = driver_kernel_packages.missing_metas(host, result, available)
    offered = [upstream_version(entry) for name in lockstep for entry in available[name]]
    if is_update and version == max(offered, key=natural_key):
        kernel_packages.update(driver_kernel_packages.rebuilt(host, result, available))
    todo.install += [f"{name}{joint}{full_version}" for name, full_version in kernel_packages.items()]
    if is_update or result.removable:
        # Only the driver's own packages may change or lose their holds.
        own = driver_membership.changeable(host, result)
        todo.release = sorted(name for name in own if installed[name]["held"])
        todo.may_go = sorted(own) if result.removable else []
    _check_build(request, result, todo, version)
    result.downgrade = any(natural_key(version) < natural_key(old) for old in have.values())


def to_query(result: Resolution) -> list[str]:
    """Name the packages whose available versions the plan needs."""
    meta_names = driver_kernel_packages.meta_names(result)
    return [*result.packages, *result.optional, *result.kernel_packages, *meta_names]


def _search(request: Request, result: Resolution) -> driver_version.Search:
    repository = result.repository
    place, remedy = (
        (f"the repository {repository['url']}", "the repository (nvidia_driver_mirror) is complete")
        if repository
        else ("the archive of this host's package sources", "these sources contain the complete archive")
    )
    return driver_version.Search(
        request,
        result.branch,
        place,
        remedy,
        result.name_patterns,
        result.common_packages,
        result.other_sources,
    )


def _check_build(request: Request, result: Resolution, todo: Todo, version: str) -> None:
    """Refuse modules that are known not to build, before any package changes."""
    limit = result.build_limit
    if limit is None or not todo.install or natural_key(version) > natural_key(limit["until_version"]):
        return
    # If the request does not set the flavor, the hardware requires it.
    other = "set nvidia_driver_flavor to auto, " if request.flavor == limit["flavor"] else ""
    raise NoVersion(
        f"The {limit['flavor']} kernel modules of driver {version} do not build: {limit['reason']}, and this host "
        f"has {', '.join(limit['kernels'])}. Set nvidia_driver_source to nvidia, {other}or boot an older kernel."
    )


def _kernels_to_build(host: Host, result: Resolution) -> list[str]:
    """Name the kernels that lack the module and for which DKMS can build it."""
    if result.module_build != "dkms":
        return []
    wanted = (host["kernel"]["next_boot"], host["kernel"]["running"])
    return [
        entry["release"]
        for entry in host["kernel"]["kernels"]
        if entry["release"] in wanted and entry["headers"] and not entry["nvidia_module"]
    ]


# --- prerequisites: packages that enable a repository, and the plugin that sets locks -----------------------------


def _prerequisites_to_query(host: Host, result: Resolution) -> list[str]:
    return _repository_packages(host, result) if _needed_from_repository(host, result) else []


def _prerequisites(host: Host, result: Resolution, available: dict | None) -> list[str]:
    """Name the packages to install first. Refuse if no repository has the packages that they make available.

    A mirror of the repository under another name makes those packages available, too.
    """
    enabling, needed = _repository_packages(host, result), _needed_from_repository(host, result)
    offered = available or {}
    absent = [name for name in result.prerequisites if not is_installed(host, name)]
    if not result.prerequisites_bring:
        return absent
    if all(offered.get(name) for name in needed):
        return [name for name in absent if name not in enabling]
    # A package that was not queried may still be available.
    unavailable = [name for name in needed if offered.get(name) == []]
    if unavailable and all(offered.get(name) == [] for name in enabling):
        raise NoVersion(_no_repository(unavailable, enabling, result))
    return absent


def _repository_packages(host: Host, result: Resolution) -> list[str]:
    names = [name for name in result.prerequisites if name not in result.hold_needs]
    return [name for name in names if not is_installed(host, name)]


def _needed_from_repository(host: Host, result: Resolution) -> list[str]:
    return [name for name in result.prerequisites_bring if name in result.packages and not is_installed(host, name)]


def _no_repository(unavailable: list[str], enabling: list[str], result: Resolution) -> str:
    installed = [name for name in result.prerequisites if name not in (*enabling, *result.hold_needs)]
    also = (
        f"; no repository has {', '.join(enabling)} either"
        if enabling
        else f", although {', '.join(installed)} is installed"
    )
    return (
        f"No enabled repository of this host has {', '.join(unavailable)}, which builds the driver's modules{also}. "
        f"{result.prerequisites_hint or 'Enable the repository that has it.'}"
    )


# --- holds --------------------------------------------------------------------------------------------------------


def plan_holds(host: Host, request: Request, result: Resolution, todo: Todo) -> None:
    """Plan which packages of the installed driver to hold or to release."""
    if host["os"]["package_manager"] is None or result.source == "runfile":
        return
    members = driver_membership.of_resolution(host, result)
    if request.hold:
        todo.hold = [name for name in members if not host["packages"][name]["held"]]
        todo.hold += [name for name in result.lockstep if name not in result.optional and not is_installed(host, name)]
        # If all packages are installed, plan_packages has not planned the plugin that holds need.
        if todo.hold and not todo.query:
            todo.prerequisites = [name for name in result.hold_needs if not is_installed(host, name)]
    else:
        held = [name for name in members if host["packages"][name]["held"]]
        state = {"held": held, "held_patterns": host["package_state"]["held_patterns"]}
        todo.unhold = sorted(packages_locks.releasable(held, state))
    todo.unhold += driver_membership.stale_locks(host, result.patterns.get("hold"))
