# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which installed packages of a driver give way when another flavor, build or branch of it comes.

Names change with the branch: fabric manager, NSCQ and IMEX have others from 580 on, and on Ubuntu all have from 590 on.
The package of the old name and that of the new one have the same files, and not all of them say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.rules import applies, pattern


def must_go(host: dict, data: dict, context: dict) -> list[str]:
    """Name the installed packages that cannot stay: modules of the other flavor, another branch's other names."""
    staying = _staying(data, context)
    own = _any_of(rule for rule in data["packages"] if rule.get("lockstep", True))
    rivals = _any_of(_modules(data))

    def is_of_another_driver(name: str, version: str) -> bool:
        if rivals.fullmatch(name):
            return True
        return bool(own.fullmatch(name)) and upstream_version(version).partition(".")[0] != context["branch"]

    there = [name for name in host["packages"] if not staying.fullmatch(name)]
    return sorted(name for name in there if is_of_another_driver(name, host["packages"][name]["version"]))


def left_behind(host: dict, data: dict, context: dict) -> list[str]:
    """Name the removed packages of other modules whose files in /etc are there, and go on naming them to modprobe."""
    staying = _staying(data, context)
    return [name for name in modules(host["package_state"]["config_files"], data) if not staying.fullmatch(name)]


def modules(names: Iterable[str], data: dict) -> list[str]:
    """Pick the packages that have kernel modules, or name them to modprobe."""
    expression = _any_of(_modules(data))
    return [name for name in names if expression.fullmatch(name)]


def may_go(host: dict, data: dict, chosen: set[str], context: dict) -> list[str]:
    """Name the installed packages that the package manager may remove: these, and modules that are built otherwise."""
    rivals = _any_of([*_modules(data), *(rule for rule in data["packages"] if "{branch}" in rule["name"])])
    others = {name for name in host["packages"] if name not in chosen and rivals.fullmatch(name)}
    return sorted(others.union(must_go(host, data, context)))


def _staying(data: dict, context: dict) -> re.Pattern:
    """Match what the driver that is wanted may have, whatever its modules are built by."""
    same = {key: context[key] for key in ("flavor", "branch", "arch")}
    named = ({**rule, "name": rule["name"].replace("{branch}", same["branch"])} for rule in data["packages"])
    return _any_of(rule for rule in named if applies(rule, same))


def _modules(data: dict) -> list[dict]:
    return [rule for rule in data["packages"] if rule.get("module")]


def _any_of(rules: Iterable[dict]) -> re.Pattern:
    # A source without a rule of the kind has an expression that nothing matches.
    return re.compile("|".join(pattern(rule["name"]) for rule in rules) or "(?!)")
