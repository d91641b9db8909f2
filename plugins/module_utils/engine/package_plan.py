# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the packages of the container engine: their source, version, conflicts, repository and holds. Pure functions."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.capitalized import capitalized
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import (
    coexistence,
    daemon_restart,
    docker_repository,
    network_kernel_modules,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import (
    FIRST_DOCKER_WITH_CDI,
    plain_version,
    version_key,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.variables import EngineRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_group
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.installed_packages import is_installed
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    record_of_role,
    role_packages,
    role_version_choice,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.role_packages import RolePackages, RoleTransaction

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

SOURCES = ("distribution", "docker")
# The first versions that give GPUs to containers: Docker's --gpus, and CDI in Podman. Older engines are not current.
_FIRST_VERSIONS = {"docker": "19.03", "podman": "4.1", "containerd": "0"}


Versions = t.Mapping[str, list[str]]


@dataclasses.dataclass
class Found:
    """The installed engine: its package or unit, and where it comes from."""

    package: str | None
    # A source, `package NAME` or `unit PATH`. None: no engine is installed.
    origin: str | None
    version: str | None


class _NoVersion(Exception):
    """A source has no suitable version. The text is a part of a sentence."""


@dataclasses.dataclass(frozen=True)
class _Case:
    """What the plan of one host depends on."""

    host: Host
    request: EngineRequest
    # The data of the platform: `repository`, and for each engine `support`, `interpreters` and the sources.
    platform: dict[str, t.Any]
    found: Found
    versions: Versions | None

    @property
    def engine(self) -> dict[str, t.Any]:
        return self.platform.get(self.request.name) or {}

    @property
    def name(self) -> str:
        return self.host["os"]["name"]


def plan(
    host: Host, request: EngineRequest, platforms: dict[str, t.Any], found: Found, versions: Versions | None
) -> RolePackages:
    """Return the plan. `versions` has the available versions by package, or None before the query."""
    platform = platforms.get(host["os"]["key"] or "") or {}
    case, result, work = _Case(host, request, platform, found, versions), RolePackages(), RoleTransaction()
    replaces = _replaces(case, result)
    if not result.problems:
        if found.origin and not replaces:
            try:
                _adopt(case, result, work)
            except _NoVersion as error:
                result.problems.append(f"{capitalized(str(error))}. {_remedy(case, [str(result.source)])}")
        else:
            result, work = _install(case, result, work, platforms)
    if result.problems:
        return result
    if request.source != "preinstalled":
        work.install += [name for name in _support(case) if not is_installed(host, name)]
        _kernel_modules(case, result, work)
    _holds(case, result, work)
    first = _FIRST_VERSIONS["podman"]
    if request.name == "podman" and result.version and version_key(result.version) < version_key(first):
        result.reasons.append(
            f"Podman {plain_version(result.version)} does not support CDI, which requires Podman {first} or later"
        )
    if (work.install or work.remove) and request.name != "containerd" and coexistence.kubernetes(host):
        work.keep = [name for name in coexistence.RUNTIMES if is_installed(host, name) and name not in work.remove]
    work.install = list(dict.fromkeys(work.install))
    result.transaction = work if work.is_needed(host, owned.ENGINE_RECORD) else None
    return result


def without_cdi(host: Host, request: EngineRequest, platforms: dict[str, t.Any], version: str | None) -> list[str]:
    """Say that this Docker gives no GPUs to containers through CDI, and which variables change that."""
    first = FIRST_DOCKER_WITH_CDI
    if request.name != "docker" or not nvidia_group(host)["gpus"]:
        return []
    if not version or version_key(version) >= version_key(first):
        return []
    text = (
        f"Docker {plain_version(version)} does not support CDI (docker run --device nvidia.com/gpu=all), which "
        f"requires Docker {first} or later"
    )
    has_other = "docker" in ((platforms.get(host["os"]["key"] or "") or {}).get("docker") or {})
    if has_other and not coexistence.kubernetes(host):
        text += ": set container_engine_source=docker and container_engine_replace=true"
    return [text]


def source_of(package: str, engine: t.Mapping[str, t.Any]) -> str | None:
    """Return the source that has a package, or None. Only Docker's repository has docker-ce and containerd.io."""
    if package in ("docker-ce", "containerd.io"):
        return "docker"
    return "distribution" if package in (engine.get("distribution") or {}).get("packages", ()) else None


# --- an installed engine --------------------------------------------------------------------------------------------


def _replaces(case: _Case, result: RolePackages) -> bool:
    """Return whether the role replaces the installed engine. Refuse an engine of another origin without permission."""
    found, request = case.found, case.request
    if not found.origin or request.source in ("auto", "preinstalled", found.origin):
        return False
    if not found.package:
        result.problems.append(
            f"container_engine_source={request.source}, but {request.name} is already installed ({found.origin}) and "
            "belongs to no package that this role knows. Set container_engine_source=auto to keep it, or remove it "
            "with the tool that installed it."
        )
        return False
    if request.source not in case.engine or request.replace:
        return True
    is_of_node = coexistence.kubernetes(case.host)
    result.problems.append(
        f"container_engine_source={request.source}, but {request.name} {plain_version(found.version)} is installed "
        f"from package {found.package}, which comes from another source. Set container_engine_source=auto to keep it"
        + ("." if is_of_node else ", or container_engine_replace=true to replace it.")
    )
    return False


def _adopt(case: _Case, result: RolePackages, work: RoleTransaction) -> None:
    host, request, found = case.host, case.request, case.found
    result.version = found.version
    result.source = found.origin if found.origin in SOURCES else None
    data = case.engine.get(result.source or "")
    if not found.version and _requested(request):
        remedy = "Start docker.service, or remove the setting." if request.name == "docker" else "Remove the setting."
        result.problems.append(
            f"{_requested(request)}, but the version of the installed {request.name} ({found.origin}) is not known, "
            f"because it belongs to no package that this role knows. {remedy}"
        )
        return
    is_wrong = bool(found.version) and not _fits(str(found.version), request)
    if request.source == "preinstalled" or data is None:
        if is_wrong:
            origin = f"package {found.package}" if found.package else found.origin
            result.problems.append(
                f"{_requested(request)}, but {request.name} {plain_version(found.version)} ({origin}) is installed, "
                "and this role does not change its version. Change the version with the tool that installed it"
                + (", or set container_engine_source." if request.source == "preinstalled" else ".")
            )
        return
    known = record_of_role.read(host, owned.ENGINE_RECORD)["requested"]
    needed = [*_core(data), *(name for name in data["packages"] if name in known)]
    work.install = [name for name in dict.fromkeys(needed) if not is_installed(host, name)]
    _repository(case, result, work, needs=bool(work.install) or is_wrong)
    if not is_wrong:
        missing = [name for name in _core(data) if name in work.install]
        if missing:
            _complete(case, result, work, missing)
        return
    result.moves = True
    owner = coexistence.kubernetes(host)
    if owner and request.name == "containerd":
        result.problems.append(
            f"{_requested(request)}, but Kubernetes uses the installed containerd {plain_version(found.version)} "
            f"({owner}). Remove the setting, and change the version when you upgrade the node."
        )
        return
    _select(case, result, work, _core(data))
    if not result.query:
        before, after = plain_version(found.version), plain_version(result.version)
        is_older = version_key(after) < version_key(before)
        result.problems += daemon_restart.restart_problems(host, request, f"{before} to {after}", is_older=is_older)


# --- a missing engine -----------------------------------------------------------------------------------------------


def _install(
    case: _Case, result: RolePackages, work: RoleTransaction, platforms: dict[str, t.Any]
) -> tuple[RolePackages, RoleTransaction]:
    """Plan the installation from the first source with a suitable version. Without any, the result has the problem.

    A source that lacks a package of its newest version gives an older one only if no later source has this or a newer.
    """
    request, name = case.request, case.request.name
    if request.source == "preinstalled":
        result.problems.append(
            f"container_engine_source=preinstalled, but {name} is not installed on this host. Install {name}, or set "
            "container_engine_source=auto."
        )
        return result, work
    candidates = [source for source in SOURCES if source in case.engine and request.source in ("auto", source)]
    if _uses_docker(case):
        candidates.reverse()
    if not candidates:
        result.problems.append(_unsupported(case, platforms))
        return result, work
    snap = coexistence.snap_problem(case.host) if name == "docker" else None
    if snap:
        result.problems.append(snap)
        return result, work
    rejected: list[str] = []
    older: tuple[RolePackages, RoleTransaction] | None = None
    for source in candidates:
        attempt, todo = RolePackages(source=source, installs=True), RoleTransaction()
        try:
            incomplete = _from(case, attempt, todo, source, is_last=source == candidates[-1])
        except _NoVersion as error:
            rejected.append(str(error))
            continue
        attempt.reasons = [*rejected, *attempt.reasons]
        # The answer to the query may lead to another source.
        if attempt.query:
            return attempt, todo
        _conflicts(case, attempt, todo, source)
        if incomplete and not older:
            rejected.append(incomplete)
            older = attempt, todo
        elif not older or not (incomplete or attempt.problems or _is_older(attempt, older[0])):
            return attempt, todo
    if older:
        return older
    result.problems.append(f"{'. '.join(capitalized(text) for text in rejected)}. {_remedy(case, candidates)}")
    return result, work


def _is_older(one: RolePackages, other: RolePackages) -> bool:
    return version_key(str(one.version)) < version_key(str(other.version))


def _uses_docker(case: _Case) -> bool:
    """Return whether the host has packages of Docker's repository, or an entry for it."""
    if "repository" not in case.platform:
        return False
    has_package = any(is_installed(case.host, name) for name in ("containerd.io", "docker-ce-cli"))
    has_entry = docker_repository.is_ours(case.host) or docker_repository.others(case.host, case.platform["repository"])
    return bool(has_package or has_entry)


def _from(case: _Case, result: RolePackages, work: RoleTransaction, source: str, *, is_last: bool) -> str:
    """Plan the installation from one source as `_select` does, and the query of it."""
    data, request = case.engine[source], case.request
    work.install = [name for name in data["packages"] if not is_installed(case.host, name)]
    _repository(case, result, work, needs=source == "docker")
    first = "" if is_last else _FIRST_VERSIONS[request.name]
    static = data.get("version")
    if static and not _is_pinned(case, _core(data)):
        # The versions of a stable release do not change.
        result.version = static
        if version_key(static) < version_key(first):
            raise _NoVersion(
                f"{_place(case, source)} has only {request.name} {static}, but {first} or newer is required"
            )
        return ""
    return _select(case, result, work, _core(data), first=first)


def _select(case: _Case, result: RolePackages, work: RoleTransaction, names: list[str], *, first: str = "") -> str:
    """Choose the version of the packages that have one version, or plan the query of the available versions.

    Return why it is not the newest version, or an empty text. Raise _NoVersion if no version suits.
    """
    request, available, source = case.request, case.versions or {}, str(result.source)
    if any(name not in available for name in names):
        result.query = {"query": names, "repositories": work.repositories}
        work.install = list(dict.fromkeys([*work.install, *names]))
        return ""
    main, place = names[0], _place(case, source)
    if not available[main]:
        data = case.engine[source]
        hint = data.get("hints", {}).get(case.host["os"]["id"]) or data.get("hint")
        where = "no repository of this host" if source == "distribution" else place
        raise _NoVersion(f"{where} has {'' if source == 'distribution' else 'no '}{main}{f' ({hint})' if hint else ''}")
    # Without a request, the package manager chooses the builds. It knows pins and priorities.
    is_pinned = _is_pinned(case, names)
    unit = names if is_pinned else names[:1]
    choice = role_version_choice.choose(
        available, unit, lambda version: _fits(version, request, first), key=version_key
    )
    if choice.usable is None:
        some = role_version_choice.named(list(dict.fromkeys(map(plain_version, available[main]))))
        wanted = _requested(request) or f"{request.name} {first} or newer is required"
        raise _NoVersion(f"{wanted}, but {place} has no such version of {main}. It has {some}")
    lacking, newest = ", ".join(choice.lacking), plain_version(choice.usable)
    incomplete = f"{place} has {main} {newest}, but not {lacking} in this version" if lacking else ""
    if not choice.builds:
        raise _NoVersion(incomplete)
    result.version = choice.builds[main]
    if incomplete:
        result.reasons.append(f"{incomplete}, so version {plain_version(result.version)} is used")
    if is_pinned:
        known = {name: version.partition(" ")[0] for name, version in case.host["installed_packages"].items()}
        items = [f"{name}={build}" for name, build in choice.builds.items() if known.get(name) != build]
        work.install = [*items, *(name for name in work.install if name not in names)]
    return incomplete


def _is_pinned(case: _Case, names: list[str]) -> bool:
    """Return whether packages get an exact version: on request, or so that an installed one changes with the others."""
    is_requested = case.request.version or case.request.minimum_version
    return bool(is_requested) or any(is_installed(case.host, name) for name in names)


def _complete(case: _Case, result: RolePackages, work: RoleTransaction, names: list[str]) -> None:
    """Plan the missing packages of an installed engine in its version, or the query of their versions."""
    available = case.versions or {}
    if any(name not in available for name in names):
        result.query = {"query": names, "repositories": work.repositories}
        return
    wanted, place = version_key(case.found.version), _place(case, str(result.source))
    for name in names:
        if not available[name]:
            result.problems.append(
                f"{capitalized(place)} has no {name}. Enable the repository that has it, or set "
                "container_engine_source=preinstalled."
            )
            continue
        builds = [version for version in available[name] if version_key(version) == wanted]
        if not builds:
            result.reasons.append(
                f"{name} gets version {plain_version(available[name][0])}, because {place} does not have the engine's "
                f"version {plain_version(case.found.version)}"
            )
        work.install = [f"{name}={builds[0]}" if item == name and builds else item for item in work.install]


def _fits(version: str, request: EngineRequest, first: str = "") -> bool:
    """Return whether a version satisfies the request, and is not older than `first`. "28.5" requests any 28.5.x."""
    key, exact = version_key(version), version_key(request.version)
    if exact and key[: len(exact)] != exact:
        return False
    return key >= version_key(request.minimum_version) and key >= version_key(first)


def _requested(request: EngineRequest) -> str:
    names = ("version", "minimum_version")
    return " and ".join(f"container_engine_{name}={getattr(request, name)}" for name in names if getattr(request, name))


def _place(case: _Case, source: str) -> str:
    if source == "distribution":
        return case.name
    other = docker_repository.others(case.host, case.platform["repository"])
    if other:
        return f"the repository in {', '.join(other)}"
    return (
        f"Docker's repository {docker_repository.define(case.host, case.platform['repository'], case.request)['url']}"
    )


def _remedy(case: _Case, candidates: list[str]) -> str:
    request = case.request
    others = [source for source in SOURCES if source in case.engine and source not in candidates]
    if request.version or request.minimum_version:
        remedy = "Request another version"
        # The role replaces an installed engine only on request.
        replace = " and container_engine_replace=true" if case.found.package and not request.replace else ""
        return f"{remedy}, or set container_engine_source={others[0]}{replace}." if others else f"{remedy}."
    return f"Set container_engine_source={others[0]}." if others else "Enable the repository that has it."


def _unsupported(case: _Case, platforms: dict[str, t.Any]) -> str:
    request = case.request
    others = [source for source in SOURCES if source in case.engine]
    if others:
        whose = "Docker's repository does not have it" if request.source == "docker" else "the distribution has none"
        return (
            f"container_engine_source={request.source} does not provide {request.name} on {case.name}: {whose}. Set "
            f"container_engine_source={others[0]}."
        )
    known = ", ".join(sorted(key for key, row in platforms.items() if request.name in row)) or "none"
    return (
        f"container_engine_name={request.name}: this role cannot install {request.name} on {case.name}, only on: "
        f"{known}. Install the engine yourself. The role keeps an installed engine."
    )


# --- packages that cannot stay --------------------------------------------------------------------------------------


def _conflicts(case: _Case, result: RolePackages, work: RoleTransaction, source: str) -> None:
    host, request, data = case.host, case.request, case.engine[source]
    names = [name for name in data.get("conflicts", ()) if is_installed(host, name) and name not in data["packages"]]
    found = case.found.package
    if found and found not in names and found not in data["packages"]:
        names.insert(0, found)
    if not names:
        return
    owner = coexistence.kubernetes(host) if set(names).intersection(coexistence.RUNTIMES) else None
    others = [other for other in SOURCES if other in case.engine and other != source]
    other_name = f"container_engine_source={others[0]}" if others else "container_engine_name=none"
    if not request.replace:
        advice = (
            f"Kubernetes uses the installed runtime ({owner}). Set {other_name}."
            if owner
            else "Set container_engine_replace=true to remove these packages, or choose another "
            "container_engine_source or container_engine_name."
        )
        result.problems.append(
            f"{request.name} from {_place(case, source)} cannot be installed together with {', '.join(names)}. {advice}"
        )
        return
    result.problems += coexistence.removal_problems(host, names, f", or set {other_name}")
    work.remove = names


# --- repository, support and holds ----------------------------------------------------------------------------------


def _repository(case: _Case, result: RolePackages, work: RoleTransaction, *, needs: bool) -> None:
    """Plan Docker's repository. An entry of the user for it, or for a mirror, stays as it is."""
    if result.source != "docker" or "repository" not in case.platform:
        return
    definition = docker_repository.define(case.host, case.platform["repository"], case.request)
    is_needed = needs and not docker_repository.others(case.host, case.platform["repository"])
    role_packages.plan_repository(case.host, definition, work, is_needed=is_needed)


def _support(case: _Case) -> list[str]:
    """Return the packages that the collection's modules and containers need beside the engine."""
    interpreters = case.engine.get("interpreters", {})
    libraries = [library for package, library in interpreters.items() if is_installed(case.host, package)]
    return [*case.engine.get("support", ()), *libraries]


def _kernel_modules(case: _Case, result: RolePackages, work: RoleTransaction) -> None:
    """Plan the packages of the kernel modules that dockerd needs, and the query of them."""
    rules = (case.engine.get(result.source or "") or {}).get("kernel_modules", ())
    options = {**(case.host["docker_daemon_json"].get("content") or {}), **case.request.docker_options}
    for package in network_kernel_modules.missing(case.host, rules, options):
        available = (case.versions or {}).get(package.name)
        if available is None:
            result.query = result.query or {"query": [], "repositories": work.repositories}
            result.query["query"] = list(dict.fromkeys([*result.query["query"], package.name]))
        if available is None or package.version in available:
            work.install.append(package.item)
            continue
        is_fatal = result.installs and package.kernel == case.host["kernel"]["next_boot"]
        text = network_kernel_modules.unavailable(case.host, package, is_fatal=is_fatal)
        (result.problems if is_fatal else result.reasons).append(text)


def _core(data: t.Mapping[str, t.Any]) -> list[str]:
    """Return the packages of a source that always have one version, the engine first."""
    return list(data.get("lockstep") or data["packages"][:1])


def _holds(case: _Case, result: RolePackages, work: RoleTransaction) -> None:
    host, request, needs = case.host, case.request, case.platform.get("hold_needs")
    data = case.engine.get(result.source or "")
    if request.hold and not data and not case.found.package:
        result.reasons.append(
            f"container_engine_hold has no effect, because the installed {request.name} ({case.found.origin}) belongs "
            "to no package that this role knows"
        )
    members = list(data.get("hold") or _core(data)) if data else [case.found.package] if case.found.package else []
    coming = [item.partition("=")[0] for item in work.install]
    if coexistence.kubernetes(host):
        # Kubernetes decides about the version of its runtime.
        members = [name for name in members if name not in coexistence.RUNTIMES or request.name == "containerd"]
    members = [name for name in members if name in coming or is_installed(host, name)]
    role_packages.plan_holds(host, owned.ENGINE_RECORD, work, members, hold=request.hold, needs=needs)
    if request.source == "preinstalled" and work.install:
        result.problems.append(
            f"container_engine_hold=true needs {needs}, but container_engine_source=preinstalled installs no package. "
            f"Install {needs}, or set container_engine_source=auto."
        )
