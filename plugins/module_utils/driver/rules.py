# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the data of a platform is read: rules that name packages, and rules that tell kernels apart.

What each key means is in `docs/driver.md`.
"""

from __future__ import annotations

import re

# What these can be in a package's name; the "open" that some names end with is none of it.
_FILLED = {"branch": r"\d+", "release": r"\d.+", "kernel": r"(?!open-)[a-z0-9].*", "series": r".*"}


def kernels(host: dict) -> list[str]:
    """Return the releases that the driver has to be there for: the running one and the one that boots next."""
    return list(dict.fromkeys([host["kernel"]["running"], host["kernel"]["next_boot"]]))


def kernel_rule(release: str, data: dict) -> dict:
    """Return what the platform's data says of a kernel: names to fill in, headers, prebuilt modules."""
    for rule in data["kernels"]:
        match = re.search(rule["match"], release)
        if match:
            return {**rule, "names": {**match.groupdict(), "release": release}}
    return {"names": {"release": release}, "headers": None, "precompiled": False}


def pattern(name: str) -> str:
    """Turn a rule's name into a pattern that matches it with any branch, kernel or architecture filled in."""
    parts = re.split(r"\{(\w+)\}", name)
    return "".join(_FILLED.get(part, ".+") if index % 2 else re.escape(part) for index, part in enumerate(parts))


def applies(rule: dict, context: dict) -> bool:
    """Tell whether a rule is for what was chosen so far; what is not yet chosen excludes no rule."""
    branch = context.get("branch")
    return (
        rule.get("flavor") in (None, context.get("flavor"))
        and ("build" not in rule or "build" not in context or rule["build"] == context["build"])
        and ("arch" not in rule or rule["arch"] == context["arch"])
        and ("component" not in rule or rule["component"] in context.get("components", [rule["component"]]))
        and ("when" not in rule or rule["when"] in context.get("features", [rule["when"]]))
        and ("from" not in rule or int(branch) >= int(rule["from"]))
        and ("until" not in rule or int(branch) <= int(rule["until"]))
    )
