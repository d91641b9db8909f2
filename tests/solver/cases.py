# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan one case with the collection's planner, and simulate its transaction with the real package manager."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    PackageManagerError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    item,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import REMOVE, SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import selectors_of_allowed_packages, transaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_journal import Journal
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.tests.sandbox.vendor.archives import Archive, Package
from ansible_collections.gpufleet.hosts.tests.solver import hosts
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_samples


@dataclasses.dataclass(frozen=True)
class Expected:
    """What is right for a case.

    `builds` are the acceptable builds of an installation. Without any, the plan must refuse. `refusals` are regular
    expressions for its cause: a refusal is acceptable if one of them matches its text without the user's settings.
    """

    builds: tuple[str, ...] = ()
    flavor: str = ""
    branch: str = ""
    source: str = ""
    refusals: tuple[str, ...] = ()
    # Expressions for the reasons that the plan must give.
    reasons: tuple[str, ...] = ()
    # Whether the installed driver stays as it is.
    kept: bool = False
    # The version of the user space in a guest, which gets nothing of the kernel.
    user_space: str = ""

    def __post_init__(self) -> None:
        """Require one outcome. A case that may end either way proves nothing."""
        if sum(map(bool, (self.builds, self.refusals, self.kept, self.user_space))) != 1:
            raise ValueError(f"{self} does not have exactly one outcome")


@dataclasses.dataclass(frozen=True)
class Case:
    """A host, its GPU, the user's variables, and what is right."""

    host: hosts.System
    gpu: str
    values: tuple[tuple[str, Any], ...]
    expected: Expected

    def __str__(self) -> str:
        """Return the name of the case."""
        shown = " ".join(f"{name}={value}" for name, value in self.values)
        return f"{self.host.name} {self.gpu} {shown}".rstrip()


@dataclasses.dataclass
class Outcome:
    """What the planner and the solver made of a case."""

    errors: list[str] = dataclasses.field(default_factory=list)
    plan: dict[str, Any] = dataclasses.field(default_factory=dict)
    # What the package manager or the check of the changes refuses.
    refused: str = ""
    changes: list[SimulatedChange] = dataclasses.field(default_factory=list)
    # Installed afterwards: the packages of the archives by name.
    system: list[Package] = dataclasses.field(default_factory=list)
    # Installed after each of the administrator's upgrades, with the plan's holds.
    upgraded: dict[str, list[Package]] = dataclasses.field(default_factory=dict)

    @property
    def is_refused(self) -> bool:
        """Whether the plan refuses the case."""
        return bool(self.errors)

    @property
    def reasons(self) -> list[str]:
        """The reasons of the plan."""
        return list(self.plan.get("reasons", []))


