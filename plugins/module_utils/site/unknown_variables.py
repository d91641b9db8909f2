# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of all roles and playbooks, and the check for unknown names that look like a variable."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import drain_decision as site_drain
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.registry import OUTPUTS, REQUESTS

_DRAIN = [f"drain_{name}" for name in variable_fields.table(site_drain.SiteDrainRequest)]
# The variables of playbooks, without the prefix. Playbooks dlami and plan also read those of playbook site.
PLAYBOOKS: dict[str, list[str]] = {
    "site": ["adopt", "serial", "max_fail_percentage", "cloud_init_timeout", *_DRAIN],
    "dlami": ["image", "cloud_init_timeout", "docker_on_nvme"],
    "verify": ["expected_gpus", "expected_pcie_width", "container", "file"],
}

_NAMES = {role: list(variable_fields.table(request)) for role, request in REQUESTS.items()}
_KNOWN = OUTPUTS | {f"{role}_{name}" for role, names in _NAMES.items() for name in names}
_PREFIXES = tuple(f"{role}_" for role in REQUESTS)
_MOST_NEAR_NAMES = 3
_CUTOFF = 0.8


@dataclasses.dataclass
class Names:
    """Full sentences about unknown names."""

    errors: list[str]
    warnings: list[str]


def unset(role: str, values: Mapping[str, Any]) -> list[str]:
    """Return an error for each empty value of a variable that has no empty value. The roles' tasks read them, too."""
    rules = variable_fields.table(REQUESTS[role])
    return [
        f"{role}_{name} is {value!r}. Set one of its values, or remove the variable to use the default."
        for name, value in values.items()
        if (rules[name][0].kind in ("bool", "int", "bool or auto") or rules[name][1] in rules[name][0].choices)
        and (value is None or (isinstance(value, str) and value != (value.strip() or None)))
    ]


def unknown_names(names: Iterable[str]) -> Names:
    """Check the names that have the prefix of a role but are no variable of a role.

    A name that is close to a variable is an error. Any other name can be a variable of the playbook, such as a
    registered result, and is a warning.

    The prefixes of playbooks, such as `site_`, are common in inventories. With them, only a name that is close to a
    variable of the playbook is reported. A name whose prefix resembles that of a role is a warning if its rest is
    exactly an option of this role.
    """
    names = list(names)
    found = Names(_unknown_of_playbooks(names), [])
    for name in sorted(name for name in names if name.startswith(_PREFIXES) and name not in _KNOWN):
        role = next(role for role in REQUESTS if name.startswith(f"{role}_"))
        near = _near_variables(role, name[len(role) + 1 :])
        text = f"{name} is not a variable of role {role}"
        if near:
            found.errors.append(f"{text}. Did you mean {_alternatives(near)}?")
        else:
            found.warnings.append(
                f"{text} and has no effect. 'ansible-doc -t role gpufleet.hosts.{role}' lists its variables."
            )
    for name in sorted(name for name in names if not name.startswith(("_", *_PREFIXES)) and name not in _KNOWN):
        meant = _with_misspelled_role(name)
        if meant:
            found.warnings.append(
                f"{name} is not a variable of this collection and has no effect on it. Did you mean {meant}?"
            )
    return found


@lru_cache(maxsize=4096)  # the hosts of a run have the same names
def _with_misspelled_role(name: str) -> str | None:
    """Return the variable whose role is misspelled in a name: container_engin_name for container_engine_name."""
    for place in (place for place, letter in enumerate(name) if letter == "_"):
        prefix, rest = name[:place], name[place + 1 :]
        for role in (role for role, names in _NAMES.items() if rest in names):
            # Users put words of their own before a name, as in vault_nvidia_driver_proxy.
            if not prefix.endswith(f"_{role}") and _closest(prefix, [role]):
                return f"{role}_{rest}"
    return None


def _unknown_of_playbooks(names: list[str]) -> list[str]:
    errors = []
    for playbook, known in PLAYBOOKS.items():
        rests = [name[len(playbook) + 1 :] for name in names if name.startswith(f"{playbook}_")]
        for rest in sorted(rest for rest in rests if rest not in known):
            near = [f"{playbook}_{name}" for name in _closest(rest, known)]
            if near:
                text = f"{playbook}_{rest} is not a variable of playbook {playbook}"
                errors.append(f"{text}. Did you mean {_alternatives(near)}?")
    return errors


def _near_variables(role: str, rest: str) -> list[str]:
    """Return the closest variables, best first. `rest` is the name without the prefix of `role`.

    Whole names are not compared: two names with the same long prefix are always similar, for example
    container_engine_result and container_engine_source.
    """
    near = [f"{role}_{name}" for name in _closest(rest, _NAMES[role])]
    # A variable with the prefix of another role. Names of one word, such as version, are too common to be a mistake.
    for other in () if near else _NAMES:
        near += [f"{other}_{name}" for name in _closest(rest, [name for name in _NAMES[other] if "_" in name])]
    return near[:_MOST_NEAR_NAMES]


def _closest(rest: str, names: list[str]) -> list[str]:
    near = difflib.get_close_matches(rest, names, _MOST_NEAR_NAMES, _CUTOFF)
    # Two swapped letters in a short name, such as naem for name, have a ratio below the cutoff.
    return near or [name for name in names if _has_swapped_letters(rest, name)]


def _has_swapped_letters(one: str, two: str) -> bool:
    """Return whether two texts differ only in the order of two neighboring letters."""
    differing = [place for place, letters in enumerate(zip(one, two)) if letters[0] != letters[1]]
    if len(one) != len(two) or len(differing) != 2:
        return False
    first, second = differing
    return second == first + 1 and one[first] == two[second] and one[second] == two[first]


def _alternatives(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
