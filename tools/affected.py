# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the tests that a change can affect, by the table tests/affected.yml, imports, and what scenarios include.

affected.py [--base origin/main]     print what is selected and what is left out, then run it
affected.py --list                   only print
affected.py --commits 50             print what each of the last commits selects, and the average
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
COLLECTION = "ansible_collections.gpufleet.hosts."
# Tests that start Ansible run plugins that they do not import.
WITH_ANSIBLE = ("tests/unit/playbooks", "tests/unit/roles")
SHIPPED = ("plugins/", "roles/", "playbooks/")


class UnusableTable(Exception):
    """The table names a scenario that does not exist, or lacks one."""


@dataclass
class AffectedTests:
    """What a change selects. The path "tests/unit" in `tests` selects all unit tests."""

    scenarios: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    tests: set[str] = field(default_factory=set)
    unknown: list[str] = field(default_factory=list)


def check(table: Mapping[str, Any], scenarios: Iterable[str]) -> None:
    """Raise UnusableTable if the scenarios of the table are not exactly those of molecule/."""
    existing, known = set(scenarios), set(table["scenarios"])
    named = {name for row in table["rows"].values() for name in row.get("scenarios", ())}
    if existing != known:
        differing = ", ".join(sorted(existing ^ known))
        raise UnusableTable(f"tests/affected.yml: the scenarios differ from those in molecule/: {differing}")
    if named - known:
        raise UnusableTable(f"tests/affected.yml: unknown scenarios in rows: {', '.join(sorted(named - known))}")


def row_of(path: str, rows: Mapping[str, Any]) -> str | None:
    """Return the longest row that `path` begins with."""
    return max((row for row in rows if path.startswith(row)), key=len, default=None)


def select(
    changed: Iterable[str],
    table: Mapping[str, Any],
    importers: Mapping[str, set[str]],
    users: Mapping[str, set[str]],
) -> AffectedTests:
    """Return what the changed files select. A scenario's file selects it, and a file without a row selects everything.

    `importers` maps each Python file to the files that import it, and `users` each folder in molecule/ to the scenarios
    that use its files.
    """
    found = AffectedTests()
    changed = list(changed)
    for path in changed:
        if path.startswith("molecule/") and path.count("/") > 1:
            selected = {path.split("/")[1]} | users.get(path.rpartition("/")[0], set())
            found.scenarios.update(selected & set(table["scenarios"]))
            continue
        row = row_of(path, table["rows"])
        if row is None:
            found.unknown.append(path)
            continue
        entry = table["rows"][row]
        found.scenarios.update(entry.get("scenarios", ()))
        found.targets.update(entry.get("targets", ()))
        found.tests.update(entry.get("tests", ()))
        if path.startswith(SHIPPED):
            found.tests.update(WITH_ANSIBLE)
    found.tests.update(tests_of(changed, importers))
    if found.unknown:
        found.scenarios, found.tests = set(table["scenarios"]), {"tests/unit"}
        found.targets = {target for entry in table["rows"].values() for target in entry.get("targets", ())}
    return found


def tests_of(changed: Iterable[str], importers: Mapping[str, set[str]]) -> set[str]:
    """Return the files of unit tests that import a changed file, directly or through others, and the changed ones."""
    reached, pending = set(), [path for path in changed if path.endswith(".py")]
    while pending:
        path = pending.pop()
        if path not in reached:
            reached.add(path)
            pending += importers.get(path, ())
    # Samples and conftest.py contain no tests, but files that import or use them do.
    tests = {path for path in reached if path.startswith("tests/unit/") and path.rpartition("/")[2].startswith("test_")}
    return {"tests/unit"} if "tests/unit/conftest.py" in reached else tests


