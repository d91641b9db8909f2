# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the packages of a container engine, and simulate their transaction with the real package manager."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import defaultdict
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import plan as engine_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.variables import read
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import container_engines as observed
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    PackageManagerError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    item,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import selectors_of_allowed_packages, transaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_journal import Journal
from ansible_collections.gpufleet.hosts.tests.sandbox.vendor.archives import Package, upstream
from ansible_collections.gpufleet.hosts.tests.solver import hosts
from ansible_collections.gpufleet.hosts.tests.solver.cases import after, backend_root, known_packages
from ansible_collections.gpufleet.hosts.tests.unit.plugins import declared, engine_samples

DOCKER_URL = "https://download.docker.com/linux"


@dataclasses.dataclass(frozen=True)
class Expected:
    """What is right for a case: the packages that it installs, or that the engine stays, or the cause of a refusal."""

    # By name: the upstream version, or "" for any.
    installs: tuple[tuple[str, str], ...] = ()
    source: str = ""
    removes: frozenset[str] = frozenset()
    kept: bool = False
    # Regular expressions. A refusal must match one of them, after the user's settings are removed.
    refusals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Require one outcome."""
        if sum(map(bool, (self.installs, self.kept, self.refusals))) != 1:
            raise ValueError(f"{self} does not have exactly one outcome")


@dataclasses.dataclass(frozen=True)
class Case:
    """A host, the user's variables, and what is right."""

    host: hosts.System
    values: tuple[tuple[str, Any], ...]
    expected: Expected

    def __str__(self) -> str:
        """Return the name of the case."""
        shown = " ".join(f"{name}={value}" for name, value in self.values)
        return f"{self.host.name} {shown}".rstrip()


@dataclasses.dataclass
class Outcome:
    """What the planner and the solver made of a case."""

    errors: list[str] = dataclasses.field(default_factory=list)
    plan: engine_plan.EnginePlan | None = None
    # What the package manager or the check of the changes refuses.
    refused: str = ""
    changes: list[SimulatedChange] = dataclasses.field(default_factory=list)
    system: list[Package] = dataclasses.field(default_factory=list)
    # What a second run would change.
    again: list[str] = dataclasses.field(default_factory=list)
    # What each of the administrator's upgrades changes, with the plan's holds.
    upgraded: dict[str, list[SimulatedChange]] = dataclasses.field(default_factory=dict)

    @property
    def is_refused(self) -> bool:
        """Whether the role would fail before any change."""
        return bool(self.errors or self.refused)

    @property
    def reasons(self) -> list[str]:
        """The reasons of the plan."""
        return [self.plan.reason] if self.plan else []


