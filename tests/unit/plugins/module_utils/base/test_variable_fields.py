# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError, variable


@dataclasses.dataclass(frozen=True)
class Request:
    """The variables of an imaginary role."""

    color: str = variable("red", choices=("red", "green"))
    version: str = variable("", form=r"\d+\.\d+", sample="12.6")
    mirror: str = variable("", form="https://.*", sample="https://mirror.example")
    branch: str = variable("", form=r"\d+", sample="580")
    branches: list[str] = variable([], form=r"[\d.]+", sample="580")
    enabled: bool = variable(True)
    timeout: int = variable(60, minimum=1, maximum=90)
    names: list[str] = variable(["first"], form="[a-z]+", sample="nvtop")
    colors: list[str] = variable([], choices=("red", "green"))
    options: dict[str, Any] = variable({}, sample="{name: value}")
    mode: bool | str = variable("auto", kind="bool or auto")


ACCEPTED = [
    ("color", "green", "green"),
    ("color", " green\n", "green"),
    ("version", "20.10", "20.10"),
    # YAML reads an unquoted branch as a number, too, but without a loss.
    ("branch", 580, "580"),
    ("branches", [580, "595"], ["580", "595"]),
    ("branches", 580, ["580"]),
    ("enabled", "no", False),
    ("enabled", 1, True),
    ("timeout", "5", 5),
    ("timeout", 90, 90),
    ("names", "one,two", ["one", "two"]),
    ("names", ["one", " two "], ["one", "two"]),
    ("names", "one", ["one"]),
    ("names", [], []),
    ("names", " ", []),
    ("colors", ["red"], ["red"]),
    ("options", {"a": {"b": 1}}, {"a": {"b": 1}}),
    ("options", '{"a": 1}', {"a": 1}),
    ("options", "a=1", {"a": "1"}),
    ("mode", "auto", "auto"),
    ("mode", "true", True),
    ("mode", False, False),
]


@pytest.mark.parametrize(("name", "value", "expected"), ACCEPTED)
def test_value_is_converted(name, value, expected):
    result = getattr(variable_fields.read(Request, "role", {name: value}), name)
    assert (result, type(result)) == (expected, type(expected))


@pytest.mark.parametrize("empty", [None, ""])
def test_empty_value_is_the_default(empty):
    names = [field.name for field in dataclasses.fields(Request)]
    assert variable_fields.read(Request, "role", dict.fromkeys(names, empty)) == Request()


QUOTE = (
    "which YAML read as a number without its trailing zeros: for example, 20.10 becomes 20.1. Write the value in "
    'quotes, as in "20.10".'
)
REJECTED = [
    ("color", "blue", "role_color is blue, but must be one of red, green."),
    ("color", ["red"], "role_color is ['red'], but must be text."),
    ("color", True, "role_color is True, but must be text."),
    ("version", 20.10, f"role_version is 20.1, {QUOTE}"),
    ("version", float("inf"), f"role_version is inf, {QUOTE}"),
    ("branches", ["580", 580.10], f"role_branches contains 580.1, {QUOTE}"),
    ("branches", 580.10, f"role_branches is 580.1, {QUOTE}"),
    ("version", "12", "role_version is 12, which is not valid. Use the form 12.6."),
    ("version", "12.6\nx", r"role_version is '12.6\nx', which is not valid. Use the form 12.6."),
    ("enabled", "perhaps", "role_enabled is perhaps, but must be true or false."),
    ("enabled", [], "role_enabled is [], but must be true or false."),
    ("timeout", 0, "role_timeout is 0, but must be 1 or more."),
    ("timeout", "91", "role_timeout is 91, but must be at most 90."),
    ("timeout", "1.5h", "role_timeout is 1.5h, but must be a whole number."),
    ("timeout", float("inf"), "role_timeout is inf, but must be a whole number."),
    ("names", ["one", "Two"], "role_names contains Two, which is not valid. Use the form nvtop."),
    ("names", [""], "role_names contains '', which is not valid. Use the form nvtop."),
    ("names", {"one": 1}, "role_names is {'one': 1}, but must be a list."),
    ("colors", "red,blue", "role_colors contains blue, but must be one of red, green."),
    ("options", "fast", "role_options is fast, but must be a dictionary. Use the form {name: value}."),
    ("options", [1], "role_options is [1], but must be a dictionary. Use the form {name: value}."),
    ("mode", "always", "role_mode is always, but must be auto, true or false."),
    (
        "mirror",
        "user:secret@mirror",
        "role_mirror is ...@mirror, which is not valid. Use the form https://mirror.example.",
    ),
    (
        "names",
        ["http://user:secret@mirror"],
        "role_names contains http://...@mirror, which is not valid. Use the form nvtop.",
    ),
]


@pytest.mark.parametrize(("name", "value", "message"), REJECTED)
def test_invalid_value_is_rejected(name, value, message):
    with pytest.raises(VariableError) as error:
        variable_fields.read(Request, "role", {name: value})
    assert str(error.value) == message


def test_unknown_variables_are_named_with_the_known_ones():
    with pytest.raises(VariableError) as error:
        variable_fields.read(Request, "role", {"colour": "red", "color": "red", "zone": 1})
    assert str(error.value) == (
        "Role role has no variable role_colour, role_zone. Its variables: role_branch, role_branches, role_color, "
        "role_colors, role_enabled, "
        "role_mirror, role_mode, role_names, role_options, role_timeout, role_version."
    )


def test_requests_share_no_default():
    variable_fields.read(Request, "role", {}).names.append("second")
    assert Request().names == ["first"]
    assert variable_fields.table(Request)["names"][1] == ["first"]


def test_table_has_the_rules_and_defaults_of_base_classes():
    @dataclasses.dataclass(frozen=True)
    class Extended(Request):
        state: str = variable("present", choices=("present", "absent"))

    table = variable_fields.table(Extended)
    assert [*table][-1] == "state"
    assert {name: default for name, (_rule, default) in table.items()} == {**vars(Request()), "state": "present"}
    assert (table["timeout"][0].kind, table["timeout"][0].minimum) == ("int", 1)
    assert (table["mode"][0].kind, table["color"][0].choices) == ("bool or auto", ("red", "green"))
