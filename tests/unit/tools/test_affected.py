# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tests a change selects."""

from __future__ import annotations

import subprocess

import pytest
import yaml

from ansible_collections.gpufleet.hosts.tools import affected

TABLE = {
    "scenarios": {"one": 100, "two": 300},
    "rows": {
        "plugins/": {"scenarios": ["one"]},
        "plugins/deep/": {"scenarios": ["two"], "targets": ["solver"]},
        "docs/": {"tests": ["tests/unit/pages"]},
    },
}
WITH_ANSIBLE = {"tests/unit/playbooks", "tests/unit/roles"}
IMPORTERS = {
    "plugins/deep/low.py": {"plugins/high.py"},
    "plugins/high.py": {"tests/unit/test_high.py", "tests/unit/samples.py"},
    "tests/unit/samples.py": {"tests/unit/test_samples.py"},
    "plugins/all.py": {"tests/unit/conftest.py"},
}
USERS = {"molecule/two/tasks": {"one", "two"}, "molecule/two/vars": {"two"}}


@pytest.mark.parametrize(
    ("changed", "scenarios", "targets", "tests"),
    [
        ([], set(), set(), set()),
        (["docs/a.md"], set(), set(), {"tests/unit/pages"}),
        (["molecule/two/vars/a.yml"], {"two"}, set(), set()),
        # Another scenario includes these tasks.
        (["molecule/two/tasks/a.yml"], {"one", "two"}, set(), set()),
        # The longest row decides, and tests that import the file through others are selected.
        (
            ["plugins/deep/low.py"],
            {"two"},
            {"solver"},
            WITH_ANSIBLE | {"tests/unit/test_high.py", "tests/unit/test_samples.py"},
        ),
        (["plugins/deepest.py", "docs/a.md"], {"one"}, set(), WITH_ANSIBLE | {"tests/unit/pages"}),
        (["plugins/all.py"], {"one"}, set(), WITH_ANSIBLE | {"tests/unit"}),
        (["tests/unit/test_new.py", "docs/a.md"], {"one", "two"}, {"solver"}, {"tests/unit"}),
        # The folder of a scenario that was removed selects nothing.
        (["molecule/gone/molecule.yml"], set(), set(), set()),
    ],
)
def test_a_change_selects(changed, scenarios, targets, tests):
    found = affected.select(changed, TABLE, IMPORTERS, USERS)
    assert (found.scenarios, found.targets, found.tests) == (scenarios, targets, tests)


def test_a_folder_is_used_by_the_scenarios_that_name_it():
    texts = {
        "molecule/driver/molecule.yml": "",
        "molecule/driver/tasks/cycle.yml": "include_tasks: ../../engines/tasks/play.yml",
        "molecule/driver/vars/main.yml": "",
        "molecule/engines/tasks/play.yml": "",
        "molecule/removal/prepare.yml": "src: ../driver/files/snapshot.sh",
        "molecule/ubuntu/converge.yml": "include_tasks: ../driver/tasks/{{ item }}.yml",
        "molecule/ubuntu/molecule.yml": "--inventory=${MOLECULE_PROJECT_DIRECTORY}/molecule/ubuntu/inventory/hosts.yml",
        "molecule/ubuntu_old/molecule.yml": "converge: ../ubuntu/converge.yml",
    }
    users = affected.users_of(texts)
    assert users["molecule/driver/tasks"] == {"driver", "ubuntu", "ubuntu_old"}
    assert users["molecule/engines/tasks"] == {"driver", "engines", "ubuntu", "ubuntu_old"}
    assert users["molecule/driver/files"] == {"removal"}
    assert users["molecule/driver/vars"] == {"driver"}


def test_a_changed_test_selects_itself():
    table = {"scenarios": {}, "rows": {"tests/unit/": {}}}
    assert affected.select(["tests/unit/test_a.py"], table, {}, {}).tests == {"tests/unit/test_a.py"}


def test_the_report_names_what_is_left_out_and_what_has_no_row():
    text = affected.report(affected.select(["plugins/deep/low.py"], TABLE, {}, {}), TABLE)
    assert "scenarios: two (75 % of the time of all)" in text
    assert "left out: one" in text
    text = affected.report(affected.select(["new/file"], TABLE, {}, {}), TABLE)
    assert "so everything is selected: new/file" in text
    assert "left out: nothing" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from ansible_collections.gpufleet.hosts.plugins.a import b\n", {"plugins/a/b.py"}),
        ("from ansible_collections.gpufleet.hosts.plugins.a.b import c\n", {"plugins/a/b.py"}),
        ("import ansible_collections.gpufleet.hosts.plugins.a.b\n", {"plugins/a/b.py"}),
        ("def f():\n    from . import b\n", {"plugins/a/b.py"}),
        ("from ..a.b import c\n", {"plugins/a/b.py"}),
        ("import json\nfrom pathlib import Path\n", set()),
    ],
)
def test_imports_are_found(text, expected):
    assert affected.imported("plugins/a/x.py", text, frozenset({"plugins/a/b.py", "plugins/a/x.py"})) == expected


@pytest.mark.parametrize(
    ("scenarios", "message"),
    [
        (["one", "two", "three"], "differ from those in molecule/: three"),
        (["one"], "differ from those in molecule/: two"),
    ],
)
def test_a_scenario_that_the_table_lacks_is_an_error(scenarios, message):
    with pytest.raises(affected.UnusableTable, match=message):
        affected.check(TABLE, scenarios)


def repository() -> tuple[dict, list[str]]:
    table = yaml.safe_load((affected.ROOT / "tests/affected.yml").read_text(encoding="utf-8"))
    files = subprocess.run(
        ["git", "ls-files"], cwd=affected.ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return table, files


def test_each_file_of_the_repository_has_a_row_and_each_row_a_file():
    table, files = repository()
    affected.check(table, (path.parent.name for path in affected.ROOT.glob("molecule/*/molecule.yml")))
    folders = ("plugins/", "roles/", "playbooks/", "tests/", "docs/", "inventory/", "meta/", "tools/")
    assert [path for path in files if path.startswith(folders) and affected.row_of(path, table["rows"]) is None] == []
    assert [row for row in table["rows"] if not any(path.startswith(row) for path in files)] == []


def test_each_package_has_a_row_of_its_own():
    # So that a new package is not tested by the scenarios of another one.
    table, files = repository()
    packages = {
        "/".join(path.split("/")[:3]) + "/"
        for path in files
        if path.startswith("plugins/module_utils/") and path.count("/") > 2
    }
    packages |= {
        "/".join(path.split("/")[:2]) + "/" for path in files if path.startswith("roles/") and path.count("/") > 1
    }
    assert sorted(package for package in packages if package not in table["rows"]) == []


def test_scenarios_do_not_select_each_other():
    table, _files = repository()
    found = affected.select([f"molecule/{name}/molecule.yml" for name in ("default", "drift")], table, {}, {})
    assert (found.scenarios, found.unknown) == ({"default", "drift"}, [])