class Lab:
    """Answers queries and simulates transactions. Equal ones run once."""

    def __init__(self, manager: Any) -> None:
        """Use the hosts of a package manager."""
        self.manager = manager
        self.simulations = 0
        self._known = known_packages(manager)
        self._states: dict[str, dict[str, Any]] = {}
        self._answers: dict[tuple, dict[str, list[str]]] = {}
        self._results: dict[str, tuple[list[SimulatedChange], str]] = {}
        self._upgrades: dict[tuple, dict[str, list[SimulatedChange]]] = {}

    def plan(self, case: Case) -> Outcome:
        """Plan a case, simulate the transaction, and plan again on the resulting system."""
        if case.host.name not in self._states:
            self._states[case.host.name] = self.manager.state(case.host)
        seen = observation(case.host, self._states[case.host.name], case.host.repositories)
        done = self._planned(case, seen)
        outcome = Outcome(list(done.problems), done)
        work = done.transaction
        if outcome.errors or work is None:
            outcome.system = list(case.host.packages)
            return outcome
        repositories = self._repositories(case.host, work.repositories)
        outcome.changes, outcome.refused = self._simulated(case.host, repositories, work)
        outcome.system = after(self._known, case.host.packages, outcome.changes)
        if not outcome.refused:
            outcome.again = self._again(case, outcome, repositories)
            if self.manager.name == "apt" and work.hold:
                outcome.upgraded = self._upgraded(outcome.system, {*work.hold}, repositories)
        return outcome

    def _planned(self, case: Case, seen: dict[str, Any]) -> engine_plan.EnginePlan:
        versions: dict[str, list[str]] = {}
        request = read({"docker_recommended": False, **dict(case.values)})
        done = engine_plan.plan(seen, request, engine_samples.PLATFORMS)  # type: ignore[arg-type]
        while done.query and not done.problems:
            before = len(versions)
            versions = {**versions, **self._answer(case.host, done.query)}
            if len(versions) == before:
                raise AssertionError(f"{case}: the plan asks for the same versions again: {done.query}")
            done = engine_plan.plan(seen, request, engine_samples.PLATFORMS, versions)  # type: ignore[arg-type]
        return done

    def _repositories(self, host: hosts.System, added: list[dict]) -> tuple[str, ...]:
        """Return the repositories of the host, with Docker's if the plan adds it."""
        return tuple(dict.fromkeys((*host.repositories, *(host.addable if added else ()))))

    def _answer(self, host: hosts.System, query: dict[str, Any]) -> dict[str, list[str]]:
        repositories, names = self._repositories(host, query["repositories"]), tuple(query["query"])
        key = host.platform, repositories, names
        if key not in self._answers:
            backend = self.manager.backend(host, repositories)
            question = transaction.Question(list(names), [], [])
            answer = transaction.query(
                transaction.TransactionRequest(), question, backend, Journal("solver", backend_root(backend))
            )
            self._answers[key] = answer["versions"]
        return self._answers[key]

    def _simulated(
        self, host: hosts.System, repositories: tuple[str, ...], work: Any
    ) -> tuple[list[SimulatedChange], str]:
        key = json.dumps([host.name, repositories, work.install, work.remove, work.keep, work.release])
        if key not in self._results:
            self.simulations += 1
            backend = self.manager.backend(host, repositories)
            request = transaction.TransactionRequest(
                install=tuple(item(text) for text in work.install),
                remove=tuple(work.remove),
                release=tuple(selectors_of_allowed_packages.parse(text) for text in work.release),
                keep=tuple(selectors_of_allowed_packages.parse(text) for text in work.keep),
                may_upgrade=True,
            )
            try:
                journal = Journal("solver", backend_root(backend))
                result = transaction.present(request, backend, journal, check_mode=True)
                self._results[key] = (result.changes, "")
            except (PackageManagerError, transaction.TransactionError) as error:
                self._results[key] = ([], " ".join(str(error).split()))
        return self._results[key]

    def _again(self, case: Case, outcome: Outcome, repositories: tuple[str, ...]) -> list[str]:
        """Plan again after the transaction, and return what a second run would change."""
        assert outcome.plan is not None
        work = outcome.plan.transaction
        assert work is not None
        held = {*case.host.held, *work.hold}
        texts = {package.name: f"{package.version} {package.arch}" for package in outcome.system}
        state = {
            "all": texts,
            "held": sorted(held),
            "details": {
                name: {"version": text.split(" ")[0], "held": name in held, "arch": text.split(" ")[1]}
                for name, text in texts.items()
                if declared.PACKAGES.search(name)
            },
        }
        seen = observation(case.host, state, repositories)
        seen["files"].update(engine_samples.recorded(*(name.partition("=")[0] for name in work.install)))
        second = self._planned(case, seen)
        return [*second.problems, *(second.changes if second.transaction else [])]

    def _upgraded(
        self, system: list[Package], held: set[str], repositories: tuple[str, ...]
    ) -> dict[str, list[SimulatedChange]]:
        key = frozenset(package.key for package in system), frozenset(held), repositories
        if key not in self._upgrades:
            self.simulations += 1
            self._upgrades[key] = self.manager.upgraded(system, held, (), repositories)
        return self._upgrades[key]


def observation(host: hosts.System, state: dict[str, Any], repositories: tuple[str, ...]) -> dict[str, Any]:
    """Return what the collection observes on a host with these repositories."""
    seen = engine_samples.host(host.platform, held_packages=list(state["held"]))
    if "dpkg" not in state["all"] and seen["os"]["package_manager"] == "apt":
        raise AssertionError(f"{host.name} has no package dpkg, which tells the architecture")
    seen["installed_packages"], seen["packages"] = state["all"], state["details"]
    found = observed.engines(seen, None)
    seen["engines"] = {**seen["engines"], **found}
    for engine in ("docker", "containerd"):
        if found[engine]["package"]:
            seen["services"][f"{engine}.service"] = engine_samples.RUNNING
    if "docker" in repositories:
        _add_repository(seen, host.platform)
    return seen