class Lab:
    """Answers queries and simulates transactions. Equal ones run once."""

    def __init__(self, manager: Any) -> None:
        """Use the hosts of a package manager."""
        self.manager = manager
        self.simulations = 0
        self._states: dict[str, dict[str, Any]] = {}
        self._answers: dict[str, dict[str, Any]] = {}
        self._results: dict[str, tuple[list[SimulatedChange], str]] = {}
        self._upgrades: dict[tuple, dict[str, list[SimulatedChange]]] = {}
        self.known = known_packages(manager)

    def state(self, host: hosts.System) -> dict[str, Any]:
        """Return the installed packages of a host."""
        if host.name not in self._states:
            self._states[host.name] = self.manager.state(host)
        return self._states[host.name]

    def plan(self, case: Case) -> Outcome:
        """Plan a case, with the answers of the real package manager, and simulate the transaction."""
        there = hosts.observation(case.host, case.gpu, self.state(case.host))
        rejected: dict[str, str] = {}
        part = self._part(case, there, {}, rejected)
        while part.query and not part.errors:
            part = self._part(case, there, self.answer(case.host, part.query), rejected)
            if part.plan["rejected_sources"] == rejected:
                break
            # The next source has other repositories.
            rejected = part.plan["rejected_sources"]
            part = self._part(case, there, {}, rejected)
        outcome = Outcome(list(part.errors), part.plan)
        if not outcome.errors:
            outcome.changes, outcome.refused = self._simulated(case.host, part.plan["todo"])
            outcome.system = after(self.known, case.host.packages, outcome.changes)
            if self.manager.name == "apt" and not outcome.refused:
                outcome.upgraded = self._upgraded(case.host, part.plan["todo"]["transaction"], outcome.system)
        return outcome

    def _part(self, case: Case, there: dict, answer: dict[str, Any], rejected: dict[str, str]) -> Part:
        context = Context(
            there,  # type: ignore[arg-type]
            {"nvidia_driver": dict(case.values)},
            {"nvidia_driver": driver_samples.role_data(case.host.platform)},
            rejected_sources=rejected,
            **answer,
        )
        return site_plan.plan(context, ["nvidia_driver"])["nvidia_driver"]

    def repositories(self, host: hosts.System, added: list[dict]) -> tuple[str, ...]:
        """Return the repositories of the host, with NVIDIA's if the plan adds it."""
        return (*host.repositories, *(name for name in host.addable if added))

    def answer(self, host: hosts.System, query: dict[str, Any]) -> dict[str, Any]:
        """Return what the repositories have for a query."""
        repositories = self.repositories(host, query["repositories"])
        question = transaction.Question(query["query"], query["query_streams"], query["query_dependencies"])
        key = json.dumps([host.platform, repositories, dataclasses.astuple(question), query["files"]])
        if key not in self._answers:
            backend = self.manager.backend(host, repositories)
            request = transaction.TransactionRequest(files=_files(query["files"]))
            journal = Journal("solver", backend_root(backend))
            self._answers[key] = transaction.query(request, question, backend, journal)
        return self._answers[key]

    def _simulated(self, host: hosts.System, todo: dict[str, Any]) -> tuple[list[SimulatedChange], str]:
        work = {**todo["transaction"], "keep": todo["keep"]}
        repositories = self.repositories(host, work["repositories"])
        key = json.dumps([host.name, repositories, todo["prerequisites"], {**work, "hold": []}], sort_keys=True)
        if key not in self._results:
            self.simulations += 1
            backend = self.manager.backend(host, repositories)
            try:
                result = transaction.present(
                    _request(work, todo["prerequisites"]),
                    backend,
                    Journal("solver", backend_root(backend)),
                    check_mode=True,
                )
                self._results[key] = (result.changes, "")
            except (PackageManagerError, transaction.TransactionError) as error:
                self._results[key] = ([], " ".join(str(error).split()))
        return self._results[key]

    def _upgraded(self, host: hosts.System, work: dict[str, Any], system: list[Package]) -> dict[str, list[Package]]:
        selectors = tuple(selectors_of_allowed_packages.parse(text) for text in work["hold"])
        held = {p.name for p in system if any(one.selects(p.name, p.version) for one in selectors)}
        repositories, files = self.repositories(host, work["repositories"]), _files(work["files"])
        key = frozenset(package.key for package in system), frozenset(held), repositories, files
        if key not in self._upgrades:
            self.simulations += 1
            self._upgrades[key] = self.manager.upgraded(system, held, files, repositories)
        return {command: after(self.known, system, changes) for command, changes in self._upgrades[key].items()}


def known_packages(manager: Any) -> dict[tuple[str, str], Package]:
    """Return all packages of a package manager's archives, also after they have moved on, by name and version."""
    later = getattr(manager, "later", {})
    return catalogue({**manager.archives, **{f"later {name}": archive for name, archive in later.items()}})


def after(
    known: dict[tuple[str, str], Package], packages: Iterable[Package], changes: list[SimulatedChange]
) -> list[Package]:
    """Return the installed packages after changes."""
    left = {change.name for change in changes if change.before or change.action == REMOVE}
    kept = [package for package in packages if package.name not in left]
    return kept + [_known(known, change) for change in changes if change.after]


def _known(known: dict[tuple[str, str], Package], change: SimulatedChange) -> Package:
    version = str(change.after)
    for text in (version, version.removeprefix("0:"), f"0:{version}"):
        if (change.name, text) in known:
            return known[change.name, text]
    return Package(change.name, version, change.arch)


def backend_root(backend: Any) -> str:
    """Return the directory of a package manager's host."""
    return str(backend.root if hasattr(backend, "root") else backend._root)


