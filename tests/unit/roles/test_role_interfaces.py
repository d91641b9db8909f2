# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role's argument_specs promise is what its defaults do. Neither Ansible nor a linter holds the two together."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
import yaml

ROLES = sorted(path for path in (Path(__file__).resolve().parents[3] / "roles").iterdir() if (path / "tasks").is_dir())
TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "path": (str,),
    "raw": (object,),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "list": (list,),
    "dict": (dict,),
}

every_role = pytest.mark.parametrize("role", ROLES, ids=lambda path: path.name)


def load(path: Path) -> dict[str, t.Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {}


def defaults(role: Path) -> dict[str, t.Any]:
    path = role / "defaults" / "main.yml"
    return load(path) if path.exists() else {}


def options(role: Path) -> dict[str, dict[str, t.Any]]:
    return load(role / "meta" / "argument_specs.yml")["argument_specs"]["main"].get("options", {})


def is_template(value: t.Any) -> bool:
    return isinstance(value, str) and "{{" in value


def nested(specs: dict[str, dict[str, t.Any]], path: str = "") -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    for name, spec in specs.items():
        yield f"{path}{name}", spec
        yield from nested(spec.get("options", {}), f"{path}{name}.")


def sources(role: Path) -> str:
    files = [path for path in role.rglob("*") if path.suffix in (".yml", ".j2") and path.parent.name != "meta"]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def test_there_are_roles() -> None:
    assert {path.name for path in ROLES} >= {"observe", "nvidia_driver", "nvidia_persistenced", "container_engine"}


@every_role
def test_every_default_is_specified_and_every_option_has_a_default_or_is_required(role: Path) -> None:
    optional = {name for name, spec in options(role).items() if not spec.get("required")}
    assert set(defaults(role)) == optional


@every_role
def test_defaults_and_specs_agree(role: Path) -> None:
    for name, value in defaults(role).items():
        spec = options(role)[name]
        if is_template(value):
            assert "default" not in spec, f"{name}: its default is computed, so the spec cannot state it"
            continue
        assert "default" in spec, f"{name}: the spec does not state its default {value!r}"
        assert (spec["default"], type(spec["default"])) == (value, type(value)), name


@every_role
def test_defaults_pass_their_own_specs(role: Path) -> None:
    for name, value in defaults(role).items():
        spec = options(role)[name]
        if is_template(value):
            continue
        kind = spec.get("type", "str")
        assert isinstance(value, TYPES[kind]), f"{name}: {value!r} is not of type {kind}"
        assert kind == "bool" or not isinstance(value, bool), f"{name}: {value!r} is not of type {kind}"
        choices = spec.get("choices")
        for item in value if isinstance(value, list) else [value]:
            assert choices is None or item in choices, f"{name}: {item!r} is none of {choices}"


@every_role
def test_every_option_is_typed_and_described(role: Path) -> None:
    for name, spec in nested(options(role)):
        assert spec.get("type") in TYPES, f"{name}: has no type"
        assert spec.get("description"), f"{name}: has no description"
        if spec["type"] == "list":
            assert spec.get("elements") in TYPES, f"{name}: does not say of what it is a list"


@every_role
def test_the_entry_point_is_described(role: Path) -> None:
    main = load(role / "meta" / "argument_specs.yml")["argument_specs"]["main"]
    assert main.get("short_description")
    assert main.get("description")


@every_role
def test_public_names_bear_the_roles_name(role: Path) -> None:
    for name in options(role):
        assert name.startswith(f"{role.name}_"), name


@every_role
def test_every_option_is_used(role: Path) -> None:
    text = "\n".join(line for line in sources(role).splitlines() if not re.match(rf"{role.name}_\w+:", line))
    for name in options(role):
        assert re.search(rf"\b{name}\b", text), f"{name}: nothing in the role reads it"


def set_by_tasks(node: t.Any) -> t.Iterator[str]:
    """Names that tasks register or set as facts."""
    if isinstance(node, list):
        for item in node:
            yield from set_by_tasks(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in ("ansible.builtin.set_fact", "vars"):
                yield from value
            elif key == "register":
                yield value
            yield from set_by_tasks(value)


@every_role
def test_no_variable_of_the_role_is_unspecified(role: Path) -> None:
    known = set(options(role))
    text = ""
    for path in sorted((role / "tasks").rglob("*.yml")):
        known |= set(set_by_tasks(load(path)))
        text += path.read_text(encoding="utf-8")
    # A dot or quote before it: a filter, a module or a text.
    for name in sorted(set(re.findall(rf"(?<![\w.\"'/]){role.name}_\w+", text))):
        assert name in known, f"{name} is used, and is neither an option nor set by the role"
