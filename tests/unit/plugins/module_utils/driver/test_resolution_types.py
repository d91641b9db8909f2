# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A step of the driver's resolution returns what it decides, and leaves its arguments as they are."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils import driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan, Resolution

SOURCES = sorted(Path(driver.__path__[0]).glob("*.py"))
VALUES = {"Resolution", "Case", "DriverPlan"}
MUTATORS = {"append", "extend", "insert", "remove", "pop", "clear", "update", "setdefault", "sort", "add"}


def root_of(node: ast.AST) -> str | None:
    """Return the name at the start of `a.b[c].d`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def mutated(source: str) -> list[str]:
    """Return the places where a function changes a resolution, a case or a plan that it got as an argument."""
    found = []
    for function in (one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef)):
        arguments = [*function.args.args, *function.args.kwonlyargs]
        names = {one.arg for one in arguments if one.annotation and ast.unparse(one.annotation) in VALUES}
        for node in ast.walk(function):
            targets: list[ast.AST] = []
            if isinstance(node, ast.Assign):
                targets = [one for target in node.targets for one in getattr(target, "elts", [target])]
            elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
                targets = [node.target]
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", None) in MUTATORS:
                targets = [node.func.value]
            changed = [
                one for one in targets if isinstance(one, (ast.Attribute, ast.Subscript)) and root_of(one) in names
            ]
            found += [ast.unparse(one) for one in changed if ".todo" not in ast.unparse(one)]
    return found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("case.result.reasons.append('x')", ["case.result.reasons"]),
        ("case.result.flavor = 'open'", ["case.result.flavor"]),
        ("case.result.headers['a'] = []", ["case.result.headers['a']"]),
        ("case.result.packages += ['x']", ["case.result.packages"]),
        ("case = case.but('x', flavor='open')", []),
        ("reasons = []\n    reasons.append('x')", []),
    ],
)
def test_changes_of_arguments_are_found(line: str, expected: list[str]) -> None:
    assert sorted(set(mutated(f"def step(case: Case):\n    {line}"))) == expected


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_step_changes_its_arguments(path: Path) -> None:
    assert mutated(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("kind", [Resolution, DriverPlan])
def test_a_resolution_is_frozen_and_its_changes_are_a_copy(kind: type[Resolution]) -> None:
    first = kind(reasons=["a"])
    second = first.but("b", flavor="open").refused("no")
    assert (first.reasons, first.flavor, first.errors) == (["a"], None, [])
    assert (second.reasons, second.flavor, second.errors) == (["a", "b"], "open", ["no"])
    assert isinstance(second, kind)
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.flavor = "open"  # type: ignore[misc]
