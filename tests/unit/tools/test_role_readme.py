# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of variables in the roles' README files."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.gpufleet.hosts.tools import role_readme

README = f"# A role\n\nWritten by hand.\n\n{role_readme.BEGIN}\n{role_readme.END}\n\nAlso by hand.\n"


@pytest.fixture
def role(tmp_path):
    """Create a role with an empty table."""
    path = tmp_path / "roles" / "engine"
    specify(path, {"engine_name": {"type": "str", "choices": ["docker", "podman"], "description": "The engine."}})
    (path / "defaults").mkdir()
    (path / "defaults/main.yml").write_text("engine_name: docker\n")
    (path / "README.md").write_text(README)
    return path


def specify(role, options):
    """Write the argument specification."""
    (role / "meta").mkdir(parents=True, exist_ok=True)
    (role / "meta/argument_specs.yml").write_text(yaml.safe_dump({"argument_specs": {"main": {"options": options}}}))


def run(role, *arguments):
    """Run the tool on the collection of the role."""
    return role_readme.main(["--root", str(role.parents[1]), *arguments])


@pytest.mark.parametrize(
    ("description", "markdown"),
    [
        ("Plain.", "Plain."),
        (["One.", "Two."], "One.<br>Two."),
        ("Set C(a|b).", "Set <code>a&#124;b</code>."),
        ("a|b, <x>, *y*, _z_, snake_case", r"a\|b, &lt;x>, \*y\*, \_z\_, snake_case"),
        ("V(true) with O(engine_name=docker), O(engine_name)", "`true` with `engine_name: docker`, `engine_name`"),
        (
            "M(gpufleet.hosts.gpu_container), P(gpufleet.hosts.x#filter)",
            "`gpufleet.hosts.gpu_container`, `gpufleet.hosts.x`",
        ),
        (
            "L(The guide,https://a.example/b) or U(https://c.example)",
            "[The guide](https://a.example/b) or <https://c.example>",
        ),
        ("I(this) B(that) E(HOME) RV(report)", "*this* **that** `HOME` `report`"),
    ],
)
def test_markup_is_converted_to_markdown_for_a_table_cell(description, markdown):
    assert role_readme.render(description) == markdown


@pytest.mark.parametrize(
    ("option", "cells"),
    [
        ({"default": ""}, 'str | `""` |  | '),
        ({"type": "bool", "default": True}, "bool | `true` |  | "),
        ({"type": "list", "elements": "path", "default": []}, "list of path | `[]` |  | "),
        ({"type": "str", "required": True}, "str | required |  | "),
        ({"type": "int", "choices": [1, 2]}, "int |  | `1`, `2` | "),
    ],
)
def test_type_default_and_choices_of_a_variable_are_shown(option, cells):
    found = role_readme.table({"argument_specs": {"main": {"options": {"engine_x": option}}}}, {})
    assert found.splitlines()[-1] == f"| `engine_x` | {cells} |"


def test_keys_of_a_variable_are_listed_after_it():
    options = {"engine_user": {"type": "dict", "options": {"name": {"description": "Its name."}}}}
    found = role_readme.table({"argument_specs": {"main": {"options": options}}}, {})
    assert found.splitlines()[-1] == "| `engine_user.name` | str |  |  | Its name. |"


def test_a_changed_specification_rewrites_only_the_table(role, capsys):
    assert run(role, "--check") == 1
    assert "roles/engine/README.md: The table of variables is out of date. Run `make docs`." in capsys.readouterr().err
    assert run(role) == 0
    text = (role / "README.md").read_text()
    assert "| `engine_name` | str | `docker` | `docker`, `podman` | The engine. |" in text
    assert text.startswith("# A role\n\nWritten by hand.\n\n")
    assert text.endswith("\n\nAlso by hand.\n")
    assert run(role, "--check") == 0
    specify(role, {"engine_name": {"type": "str", "description": "Another text."}})
    assert run(role, "--check") == 1


@pytest.mark.parametrize(
    ("readme", "message"),
    [
        (None, "The file is missing, and Galaxy rejects a role without it."),
        ("# A role\n", "The table's place is not marked."),
    ],
)
def test_a_readme_without_markers_for_the_table_is_named(role, capsys, readme, message):
    (role / "README.md").unlink()
    if readme:
        (role / "README.md").write_text(readme)
    assert run(role) == 1
    assert f"roles/engine/README.md: {message}" in capsys.readouterr().err


def test_unknown_markup_is_named(role, capsys):
    specify(role, {"engine_name": {"description": "See F(/etc/x)."}})
    assert run(role) == 1
    assert "roles/engine/README.md: Ansible knows no markup like F(/etc/x)." in capsys.readouterr().err
