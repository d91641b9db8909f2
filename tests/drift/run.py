# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Test that playbook site repairs exactly what has changed on a simulated host, and that playbook plan predicts it.

states: predict and converge a new host, run again without a network, remove all but the driver, and do the same.
items:  on a converged host, break each item that the roles manage in each way, and run the playbook.
        Items that do not disturb each other break together. The checks are per item.

Exit status: 0 passed, 1 a check failed, 2 the test could not run.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Makes the collection importable. `make setup` creates this path.
sys.path.append(str(ROOT / ".ansible/collections"))

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned, variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import role_data
from ansible_collections.gpufleet.hosts.tests.drift import batches, verdict, ways
from ansible_collections.gpufleet.hosts.tests.drift import items as drift_items
from ansible_collections.gpufleet.hosts.tests.drift.items import Item
from ansible_collections.gpufleet.hosts.tests.drift.verdict import Run
from ansible_collections.gpufleet.hosts.tests.drift.ways import Case
from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run

SITE, PLAN = ROOT / "playbooks/site.yml", ROOT / "playbooks/plan.yml"


class CannotTest(Exception):
    """The host or a program prevents the test."""


class Host:
    """A simulated host: a container with the name of the host."""

    def __init__(self, name: str, inventory: Path, output: Path) -> None:
        self.name, self.inventory, self.output = name, inventory, output

    def shell(self, script: str) -> str:
        """Run a script as root. Return its output."""
        argv = ["docker", "exec", self.name, "sh", "-ec", script]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotTest(f"{script}\nfailed on {self.name}: {(done.stdout + done.stderr)[-2000:]}")
        return done.stdout

    def play(self, playbook: Path, *arguments: str) -> Run:
        """Run a playbook on the host. Fail if the playbook fails."""
        self.output.mkdir(parents=True, exist_ok=True)
        path = self.output / f"{self.name}.jsonl"
        path.write_text("", encoding="utf-8")
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callback"),
            "ANSIBLE_NOCOLOR": "1",
            "DRIFT_RECORD": str(path),
        }
        started = time.monotonic()
        argv = ["ansible-playbook", "-i", str(self.inventory), "--limit", self.name, "--diff", str(playbook)]
        done = ansible_run.run([*argv, *arguments], cwd=ROOT, env=environment)
        (self.output / f"{self.name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode:
            raise CannotTest(f"{playbook.name} failed on {self.name}:\n{(done.stdout + done.stderr)[-3000:]}")
        entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return Run([entry for entry in entries if entry["host"] == self.name], time.monotonic() - started)

    def predict(self) -> dict[str, list[str]]:
        """Run playbook plan. Return its prediction by part."""
        path = self.output / f"{self.name}-plan.json"
        run = self.play(PLAN, "-e", json.dumps({"plan_file": str(path)}))
        if any(part != "Write the plan as JSON" for part in run.changed):
            raise CannotTest(f"plan.yml changed the host: {run.changed}")
        (entry,) = json.loads(path.read_text(encoding="utf-8"))
        return verdict.predicted(entry["changes"])

    @contextmanager
    def offline(self) -> Iterator[None]:
        """Disconnect the host from the network."""
        subprocess.run(["docker", "network", "disconnect", "bridge", self.name], check=True)
        try:
            yield
        finally:
            subprocess.run(["docker", "network", "connect", "bridge", self.name], check=True)

    def values(self) -> dict[str, dict[str, Any]]:
        """Return the user's variables by role, without the role's prefix."""
        argv = ["ansible-inventory", "-i", str(self.inventory), "--host", self.name]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotTest(f"The inventory has no host {self.name}: {done.stderr[-500:]}")
        known = json.loads(done.stdout)
        return {
            role: {
                name: known[f"{role}_{name}"] for name in variable_fields.table(request) if f"{role}_{name}" in known
            }
            for role, request in registry.REQUESTS.items()
        }


@functools.cache
def platforms(key: str) -> dict[str, Any]:
    """Return the roles' data of a platform, as `parts.part_plan.Context` describes it."""
    return role_data.platforms(key)


class Report:
    """Print each check when it ends, also to a file."""

    def __init__(self, path: Path) -> None:
        self.failed: list[str] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        path.write_text("", encoding="utf-8")

    def say(self, text: str) -> None:
        print(text, flush=True)
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(f"{text}\n")

    def add(self, title: str, faults: Iterable[str], seconds: float) -> None:
        faults = list(faults)
        self.say(f"{'FAILED' if faults else 'ok':6}  {seconds:5.0f} s  {title}")
        for fault in faults:
            self.say(f"                  {fault}")
        if faults:
            self.failed.append(title)


# --- states -------------------------------------------------------------------------------------------------------


def check_states(host: Host, report: Report) -> None:
    """Converge a new host, and a host that has only the driver."""
    predicted = host.predict()
    if "nvidia_driver" not in predicted or "container_engine" not in predicted:
        raise CannotTest(f"{host.name} is not new. Remove it first.")
    fresh, known, converged = _converge(host, report, "new host", predicted)
    report.add(f"list of {len(known)} items", forgotten(fresh.plan["host"], converged, known), 0)
    host.shell(_remove_all_but_driver(known, converged))
    _converge(host, report, "host with only the driver", host.predict())


def _converge(
    host: Host, report: Report, title: str, predicted: dict[str, list[str]]
) -> tuple[Run, list[Item], dict[str, Any]]:
    run = host.play(SITE)
    with host.offline():
        again = host.play(SITE)
    converged = again.plan["host"]
    known = drift_items.items(converged, host.values(), platforms(converged["os"]["key"]))
    faults = [] if predicted == run.predicted else [f"plan.yml predicts {predicted}, but site.yml {run.predicted}"]
    gone = verdict.broken(known, run.plan["host"], converged)
    report.add(title, [*faults, *verdict.prediction_faults(run, known, gone, converged)], run.seconds)
    report.add(f"{title}: second run without a network", verdict.unchanged_faults(again), again.seconds)
    checked = host.play(SITE, "--check")
    faults = verdict.unchanged_faults(checked)
    faults += [f"plan.yml predicts {part}: {texts}" for part, texts in host.predict().items()]
    report.add(f"{title}: check mode and plan.yml of the converged host", faults, checked.seconds)
    return run, known, converged


def forgotten(before: dict[str, Any], converged: dict[str, Any], known: Collection[Item]) -> list[str]:
    """Return the new files of a converged host that are neither an item nor known to be none."""
    paths = {item.name for item in known if item.kind == "file"}
    # The packages' units, and the records. The options in daemon.json are items.
    others = ("/lib/", "/usr/lib/", f"{owned.STATE_DIRECTORY}/", owned.DAEMON_JSON)
    # The observation lists a record only if it exists.
    former = {path for path, file in before["files"].items() if file["exists"]}
    return [
        f"{path} is new on the host, but no item of the drift test. Add it to tests/drift/items.py"
        for path, file in converged["files"].items()
        if file["exists"] and path not in former and path not in paths and not path.startswith(others)
    ]


def _remove_all_but_driver(known: Iterable[Item], converged: dict[str, Any]) -> str:
    """Return the script after which a converged host looks as if the first run had stopped after the driver."""
    others = [item for item in known if item.part != "nvidia_driver"]
    volume = converged["driver_volume"]["volume"]
    packages = " ".join(item.name for item in others if item.kind == "package")
    files = " ".join(item.name for item in others if item.kind == "file")
    return "\n".join(
        [
            *(f"{engine} volume rm {volume['name']}" for engine in volume["engines"]),
            # Purging Docker would fail, because its data directory is a mount point.
            f"DEBIAN_FRONTEND=noninteractive apt-get remove --yes --quiet {packages}",
            f"rm -rf {files} {volume['path']} /etc/docker {owned.STATE_DIRECTORY}/{owned.DAEMON_JSON_RECORDS}",
            "systemctl daemon-reload",
        ]
    )


Removals = dict[str, list[str]]
# systemd allows few starts of a unit in a minute. Those of the former cases do not count.
RESET_STARTS = "systemctl reset-failed"

# --- items --------------------------------------------------------------------------------------------------------


def found_cases(
    host: Host, report: Report, converged: dict[str, Any], known: list[Item]
) -> tuple[list[Case], Removals]:
    """Return the cases for a converged host, without those that repeat a rebuild of the kernel modules.

    Return also the packages that apt would remove with each package.
    """
    found = ways.cases(known, converged)
    packages = sorted({case.item.name for case in found if case.item.kind == "package"})
    removals = {name: ways.removed_with(host.shell(f"{ways.REMOVE} --simulate {name}")) for name in packages}
    modules = [name for name in packages if name.endswith("-dkms")]
    kept = ways.without_rebuilds(found, removals, modules)
    left_out = [str(case) for case in found if case not in kept]
    report.say(f"left out, because another case rebuilds the kernel modules, too: {', '.join(left_out) or 'none'}")
    for name, reason in drift_items.NOT_REPAIRED.items():
        report.say(f"left out, because the roles do not repair {name}: {reason}")
    return kept, removals


def check_items(host: Host, report: Report, options: argparse.Namespace) -> None:
    """Break the items of a converged host, and repair them."""
    run = host.play(SITE)
    if run.changed:
        raise CannotTest(f"{host.name} was not converged: {run.changed}")
    converged = run.plan["host"]
    known = drift_items.items(converged, host.values(), platforms(converged["os"]["key"]))
    found, removals = found_cases(host, report, converged, known)
    cases = [case for case in batches.shard(found, options.shard) if re.search(options.only, str(case))]
    runs = batches.batches(cases, removals)
    report.say(f"{len(known)} items, {len(cases)} of {len(found)} cases in {len(runs)} runs")
    if options.list:
        report.say("\n".join(map(str, cases)))
        return
    planned: set[str] = set()
    for batch in runs:
        started = time.monotonic()
        kind = batch[0].item.kind
        # The plan of site.yml is that of plan.yml, so one comparison for each kind of item is enough.
        try:
            faults, repaired = _repair(host, batch, known, converged, compares=kind not in planned)
            # A record may have changed.
            converged = converged if faults else repaired
        except CannotTest as problem:
            faults = [str(problem)]
        planned.add(kind)
        report.add(batches.title(batch), faults, time.monotonic() - started)
        if faults:
            # The next cases need a converged host.
            host.play(SITE)
            converged = host.play(SITE).plan["host"]


def _repair(
    host: Host, batch: list[Case], known: Collection[Item], converged: dict[str, Any], *, compares: bool
) -> tuple[list[str], dict[str, Any]]:
    for script in (RESET_STARTS, *(case.script for case in batch)):
        host.shell(script)
    predicted = host.predict() if compares else None
    run, again = host.play(SITE), host.play(SITE)
    faults = batch_faults(batch, known, converged, run, again)
    if predicted not in (None, run.predicted):
        faults.append(f"plan.yml predicts {predicted}, but site.yml {run.predicted}")
    return faults, again.plan["host"]


def batch_faults(
    batch: list[Case], known: Collection[Item], converged: dict[str, Any], run: Run, again: Run
) -> list[str]:
    """Return what is wrong with the repair of the items of a batch."""
    gone = verdict.broken(known, run.plan["host"], converged)
    # The observation does not contain it. The texts of the plan do.
    gone.update(case.item for case in batch if case.item.kind == "persistence_mode")
    others = {kind for case in batch for kind in case.others}
    packages = [item.name for item in gone if item.kind == "package"]
    return [
        *verdict.drift_faults([case.item for case in batch], others, gone),
        *verdict.prediction_faults(run, known, gone, converged),
        *verdict.differences(converged, again.plan["host"], may_own=packages),
        *verdict.unchanged_faults(again),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("test", choices=["states", "items"])
    parser.add_argument("--inventory", type=Path, default=ROOT / "molecule/drift/inventory/hosts.yml")
    parser.add_argument("--host", default="drift-debian")
    parser.add_argument("--output", type=Path, default=ROOT / "tests/output/drift", help="directory for the reports")
    parser.add_argument("--only", default="", help="a regular expression for the cases of `items`")
    parser.add_argument("--shard", default="", choices=["", *batches.SHARDS], help="a part of the cases of `items`")
    parser.add_argument("--list", action="store_true", help="only list the cases of `items`")
    options = parser.parse_args()
    output = options.output.resolve()
    host, started = Host(options.host, options.inventory.resolve(), output), time.monotonic()
    shard = f"-{options.shard}" if options.shard else ""
    report = Report(output / f"{options.host}-{options.test}{shard}.txt")
    try:
        if options.test == "states":
            check_states(host, report)
        else:
            check_items(host, report, options)
    except (CannotTest, drift_items.UnknownKind) as problem:
        print(f"drift: {problem}", file=sys.stderr)
        return 2
    report.say(f"drift: {len(report.failed)} failed checks, {time.monotonic() - started:.0f} s")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
