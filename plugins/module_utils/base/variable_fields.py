# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Define a role's variables as the fields of a dataclass, and read a user's values into it.

The dataclass is the only definition: a unit test checks the defaults and the argument specs of the role against it.
Argument validation accepts text for booleans, numbers and lists, but does not convert it: `-e key=value`, INI
inventories and surveys pass only text. `read` converts it.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Callable, TypeVar

from ansible.module_utils.common.validation import check_type_bool, check_type_dict, check_type_int, check_type_list

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins

Request = TypeVar("Request")


class VariableError(Exception):
    """A variable has an invalid value. The text names the variable, the value and what to write instead."""


@dataclasses.dataclass(frozen=True)
class Variable:
    """The rules for one variable. An empty value always stands for the default."""

    kind: str
    choices: Sequence[str] = ()
    form: str = ""
    sample: str = ""
    minimum: int | None = None
    maximum: int | None = None
    mask: Callable[[str], str] = url_logins.refused


def variable(
    default: Any,
    kind: str = "",
    *,
    choices: Sequence[str] = (),
    form: str = "",
    sample: str = "",
    minimum: int | None = None,
    maximum: int | None = None,
    mask: Callable[[str], str] = url_logins.refused,
) -> Any:
    """Return a dataclass field for a variable.

    `kind` is str, bool, int, list, dict or "bool or auto"; by default the type of `default`. `choices`, or the regular
    expression `form` with its `sample` for messages, apply to the text or to each element of the list. `minimum` and
    `maximum` are for numbers, in the unit of the variable. `mask` hides the secrets in a value that a message shows.
    """
    rules = Variable(kind or type(default).__name__, choices, form, sample, minimum, maximum, mask)
    # The fields of dataclasses call this function.
    return dataclasses.field(  # pylint: disable=invalid-field-call
        default_factory=lambda: copy.copy(default), metadata={"variable": rules}
    )


def table(request: type) -> dict[str, tuple[Variable, Any]]:
    """Return the rules and the default of each variable, by its name without the role's prefix."""
    return {
        field.name: (field.metadata["variable"], field.default_factory())  # type: ignore[misc]
        for field in dataclasses.fields(request)  # type: ignore[arg-type]
    }


def read(request: type[Request], role: str, values: Mapping[str, Any]) -> Request:
    """Return the request with the user's values, converted and checked. Unknown names are an error.

    Names in `values` have no role prefix.
    """
    rules = {name: rule for name, (rule, _default) in table(request).items()}
    unknown = sorted(set(values) - set(rules))
    if unknown:
        raise VariableError(
            f"Role {role} has no variable {', '.join(f'{role}_{name}' for name in unknown)}. Its variables: "
            f"{', '.join(f'{role}_{name}' for name in sorted(rules))}."
        )
    given = {
        name: _converted(f"{role}_{name}", rules[name], value)
        for name, value in values.items()
        if value is not None and value != ""
    }
    return request(**given)


def _converted(name: str, rule: Variable, value: Any) -> Any:
    convert, kind = _KINDS[rule.kind]
    if rule.kind in ("str", "list"):
        _refuse_float(name, value)
    try:
        result = convert(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        form = f" Use the form {rule.sample}." if rule.kind == "dict" and rule.sample else ""
        raise VariableError(f"{name} is {shown(value, rule.mask)}, but must be {kind}.{form}") from error
    if rule.minimum is not None and result < rule.minimum:
        raise VariableError(f"{name} is {result}, but must be {rule.minimum} or more.")
    if rule.maximum is not None and result > rule.maximum:
        raise VariableError(f"{name} is {result}, but must be at most {rule.maximum}.")
    if isinstance(result, list):
        for element in result:
            _check(f"{name} contains", rule, element)
    elif rule.kind == "str":
        _check(f"{name} is", rule, result)
    return result


def _refuse_float(name: str, value: Any) -> None:
    """Refuse a number with a decimal point for text: it may be a version that YAML has shortened."""
    is_list = isinstance(value, (list, tuple))
    number = next((item for item in (value if is_list else [value]) if isinstance(item, float)), None)
    if number is not None:
        raise VariableError(
            f"{name} {'contains' if is_list else 'is'} {number}, which YAML read as a number without its trailing "
            'zeros: for example, 20.10 becomes 20.1. Write the value in quotes, as in "20.10".'
        )


def _check(subject: str, rule: Variable, text: str) -> None:
    if rule.choices and text not in rule.choices:
        raise VariableError(f"{subject} {shown(text)}, but must be one of {', '.join(rule.choices)}.")
    if rule.form and not re.fullmatch(rule.form, text):
        raise VariableError(f"{subject} {shown(text)}, which is not valid. Use the form {rule.sample}.")


def shown(value: Any, mask: Callable[[str], str] = url_logins.refused) -> str:
    """Return a value as messages show it: on one line, with secrets masked. By default, these are logins in URLs."""
    return mask(value if isinstance(value, str) and value and value.isprintable() else repr(value))


def plain(value: Any) -> Any:
    """Return a value with plain dictionaries and lists in place of dataclasses and the containers of templates.

    `dataclasses.asdict` cannot copy the containers that Ansible's templates pass to filters.
    """
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _text(value: Any) -> str:
    if isinstance(value, (dict, list, tuple, bool)):
        raise TypeError(value)
    # YAML reads an unquoted branch such as 580 as a number.
    return str(value).strip()


def _words(value: Any) -> list[str]:
    words = [str(word).strip() for word in check_type_list(value)]
    return [] if words == [""] and not isinstance(value, list) else words


def _bool_or_auto(value: Any) -> bool | str:
    return value if value == "auto" else check_type_bool(value)


_KINDS = {
    "str": (_text, "text"),
    "bool": (check_type_bool, "true or false"),
    "int": (check_type_int, "a whole number"),
    "list": (_words, "a list"),
    "dict": (check_type_dict, "a dictionary"),
    "bool or auto": (_bool_or_auto, "auto, true or false"),
}