def imported(path: str, text: str, files: frozenset[str]) -> set[str]:
    """Return which of `files` the Python file `path` with this text imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                folder = path.split("/")[: -node.level]
                base = COLLECTION + ".".join([*folder, *filter(None, [node.module])])
            names.update({base}, (f"{base}.{alias.name}" for alias in node.names))
    paths = {name.removeprefix(COLLECTION).replace(".", "/") + ".py" for name in names if name.startswith(COLLECTION)}
    return paths & files


def importers_of(root: Path, files: Iterable[str]) -> dict[str, set[str]]:
    """Return for each Python file of the repository the files that import it."""
    sources = frozenset(path for path in files if path.endswith(".py") and (root / path).is_file())
    found: dict[str, set[str]] = {}
    for path in sources:
        for target in imported(path, (root / path).read_text(encoding="utf-8"), sources):
            found.setdefault(target, set()).add(path)
    return found


def users_of(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """Return for each folder in molecule/ the scenarios that use its files, directly or through other folders.

    `texts` maps the path of each file in molecule/ to its text. A file uses the folders whose paths it contains.
    """
    scenarios = {path.split("/")[1] for path in texts}
    name = re.compile(r"(?:\.\./|molecule/)([\w-]+)/((?:[\w-]+/)*)")
    used: dict[str, set[str]] = {}
    for path, text in texts.items():
        folders = used.setdefault(path.rpartition("/")[0], set())
        folders.update(f"molecule/{m[1]}/{m[2]}".rstrip("/") for m in name.finditer(text) if m[1] in scenarios)
    found: dict[str, set[str]] = {}
    for folder in used:
        reached, pending = set(), [folder]
        while pending:
            current = pending.pop()
            if current not in reached:
                reached.add(current)
                pending += used.get(current, ())
        for other in reached:
            found.setdefault(other, set()).add(folder.split("/")[1])
    return found


def seconds(scenarios: Iterable[str], table: Mapping[str, Any]) -> int:
    """Return what the scenarios take together."""
    return sum(table["scenarios"][name] for name in scenarios)


def report(found: AffectedTests, table: Mapping[str, Any]) -> str:
    """Return the selection and what it leaves out, as text."""
    total, chosen = seconds(table["scenarios"], table), seconds(found.scenarios, table)
    left_out = sorted(set(table["scenarios"]) - found.scenarios)
    lines = [f"No row of tests/affected.yml, so everything is selected: {path}" for path in found.unknown]
    lines += [
        f"unit tests: {', '.join(sorted(found.tests)) or 'none'}",
        f"targets: {', '.join(sorted(found.targets)) or 'none'}",
        f"scenarios: {', '.join(sorted(found.scenarios)) or 'none'} ({100 * chosen // total} % of the time of all)",
        f"left out: {', '.join(left_out) or 'nothing'}",
    ]
    return "\n".join(lines)


def _git(*arguments: str) -> list[str]:
    output = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return output.splitlines()


def _average(
    count: int, table: Mapping[str, Any], importers: Mapping[str, set[str]], users: Mapping[str, set[str]]
) -> str:
    """Return what each of the last commits selects, and the average."""
    total, lines, shares = seconds(table["scenarios"], table), [], []
    for commit in _git("log", f"-{count}", "--no-merges", "--format=%h"):
        changed = _git("diff-tree", "--no-commit-id", "--name-only", "-r", commit)
        found = select(changed, table, importers, users)
        shares.append(100 * seconds(found.scenarios, table) / total)
        reason = f"; no row: {', '.join(found.unknown)}" if found.unknown else ""
        lines.append(f"{commit} {shares[-1]:3.0f} %  {' '.join(sorted(found.scenarios))}{reason}")
    return "\n".join([*lines, f"average of {len(shares)} commits: {sum(shares) / max(len(shares), 1):.0f} %"])


def _run(found: AffectedTests) -> int:
    """Run what is selected, the fast tests first. Return the exit status of the first failure."""
    commands = [["make", "lint"]]
    if found.tests:
        commands.append(["tools/unit.sh", *sorted(found.tests)])
    commands += [["make", target] for target in sorted(found.targets)]
    if found.scenarios:
        commands.append(["make", "molecule", f"SCENARIO={','.join(sorted(found.scenarios))}"])
    for command in commands:
        print(f"== {' '.join(command)}", flush=True)
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        if status:
            return status
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", default="origin/main", help="the commit with which the tree is compared")
    parser.add_argument("--list", action="store_true", help="print the selection and run nothing")
    parser.add_argument("--commits", type=int, metavar="N", help="print what each of the last N commits selects")
    options = parser.parse_args(arguments)
    table = yaml.safe_load((ROOT / "tests/affected.yml").read_text(encoding="utf-8"))
    check(table, (path.parent.name for path in ROOT.glob("molecule/*/molecule.yml")))
    importers = importers_of(ROOT, _git("ls-files"))
    users = users_of({path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8", errors="replace")
                      for path in ROOT.glob("molecule/*/**/*") if path.is_file()})  # fmt: skip
    if options.commits:
        print(_average(options.commits, table, importers, users))
        return 0
    try:
        base = _git("merge-base", options.base, "HEAD")[0]
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip()
        print(f"affected: git does not know {options.base}: {reason}. Name a commit: BASE=main", file=sys.stderr)
        return 2
    changed = _git("diff", "--name-only", base) + _git("ls-files", "--others", "--exclude-standard")
    if not changed:
        print(f"Nothing changed since {options.base}.")
        return 0
    found = select(changed, table, importers, users)
    print(report(found, table), flush=True)
    return 0 if options.list else _run(found)


if __name__ == "__main__":
    sys.exit(main())