def _files(entries: list[dict]) -> tuple[RepositoryFile, ...]:
    return tuple(
        RepositoryFile(
            entry["path"], entry["content"].encode() if entry["state"] == "present" else None, int(entry["mode"], 8)
        )
        for entry in entries
    )


def _request(work: dict[str, Any], prerequisites: list[str]) -> transaction.TransactionRequest:
    """Return the transaction that the role requests. The repositories of the plan are already in the index."""

    def selectors(name: str) -> tuple:
        return tuple(selectors_of_allowed_packages.parse(text) for text in work[name])

    return transaction.TransactionRequest(
        install=tuple(item(text) for text in [*work["install"], *prerequisites]),
        remove=tuple(work["remove"]),
        purge=tuple(work["purge"]),
        release=selectors("release"),
        may_change=selectors("may_change"),
        may_upgrade=True,
        keep=selectors("keep"),
        streams=tuple(work["module_streams"]),
        files=_files(work["files"]),
    )


# --- the verdict --------------------------------------------------------------------------------------------------


# A host whose driver stays may get the plugin that holds it.
HOLD_TOOLS = ("python3-dnf-plugin-versionlock",)
# A refusal that only repeats the user's settings names no cause.
_SETTING = re.compile(r"nvidia_driver_\w+(?: is)? [\w.]+")


def faults(case: Case, outcome: Outcome) -> list[str]:
    """Return what is wrong. An empty list is a passed case."""
    expected = case.expected
    if outcome.errors:
        text = " ".join(outcome.errors)
        cause = _SETTING.sub("", text)
        if any(re.search(pattern, cause) for pattern in expected.refusals):
            return []
        wanted = f"a refusal that names {' or '.join(expected.refusals)}"
        wanted = (
            "an installation" if expected.builds or expected.user_space else "no change" if expected.kept else wanted
        )
        return [f"refused, expected {wanted}: {text}"]
    if outcome.refused:
        return [f"the solver refuses the plan: {outcome.refused}"]
    if expected.user_space:
        return guest_faults(outcome, expected.user_space)
    if expected.kept:
        changes = [change for change in outcome.changes if change.name not in HOLD_TOOLS]
        return [f"changes the driver: {', '.join(map(str, changes))}"] if changes else upgrade_faults(outcome)
    if not expected.builds:
        brought = ", ".join(str(change) for change in outcome.changes)
        return [f"planned, expected a refusal that names {' or '.join(expected.refusals)}: {brought}"]
    found = [*_choices(case, outcome), *system_faults(case.host, outcome), *upgrade_faults(outcome)]
    reasons = " ".join(outcome.plan.get("reasons", []))
    return found + [f"no reason names {text}: {reasons}" for text in expected.reasons if not re.search(text, reasons)]


_OF_KERNEL = re.compile(r"dkms|^linux-(image|headers|modules)|^kernel|kmod-|-kmod$|-kmp|driver-G0\d$")


def guest_faults(outcome: Outcome, version: str) -> list[str]:
    """Return what is wrong in a guest: a package of the kernel, or libraries of another version."""
    brought = [str(change) for change in outcome.changes if _OF_KERNEL.search(change.name)]
    found = [f"brings packages of the kernel: {', '.join(brought)}"] if brought else []
    libraries = _libraries(outcome.system)
    if set(libraries) != {version}:
        found.append(f"the user space has {_versions(libraries) or 'no version'}, the node has {version}")
    return found


def _choices(case: Case, outcome: Outcome) -> list[str]:
    expected, plan = case.expected, outcome.plan
    found = []
    if plan["module_build"] not in expected.builds:
        found.append(f"builds with {plan['module_build']}, expected {' or '.join(expected.builds)}")
    for name in ("flavor", "branch", "source"):
        wanted = getattr(expected, name)
        if wanted and plan[name] != wanted:
            found.append(f"{name} is {plan[name]}, expected {wanted}")
    return found


