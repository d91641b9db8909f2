# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples of module package_transaction and of docs/packages.md use the module's options."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import repository_options as repositories

ROOT = Path(__file__).resolve().parents[4]
NAME = "gpufleet.hosts.package_transaction"
MODULE = ast.parse((ROOT / "plugins/modules/package_transaction.py").read_text(encoding="utf-8"))
TEXTS = {
    node.targets[0].id: ast.literal_eval(node.value)
    for node in MODULE.body
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant)
}
OPTIONS = yaml.safe_load(TEXTS["DOCUMENTATION"])["options"]
PAGE = (ROOT / "docs/packages.md").read_text(encoding="utf-8")


def tasks(items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for item in items:
        yield from item.get("tasks", [item])


CASES = [
    pytest.param(task[NAME], id=f"{place}: {task['name']}")
    for place, texts in (
        ("module", [TEXTS["EXAMPLES"]]),
        ("page", re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)),
    )
    for text in texts
    for task in tasks(yaml.safe_load(text))
    if NAME in task
]


def check(given: dict[str, Any], options: dict[str, Any]) -> None:
    assert {name for name, option in options.items() if option.get("required")} <= set(given) <= set(options)
    for name, value in given.items():
        option = options[name]
        assert isinstance(value, {"list": list, "int": int, "bool": bool}.get(option["type"], str)), name
        assert value in option.get("choices", [value])
        for item in value if "suboptions" in option else []:
            check(item, option["suboptions"])


@pytest.mark.parametrize("given", CASES)
def test_an_example_is_valid(given: dict[str, Any]) -> None:
    check(given, OPTIONS)
    assert re.fullmatch(r"[a-z0-9_]+", given["record"])
    # The repositories of the examples are for apt.
    assert len(repositories.read(given.get("repositories", []), "apt")) == len(given.get("repositories", []))


@pytest.mark.parametrize(
    "name", ["may_change", "may_upgrade", "keep", "hold", "release", "uses_repositories", "lock_timeout"]
)
def test_the_page_explains_the_options_by_their_names(name: str) -> None:
    assert name in OPTIONS
    assert f"`{name}" in PAGE
