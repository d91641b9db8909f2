# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install the persistence daemon on the host that a case leaves, and simulate the removal of everything."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import simulation
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    PackageManagerError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    item,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import selectors_of_allowed_packages, transaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_journal import Journal
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.removal_transaction import (
    RecordedRemoval,
    rehearse,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.tests.sandbox.vendor.archives import Package
from ansible_collections.gpufleet.hosts.tests.solver import hosts, managers
from ansible_collections.gpufleet.hosts.tests.solver.cases import Case, Lab, Outcome, after, backend_root
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_samples

DRIVER, DAEMON = "nvidia_driver", "nvidia_persistenced"
_DATA = driver_samples.ROOT / "roles" / DAEMON / "vars/platforms.yml"


@dataclasses.dataclass(frozen=True)
class Removed:
    """What a simulated removal leaves."""

    # Why it is not possible.
    refused: str = ""
    # The installed packages before and after the removal.
    before: tuple[Package, ...] = ()
    left: tuple[Package, ...] = ()


def key(case: Case, outcome: Outcome) -> tuple | None:
    """Return what distinguishes the removal of a case from that of others. None: it is not simulated.

    The removal depends on the driver's packages, so one state of the kernels is enough for each kind of driver.
    """
    plan = outcome.plan
    if not outcome.changes or case.expected.kept or case.expected.user_space or "/updated" not in case.host.name:
        return None
    return case.host.name, plan["source"], plan["branch"], plan["flavor"], plan["module_build"]


def simulate(lab: Lab, case: Case, outcome: Outcome) -> Removed:
    """Return what the removal of the driver and of the daemon leaves on the host of a case."""
    work = outcome.plan["todo"]["transaction"]
    files = {entry["path"]: entry["content"] for entry in work["files"] if entry["state"] == "present"}
    bench = _Bench(lab, case, lab.repositories(case.host, work["repositories"]), files)
    driver = _new(case.host.packages, outcome.system)
    host = bench.host(outcome.system, {*driver} - _names(work["install"]))
    try:
        wanted, changes = bench.add_daemon(host)
        system = after(lab.known, host.packages, changes)
        daemon = _new(outcome.system, system)
        host = bench.host(system, {*driver, *daemon} - _names([*work["install"], *wanted]))
        records = {DRIVER: _record(driver, work["install"]), **({DAEMON: _record(daemon, wanted)} if daemon else {})}
        names = bench.rehearsed(host, records)
    except (PackageManagerError, transaction.TransactionError) as error:
        return Removed(" ".join(str(error).split()))
    left = tuple(package for package in system if package.name not in names)
    return Removed("", tuple(system), left)


def faults(case: Case, removed: Removed) -> list[str]:
    """Return what is wrong with a removal. Headers may have installed a kernel, which stays."""
    if removed.refused:
        return [f"the removal is refused: {removed.refused}"]
    had = {package.name for package in case.host.packages}
    left = {package.name for package in removed.left}
    found = []
    stays = sorted(name for name in left - had if not name.startswith("linux-image"))
    if stays:
        found.append(f"the removal leaves {', '.join(stays)}")
    if had - left:
        found.append(f"the removal also removes {', '.join(sorted(had - left))}")
    # Ubuntu's package of the daemon has another name, and provides this one.
    if not any("persistenced" in " ".join((package.name, *package.provides)) for package in removed.before):
        found.append("the daemon was not installed, so the removal proves nothing")
    return found


def _names(requested: Iterable[str]) -> set[str]:
    return {text.partition("=")[0] for text in requested}


def _new(before: Iterable[Package], system: Iterable[Package]) -> list[str]:
    return sorted({package.name for package in system} - {package.name for package in before})


def _record(packages: list[str], requested: Iterable[str]) -> dict[str, Any]:
    return {"packages": packages, "requested": sorted(_names(requested) & {*packages}), "files": {}}


@dataclasses.dataclass
class _Bench:
    """The hosts of a case after its installation."""

    lab: Lab
    case: Case
    repositories: tuple[str, ...]
    # The files that the transaction of the driver writes.
    files: dict[str, str]

    def host(self, packages: Iterable[Package], automatic: set[str]) -> hosts.System:
        """Return a host with these packages. `automatic` are those that apt does not consider requested."""
        packages = tuple(packages)
        digest = hashlib.sha256(repr(sorted(package.key for package in packages)).encode()).hexdigest()[:12]
        found = dataclasses.replace(
            self.case.host,
            name=f"{self.case.host.name}/installed-{digest}",
            packages=packages,
            repositories=self.repositories,
            addable=(),
        )
        root = self.lab.manager.root(found, self.repositories)
        if self.lab.manager.name == "apt":
            marks = [f"Package: {name}\nArchitecture: amd64\nAuto-Installed: 1\n" for name in sorted(automatic)]
            managers.write(root, {**self.files, "var/lib/apt/extended_states": "\n".join(marks)})
        return found

    def _part(self, host: hosts.System, name: str, files: dict[str, str], **answer: Any) -> Part:
        there = hosts.observation(host, self.case.gpu, self.lab.state(host))
        seen = {path: {"exists": True, "content": content, "mode": "0644"} for path, content in files.items()}
        there["files"] = {**there["files"], **seen}
        state = "absent" if name == DRIVER else "present"
        context = Context(
            there,  # type: ignore[arg-type]
            {DRIVER: {**dict(self.case.values), "state": state}, DAEMON: {}},
            {
                DRIVER: driver_samples.role_data(host.platform),
                DAEMON: yaml.safe_load(_DATA.read_text(encoding="utf-8"))["__nvidia_persistenced_packages"],
            },
            **answer,
        )
        part = site_plan.plan(context, [name])[name]
        if part.errors:
            raise transaction.TransactionError(" ".join(part.errors))
        return part

    def add_daemon(self, host: hosts.System) -> tuple[list[str], list[simulation.SimulatedChange]]:
        """Return the packages that the role of the daemon requests, and what the package manager changes for them."""
        part = self._part(host, DAEMON, self.files)
        if part.query:
            nothing: dict[str, Any] = {
                "repositories": [],
                "query_streams": [],
                "query_dependencies": [],
                "files": [],
            }
            part = self._part(host, DAEMON, self.files, **self.lab.answer(host, {**nothing, **part.query}))
        wanted = list(part.plan["packages"])
        if not wanted:
            return [], []
        backend = self.lab.manager.backend(host, host.repositories)
        request = transaction.TransactionRequest(install=tuple(item(text) for text in wanted), may_upgrade=True)
        self.lab.simulations += 1
        result = transaction.present(request, backend, Journal("solver", backend_root(backend)), check_mode=True)
        return wanted, result.changes

    def rehearsed(self, host: hosts.System, records: dict[str, dict[str, Any]]) -> set[str]:
        """Return the names of the packages that the planned removal would remove."""
        backend = self.lab.manager.backend(host, host.repositories)
        root = backend_root(backend)
        files = {f"{owned.STATE_DIRECTORY}/{name}.json": json.dumps(record) for name, record in records.items()}
        managers.write(Path(root), files)
        removal = self._part(host, DRIVER, files).removal or {}
        wanted = RecordedRemoval(
            transaction.TransactionRequest(
                remove=tuple(removal["remove"]),
                keep=tuple(selectors_of_allowed_packages.parse(text) for text in removal["keep"]),
            ),
            Journal(removal["record"], root),
            tuple(Journal(name, root) for name in removal["together_with"]),
        )
        self.lab.simulations += 1
        return {change.name for result in rehearse([wanted], backend) for change in result.changes}