def system_faults(host: hosts.System, outcome: Outcome) -> list[str]:
    """Return why the driver would not work after the transaction and a reboot into the kernel that boots next."""
    found = []
    plan, system = outcome.plan, outcome.system
    before = {package.name for package in host.packages}
    kernels = [p.name for p in system if p.release and _is_image(p.name) and p.release not in host.kernels]
    if kernels:
        found.append(f"installs another kernel: {', '.join(kernels)}")
    modules = [package for package in system if package.flavor and package.driver and _has_modules(package)]
    libraries = _libraries(system)
    if len(libraries) != 1:
        found.append(f"the user space has {_versions(libraries) or 'no version'}")
        return found
    version = next(iter(libraries))
    if plan.get("version") and plan["version"] != version:
        found.append(f"the user space has version {version}, planned was {plan['version']}")
    upcoming = host.upcoming
    ready = [p for p in modules if p.release == upcoming] or [p for p in modules if not p.release]
    if not ready:
        found.append(f"no module for kernel {upcoming}, which boots next")
    for package in ready:
        if package.driver != version:
            found.append(f"{package.name} has driver {package.driver}, but the user space has version {version}")
        if plan["flavor"] and package.flavor != plan["flavor"]:
            found.append(f"{package.name} is {package.flavor}, but the planned flavor is {plan['flavor']}")
        if _builds(package) and not _has_headers(system, upcoming):
            found.append(f"DKMS has no headers for kernel {upcoming}, which boots next")
    found += [
        f"brings {package.name} with driver {package.driver}, but the user space has version {version}"
        for package in modules
        if package.release != upcoming and package.release and package.name not in before and package.driver != version
    ]
    return found


def upgrade_faults(outcome: Outcome) -> list[str]:
    """Return why the driver would not work after an upgrade of the whole system and a reboot.

    Holds keep the driver's version, so the upgrade may bring only kernels with a module of this version.
    """
    found = []
    before, version = _images(outcome.system), _versions(_libraries(outcome.system))
    for command, system in outcome.upgraded.items():
        if _versions(_libraries(system)) != version:
            now = _versions(_libraries(system)) or "no version"
            found.append(f"after apt-get {command}, the user space has {now}, before {version}")
        for release, name in _images(system).items():
            if release in before or _is_driven(system, release):
                continue
            found.append(f"apt-get {command} installs {name}, which has no module of the driver's {version}")
    return found


def _images(system: list[Package]) -> dict[str, str]:
    """Return the installed kernels: their packages by release."""
    return {p.release: p.name for p in system if p.release and p.name.endswith(p.release) and _is_image(p.name)}


def _is_driven(system: list[Package], release: str) -> bool:
    """Return whether a kernel has modules of the user space's version, or DKMS builds them."""
    version = set(_libraries(system))
    modules = [p for p in system if p.flavor and _has_modules(p) and {p.driver} == version]
    return any(p.release == release or (_builds(p) and _has_headers(system, release)) for p in modules)


def _libraries(system: list[Package]) -> dict[str, str]:
    """Return a package of the user space by driver version."""
    return {
        package.driver: package.name
        for package in system
        # The version is part of the firmware's name, so that several can be installed.
        if package.driver and not package.flavor and not package.release and package.driver not in package.name
    }


def _versions(libraries: dict[str, str]) -> str:
    return " and ".join(f"version {version} ({name})" for version, name in sorted(libraries.items()))


def _is_image(name: str) -> bool:
    return bool(re.match(r"linux-image-|kernel(-default|-azure|-core|[\d.]*)?$", name))


def _has_modules(package: Package) -> bool:
    """Return whether a package contains or builds modules. Sources and meta packages do not."""
    if package.name.startswith("linux-modules-nvidia"):
        return package.name.endswith(f"-{package.release}")
    return bool(re.search(r"dkms|kmod-nvidia|kmp|open-kmod|driver-G0\d$", package.name))


def _builds(package: Package) -> bool:
    """Return whether DKMS builds the modules. Those of SUSE and AlmaLinux are built, and fit several kernels."""
    return not package.release and bool(re.search(r"dkms|driver-G0\d$", package.name))


def _has_headers(system: list[Package], release: str) -> bool:
    return any(p.release == release and re.search(r"headers|-devel", p.name) for p in system)


def catalogue(archives: dict[str, Archive]) -> dict[tuple[str, str], Package]:
    """Return all packages of the archives by name and version."""
    return {(p.name, p.version): p for archive in archives.values() for p in archive.packages}
