# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans what the package manager does for the resolved driver: repositories, prerequisites, packages, holds."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.capitalized import capitalized
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key, upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import package_choice, runfile, source_change_advice
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import package_membership as driver_membership
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import version as driver_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import dkms_commands as driver_dkms
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import (
    kernel_packages as driver_kernel_packages,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import (
    DriverTodo,
    NoModule,
    NoVersion,
    Offers,
    Resolution,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.installed_packages import is_installed
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository, record_of_role

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

_ARCHES = ("x86_64", "aarch64")
# name-[epoch:]version-release.arch
_WITH_VERSION = re.compile(rf"(.+?)-((?:\d+:)?\d[^-]*-\d[^-]*)\.(?:{'|'.join(_ARCHES)})")

# --- repositories -------------------------------------------------------------------------------------------------


def plan_repositories(
    host: Host, request: DriverRequest, result: Resolution, todo: DriverTodo, streams: dict | None
) -> None:
    """Plan changes to the package manager's repositories. A host with all packages needs none."""
    work, apt, repository = todo.transaction, host["apt"], result.repository
    removed: list[str] = []
    if todo.query:
        missing = apt["missing_components"] if apt is not None else []
        work.archive_components = [name for name in result.components if name in missing]
        _plan_stream(host, result, todo, streams)
        if result.source == "distribution":
            # NVIDIA's repository, added for a CUDA toolkit, has packages with Debian's names up to branch 555.
            todo.query_files = [_absent(path) for path in nvidia_repository.apt_files(host)]
    if repository is None:
        return
    kept = nvidia_repository.entries_of(host, repository)
    # Without a mirror, an entry with another URL may be that of a former mirror or of role cuda_toolkit.
    is_used = nvidia_repository.is_used_by(host, record_of_role.DRIVER)
    moves = bool(request.mirror) and is_used and not kept and nvidia_repository.is_moved(host, repository)
    outdated = nvidia_repository.is_outdated(host, repository, record_of_role.DRIVER)
    adds = (todo.query and not kept) or moves or outdated
    if todo.query:
        clash = nvidia_repository.clash(host, repository)
        if clash:
            raise NoVersion(clash)
        removed, packages = nvidia_repository.superseded(host, repository)
        work.purge = sorted({*work.purge, *packages})
    if adds:
        work.repositories = [nvidia_repository.definition(repository)]
    work.files = [_absent(path) for path in removed]
    if adds or (work.install and nvidia_repository.is_ours(host, repository)):
        work.uses_repositories = [owned.REPOSITORY_ID]


def _absent(path: str) -> dict[str, str]:
    return {"path": path, "state": "absent", "content": "", "mode": "0644"}


def _plan_stream(host: Host, result: Resolution, todo: DriverTodo, streams: dict | None) -> None:
    module, _colon, stream = (result.stream or "").partition(":")
    if not result.stream:
        return
    if result.repository is None:
        # A repository other than NVIDIA's may have no streams.
        todo.query_streams = [module]
        if stream not in (streams or {}).get(module, []):
            return
    if host["module_streams"].get(module) != stream:
        todo.transaction.module_streams = [result.stream]
        if streams is not None and result.repository:
            driver_version.check_stream(
                result.stream, streams, result.repository["url"], source_change_advice.advice(result)
            )
    # Alternative branches are in other streams of the module.
    if todo.transaction.module_streams or result.alternative_branches:
        todo.query_streams = [module]


# --- packages -----------------------------------------------------------------------------------------------------


def plan_packages(
    host: Host, request: DriverRequest, result: Resolution, todo: DriverTodo, offers: Offers | None
) -> Iterator[Resolution]:
    """Plan which packages to remove and to install. `offers` is None before the repositories have been queried.

    Yield the resolution after each step: without packages that no repository has or needs, and with the version.
    """
    work, installed = todo.transaction, host["packages"]
    # The packages of a removed driver that an interrupted run, or one whose modules failed to build, has not purged.
    work.purge = result.leftover_config
    result = driver_kernel_packages.skip_outgoing_kernel(host, result)
    needed = [*result.kernel_packages, *result.packages]
    missing = [name for name in needed if not is_installed(host, name)]
    missing += _removed_metas(host, result)
    have = {name: upstream_version(installed[name]["version"]) for name in result.lockstep if name in installed}
    moves = [name for name, version in have.items() if not driver_version.satisfies(version, result.branch, request)]
    useless = driver_kernel_packages.mismatched(host, result, have.values())
    useless += driver_kernel_packages.without_module(host, result)
    if not missing and not moves and not useless and len(set(have.values())) <= 1:
        result = result.but(version=result.version or next(iter(have.values()), None))
        _build_only(host, result, todo)
        yield result
        return
    yield result
    _refuse_transitional(result, missing, have)
    _to_query(host, result, todo, offers)
    # Files of removed module packages in /etc still direct modprobe to them. Other packages' files may be the user's.
    if host["os"]["package_manager"] == "apt":
        work.purge = sorted({*work.purge, *result.replaced_modules})
    work.remove = [name for name in result.replaced if name not in work.purge]
    todo.plans_again = offers is not None and bool(enabling_driver(host, result, offers))
    if offers is None or todo.plans_again:
        # The version is unknown until the repositories have been queried.
        work.install = [_item(host, name) for name in missing or moves or useless]
        return
    result = driver_kernel_packages.skip_unavailable(host, result, offers.versions)
    version = _version(host, request, result, offers, have)
    result = result.but(version=version)
    yield result
    result = _items(host, result, todo, offers, have)
    yield result
    _check_build(request, result, todo, version)


def _build_only(host: Host, result: Resolution, todo: DriverTodo) -> None:
    """Plan the builds of the modules if all packages are installed."""
    todo.build = _kernels_to_build(host, result)
    # rpm runs the scripts of the removed package last, and they remove the same sources from DKMS.
    registered = [entry["version"] for entry in host["dkms"]]
    if todo.build and result.source == "nvidia" and result.version not in registered:
        todo.register = f"{package_choice.dkms_name(host, result)}/{result.version}"
    todo.build_commands = driver_dkms.commands(host, result, todo.build)


def _refuse_transitional(result: Resolution, missing: list[str], have: dict[str, str]) -> None:
    """Refuse to complete a driver with packages that install another branch."""
    if not result.successor:
        return
    changes = f"lacks {', '.join(missing)}" if missing else "is incomplete"
    raise NoVersion(
        f"The installed driver {' and '.join(sorted(set(have.values())))} {changes}, and the packages of branch "
        f"{result.branch} of source {result.source} are transitional: they install branch {result.successor}. Set "
        f"nvidia_driver_branch to {result.successor}."
    )


def _to_query(host: Host, result: Resolution, todo: DriverTodo, offers: Offers | None) -> None:
    """Plan the query of the repositories, and the prerequisites that they offer."""
    names = [*to_query(result), *result.name_patterns, *_prerequisites_to_query(host, result)]
    todo.query = names_to_query(host, names)
    todo.query_dependencies = driver_kernel_packages.queried(result)
    todo.prerequisites = _prerequisites(host, result, offers.versions if offers else None)


def _version(host: Host, request: DriverRequest, result: Resolution, offers: Offers, have: dict[str, str]) -> str:
    """Return the version of the driver, now that the offers are known."""
    lockstep = [name for name in result.lockstep if name in _wanted(result, offers.versions)]
    required = [name for name in lockstep if name not in (*result.optional, *result.prebuilt)]
    if required:
        search = _search(host, request, result, offers)
        return driver_version.choose_version(offers.versions, required, search, set(have.values()))
    # NVIDIA's installer provides the requested version; the packages only build its modules.
    return upstream_version(str(result.version))


def _items(host: Host, result: Resolution, todo: DriverTodo, offers: Offers, have: dict[str, str]) -> Resolution:
    """Plan the packages of the chosen version, and what the transaction may change for them.

    Return the resolution without modules that the repositories do not have for this version.
    """
    work, installed, available, version = todo.transaction, host["packages"], offers.versions, str(result.version)
    result = driver_kernel_packages.name_builds(host, result, version, available)
    lockstep = [name for name in result.lockstep if name in _wanted(result, available)]
    full = {name: driver_version.newest_build(available, name, version) for name in lockstep}
    changing = [name for name in lockstep if have.get(name) != version and full[name]]
    changing += driver_kernel_packages.newer_builds(host, result, full)
    is_update = any(name in installed for name in changing)
    if is_update:
        work.purge = sorted({*work.purge, *result.former_prebuilt})
    result, modules = driver_kernel_packages.select(host, result, version, offers)
    fits = functools.partial(driver_kernel_packages.fits, host, modules, offers)
    metas, why = driver_kernel_packages.missing_metas(host, result, available, fits)
    exact = {**modules, **metas}
    if modules:
        exact.update(driver_kernel_packages.newer_metas(host, result, available, fits))
    others = [name for name in _wanted(result, available) if name not in (*lockstep, *exact)]
    work.install = [_item(host, name) for name in others if not is_installed(host, name)]
    dkms = package_choice.suitable_dkms(host, result, available)
    if dkms:
        work.install = [*(item for item in work.install if item != "dkms"), f"dkms={dkms}"]
    work.install += [f"{name}={full[name]}" for name in changing]
    work.install += [f"{name}={full_version}" for name, full_version in exact.items()]
    if is_update or result.removable or any(name in installed for name in exact):
        # Only the driver's own packages may change or lose their holds.
        work.may_change = sorted(driver_membership.changeable(host, result))
        work.release = [name for name in work.may_change if installed[name]["held"]]
    return result.but(*why)


def _wanted(result: Resolution, available: dict) -> list[str]:
    optional = [name for name in result.optional if available.get(name)]
    return [*result.kernel_packages, *result.packages, *optional]


def no_prebuilt(host: Host, request: DriverRequest, result: Resolution, offers: Offers) -> str | None:
    """Return why the repositories have no usable prebuilt module for the next kernel, or None if they have one."""
    missing = driver_kernel_packages.unavailable_prebuilt(host, result, offers.versions)
    if missing:
        return f"the repositories have no {', '.join(missing)}"
    required = [name for name in result.lockstep if name not in (*result.optional, *result.prebuilt)]
    try:
        driver_version.choose_version(offers.versions, required, _search(host, request, result, offers))
    except NoModule as error:
        return error.why
    except NoVersion:
        return None
    return None


def _removed_metas(host: Host, result: Resolution) -> list[str]:
    """Name the kernel's meta packages that this role installed and that are no longer installed.

    Others are optional: the repositories may not have them for the installed kernel, and a converged host needs no
    query.
    """
    known = record_of_role.read(host, record_of_role.DRIVER)["requested"]
    names = driver_kernel_packages.meta_names(result)
    return [name for name in names if name in known and not is_installed(host, name)]


def names_to_query(host: Host, names: list[str]) -> list[str]:
    """Return the names without versions, sorted."""
    return sorted({_split(host, name)[0] for name in names})


def _split(host: Host, name: str) -> tuple[str, str]:
    """Return the name and the version of a package that rpm's package managers may name with its version."""
    found = None if host["os"]["package_manager"] == "apt" else _WITH_VERSION.fullmatch(name)
    return (found[1], found[2]) if found else (name, "")


def _item(host: Host, name: str) -> str:
    """Return a package in the form of module package_transaction."""
    return "=".join(part for part in _split(host, name) if part)


def with_versions(host: Host, available: dict) -> dict:
    """Add the names with versions, such as those of the headers for a kernel, to the available packages."""
    if host["os"]["package_manager"] == "apt":
        return available
    exact = {
        f"{name}-{version}.{arch}": [version]
        for name, versions in available.items()
        for version in versions
        for arch in _ARCHES
    }
    return driver_kernel_packages.with_patterns({**exact, **available})


def to_query(result: Resolution) -> list[str]:
    """Name the packages whose available versions the plan needs."""
    meta_names = driver_kernel_packages.meta_names(result)
    return [*result.packages, *result.optional, *result.kernel_packages, *meta_names]


def _search(host: Host, request: DriverRequest, result: Resolution, offers: Offers) -> driver_version.Search:
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
        result,
        first_version=result.first_version,
        module_versions=driver_kernel_packages.driver_versions(host, result, offers),
        kernel=host["kernel"]["next_boot"],
        prebuilt_hint=result.prebuilt_hint,
        has_dkms=not result.only_prebuilt,
    )


def _check_build(request: DriverRequest, result: Resolution, todo: DriverTodo, version: str) -> None:
    """Refuse modules that are known not to build, before any package changes."""
    limit = result.build_limit
    if limit is None or not todo.transaction.install or natural_key(version) > natural_key(limit["until_version"]):
        return
    # If the request does not set the flavor, the hardware requires it.
    other = "set nvidia_driver_flavor to auto, " if request.flavor == limit["flavor"] else ""
    raise NoVersion(
        f"The {limit['flavor']} kernel modules of driver {version} do not build: {limit['reason']}, and this host "
        f"has {', '.join(limit['kernels'])}. {capitalized(source_change_advice.advice(result, 'nvidia'))}, {other}or "
        "boot an older kernel."
    )


def _kernels_to_build(host: Host, result: Resolution) -> list[str]:
    """Name the kernels that lack the module and for which DKMS can build it."""
    if result.module_build != "dkms" or (result.source == "runfile" and not runfile.has_dkms(host, result)):
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


def enabling_driver(host: Host, result: Resolution, offers: Offers) -> list[str]:
    """Name the available packages that add the driver's repository, if no repository of the host has the driver."""
    needed = [name for name in _needed_from_repository(host, result) if name in result.lockstep]
    if not needed or any(offers.versions.get(name) for name in needed):
        return []
    return [name for name in _repository_packages(host, result) if offers.versions.get(name)]


def _repository_packages(host: Host, result: Resolution) -> list[str]:
    names = [name for name in result.prerequisites if name not in result.hold_needs]
    return [name for name in names if not is_installed(host, name)]


def _needed_from_repository(host: Host, result: Resolution) -> list[str]:
    return [name for name in result.prerequisites_bring if name in result.packages and not is_installed(host, name)]


def _no_repository(unavailable: list[str], enabling: list[str], result: Resolution) -> str:
    installed = [name for name in result.prerequisites if name not in (*enabling, *result.hold_needs)]
    also = (
        f". {', '.join(enabling)} is also unavailable"
        if enabling
        else f", although {', '.join(installed)} is installed"
    )
    what = "the driver needs" if {*unavailable} & {*result.lockstep} else "builds the driver's modules"
    return (
        f"No enabled repository provides {', '.join(unavailable)}, which {what}{also}. "
        f"{result.prerequisites_hint or 'Enable the repository that has it.'}"
    )


# --- holds --------------------------------------------------------------------------------------------------------


def plan_holds(host: Host, request: DriverRequest, result: Resolution, todo: DriverTodo) -> Resolution:
    """Plan which packages of the driver to hold or to release."""
    manager, names = host["os"]["package_manager"], result.patterns.get("hold")
    if manager is None or result.source == "runfile" or names is None:
        return result
    work = todo.transaction
    members = driver_membership.of_resolution(host, result)
    stale = driver_membership.stale_locks(host, names)
    coming = [item.partition("=")[0] for item in work.install]
    of_kernel, why = driver_kernel_packages.held_with_driver(host, result, coming) if request.hold else ([], [])
    if request.hold:
        members += [name for name in of_kernel if is_installed(host, name)]
        required = [name for name in result.lockstep if name not in (*result.optional, *result.unheld)]
        missing = [name for name in required if not is_installed(host, name)]
        lacking = missing + [name for name in members if not host["packages"][name]["held"]]
        if lacking or stale or work.install:
            kept = [name for name in result.lockstep if name in {*missing, *coming} or is_installed(host, name)]
            work.hold = sorted({*kept, *of_kernel} - {*result.unheld})
            # Their dependencies.
            work.hold += [driver_membership.selector(names, result.version)] if result.version else []
        # If all packages are installed, plan_packages has not planned the plugin that holds need.
        if lacking and not todo.query:
            todo.prerequisites = [name for name in result.hold_needs if not is_installed(host, name)]
    else:
        work.release = sorted({*work.release, *driver_membership.releasable(host, members)})
    work.release += driver_kernel_packages.former_holds(host, of_kernel)
    if stale or (work.release and manager == "dnf"):
        # dnf keeps the locks on versions that are not installed.
        work.release.append(driver_membership.selector(names))
    return result.but(*why)