def _add_repository(seen: dict[str, Any], platform: str) -> None:
    """Describe the entry of Docker's repository, as Docker's documentation writes it."""
    data = engine_samples.PLATFORMS[platform]["repository"]
    if seen["apt"] is None:
        url = f"{DOCKER_URL}/{data['folder']}/$releasever_major/$basearch/stable"
        file = "/etc/yum.repos.d/docker-ce.repo"
        seen["repositories"] = [{"id": "docker-ce-stable", "file": file, "enabled": True, "url": url}]
        seen["os"]["version"] = data["release"]
        return
    entry = {
        "file": "/etc/apt/sources.list.d/docker.sources",
        "enabled": True,
        "uris": [f"{DOCKER_URL}/{data['folder']}"],
    }
    more = {
        "types": ["deb"],
        "suites": [data["suite"]],
        "components": ["stable"],
        "signed_by": "/etc/apt/keyrings/docker.asc",
    }
    seen["apt"]["sources"] = [{**entry, **more}]


# --- the verdict --------------------------------------------------------------------------------------------------

# A refusal that only repeats the user's settings names no cause.
_SETTING = re.compile(r"container_engine_\w+=\S+")


def faults(case: Case, outcome: Outcome) -> list[str]:
    """Return what is wrong. An empty list is a passed case."""
    expected = case.expected
    if outcome.is_refused:
        text = " ".join(outcome.errors) or outcome.refused
        cause = _SETTING.sub("", text)
        if any(re.search(pattern, cause) for pattern in expected.refusals):
            return []
        wanted = "an installation" if expected.installs else "no change" if expected.kept else expected.refusals
        return [f"refused, expected {wanted}: {text}"]
    brought = ", ".join(map(str, outcome.changes))
    if expected.refusals:
        return [f"planned, expected a refusal that names {' or '.join(expected.refusals)}: {brought or 'no change'}"]
    found = [f"a second run would change: {', '.join(outcome.again)}"] if outcome.again else []
    found += upgrade_faults(case, outcome)
    found += shared_files(outcome.system)
    removed = {change.name for change in outcome.changes if not change.after}
    if removed != expected.removes:
        shown = " and ".join(sorted(expected.removes)) or "nothing"
        found.append(f"removes {', '.join(sorted(removed)) or 'nothing'}, expected {shown}")
    if expected.kept:
        changed = [str(change) for change in outcome.changes if change.before]
        return found + ([f"changes {', '.join(changed)}, expected no change"] if changed else [])
    assert outcome.plan is not None
    if expected.source and outcome.plan.source != expected.source:
        found.append(f"installs from {outcome.plan.source}, expected {expected.source}")
    present = {package.name: upstream(package.version) for package in outcome.system}
    for name, version in expected.installs:
        if name not in present:
            found.append(f"{name} is not installed: {brought}")
        elif version and present[name] != version:
            found.append(f"{name} has version {present[name]}, expected {version}")
    return found


def upgrade_faults(case: Case, outcome: Outcome) -> list[str]:
    """Return the changes of the engine by an upgrade of the whole system, although the user holds the engine.

    Plugins of Docker's client do not belong to the engine.
    """
    engine = {name for name, _version in case.expected.installs if not name.endswith("-plugin")}
    found = []
    for command, changes in outcome.upgraded.items():
        moved = [str(change) for change in changes if change.name in engine]
        found += [f"apt-get {command} changes the held engine: {', '.join(moved)}"] if moved else []
    return found


def shared_files(system: list[Package]) -> list[str]:
    """Return the files that two installed packages contain. The package manager would fail while it unpacks them."""
    owners = defaultdict(list)
    for package in system:
        for path in package.files:
            # Distributions use both directories for units, and one is a link to the other.
            owners[path.removeprefix("/usr") if "/systemd/" in path else path].append(package.name)
    return [f"{' and '.join(names)} contain {path}" for path, names in owners.items() if len(names) > 1]
