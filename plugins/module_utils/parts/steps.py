# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a plan: what a run does, said once. Texts, items, interruptions and the tasks that act come from them.

`roles/observe/tasks/steps.yml` applies steps by kind. The functions here create them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import Disruption

PACKAGES, FILE, USER, RELOAD, SERVICE, SETTING = "packages", "file", "user", "reload", "service", "setting"
# The kinds in the order in which a run applies them. A removal begins with the services, and ends with the packages.
KINDS = (PACKAGES, USER, FILE, RELOAD, SERVICE, SETTING)


@dataclasses.dataclass(frozen=True)
class Step:
    """One step. `target`: the packages, the path, the unit or the user. `data`: what the tasks need."""

    kind: str
    target: str
    # An imperative text for the user.
    text: str
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    why: str = ""
    # What the step interrupts on the host.
    disrupts: tuple[Disruption, ...] = ()

    def items(self) -> list[tuple[str, str]]:
        """Return kind and name of what the step keeps on the host, which nothing is for a removal."""
        if self.kind == PACKAGES:
            return [("package", name.partition("=")[0]) for name in self.data.get("install", ())]
        if self.kind == FILE:
            return [(FILE, self.target)] if self.data["content"] is not None else []
        if self.kind == SERVICE:
            return [(SERVICE, self.target)] if self.data.get("state") != "stopped" else []
        return [(self.data["item"], self.target)] if self.data.get("item") else []


def install(names: Iterable[str], *, why: str = "", may_upgrade: bool = False) -> Step:
    """Install packages, given as name or name=version."""
    names = list(names)
    bare = ", ".join(name.partition("=")[0] for name in names)
    return Step(PACKAGES, bare, f"install {bare}", {"install": names, "may_upgrade": may_upgrade}, why)


def remove(names: Iterable[str], *, why: str = "") -> Step:
    """Remove packages of the role's record."""
    names = list(names)
    return Step(PACKAGES, ", ".join(names), f"remove {', '.join(names)}", {"remove": names}, why)


def file(path: str, content: str | None, *, mode: str = "0644", why: str = "") -> Step:
    """Write a file, or remove it if `content` is None."""
    verb = "remove" if content is None else "write"
    return Step(FILE, path, f"{verb} {path}", {"content": content, "mode": mode}, why)


def user(name: str, *, why: str = "") -> Step:
    """Create a system user without a home directory."""
    return Step(USER, name, f"create user {name}", {}, why)


def reload(unit: str | None = None, *, why: str = "", disrupts: tuple[Disruption, ...] = ()) -> Step:
    """Reload systemd because unit files changed, and restart a unit with them."""
    text = f"reload systemd and restart {unit}" if unit else "reload systemd"
    return Step(RELOAD, unit or "systemd", text, {"restart": unit}, why, disrupts)


def service(unit: str, *, enable: bool = False, start: bool = False, unmask: bool = False, why: str = "") -> list[Step]:
    """Unmask a unit, then enable and start it, as far as needed."""
    verbs = [verb for verb, wanted in (("enable", enable), ("start", start)) if wanted]
    data = {"masked": None, "enabled": enable or None, "state": "started" if start else None}
    opened = {"masked": False, "enabled": None, "state": None}
    steps = [Step(SERVICE, unit, f"unmask {unit}", opened, why)] if unmask else []
    return steps + ([Step(SERVICE, unit, f"{' and '.join(verbs)} {unit}", data, why)] if verbs else [])


def stop(unit: str, *, why: str = "", disrupts: tuple[Disruption, ...] = ()) -> Step:
    """Disable and stop a unit."""
    data = {"masked": None, "enabled": False, "state": "stopped"}
    return Step(SERVICE, unit, f"disable and stop {unit}", data, why, disrupts)


def setting(target: str, text: str, item: str, *, why: str = "") -> Step:
    """Change something for which the role has tasks of its own. `item`: the kind of what stays."""
    return Step(SETTING, target, text, {"item": item}, why)


def texts(steps: Iterable[Step]) -> list[str]:
    """Return the texts of the steps for the user, in their order."""
    return [step.text for step in steps]


def disruptions(steps: Iterable[Step]) -> list[Disruption]:
    """Return what the steps interrupt, each interruption once."""
    return list(dict.fromkeys(one for step in steps for one in step.disrupts))
