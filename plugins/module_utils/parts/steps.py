# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a plan: what a run does, said once. Texts, items, interruptions and the tasks that act come from them.

`roles/observe/tasks/steps.yml` applies steps by kind. The functions here create them. A part with tasks of its own
for a step names only the kind of what stays (`listed`, `own`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import Disruption

PACKAGES, FILE, USER, RELOAD, SERVICE, SETTING = "packages", "file", "user", "reload", "service", "setting"
# The kinds in the order in which a run applies them. A removal begins with the services, and ends with the packages.
KINDS = (PACKAGES, USER, FILE, RELOAD, SERVICE, SETTING)
# What can stay on a host: kinds of items. Those of `setting` have further kinds.
PACKAGE, HOLD, OPTION, MODULE, BUILD, VOLUME = "package", "hold", "option", "module", "build", "volume"


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
    # Kind and name of each item that it keeps on the host. A removal keeps none.
    keeps: tuple[tuple[str, str], ...] = ()


def install(names: Iterable[str], *, why: str = "", may_upgrade: bool = False) -> Step:
    """Install packages, given as name or name=version."""
    names = list(names)
    bare = ", ".join(name.partition("=")[0] for name in names)
    data = {"install": names, "may_upgrade": may_upgrade}
    return Step(PACKAGES, bare, f"install {bare}", data, why, keeps=kept(PACKAGE, names))


def remove(names: Iterable[str], *, why: str = "") -> Step:
    """Remove packages of the role's record."""
    names = list(names)
    return Step(PACKAGES, ", ".join(names), f"remove {', '.join(names)}", {"remove": names}, why)


def file(path: str, content: str | None, *, mode: str = "0644", why: str = "") -> Step:
    """Write a file, or remove it if `content` is None."""
    verb = "remove" if content is None else "write"
    keeps = () if content is None else ((FILE, path),)
    return Step(FILE, path, f"{verb} {path}", {"path": path, "content": content, "mode": mode}, why, keeps=keeps)


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
    keeps = ((SERVICE, unit),)
    steps = [Step(SERVICE, unit, f"unmask {unit}", opened, why, keeps=keeps)] if unmask else []
    return steps + ([Step(SERVICE, unit, f"{' and '.join(verbs)} {unit}", data, why, keeps=keeps)] if verbs else [])


def stop(unit: str, *, why: str = "", disrupts: tuple[Disruption, ...] = ()) -> Step:
    """Disable and stop a unit."""
    data = {"masked": None, "enabled": False, "state": "stopped"}
    return Step(SERVICE, unit, f"disable and stop {unit}", data, why, disrupts)


def setting(target: str, text: str, item: str, *, why: str = "") -> Step:
    """Change something for which the role has tasks of its own. `item`: the kind of what stays."""
    return Step(SETTING, target, text, {"item": item}, why, keeps=((item, target),))


def own(kind: str, text: str, *, disrupts: Iterable[Disruption] = (), keeps: Iterable[tuple[str, str]] = ()) -> Step:
    """Do something for which the role has tasks of its own."""
    return Step(kind, "", text, disrupts=tuple(disrupts), keeps=tuple(keeps))


def options(text: str, tree: Mapping[str, Any], *, disrupts: Iterable[Disruption] = ()) -> Step:
    """Change options of daemon.json. `tree`: all that the role wants to stay there."""
    return Step(OPTION, "", text, disrupts=tuple(disrupts), keeps=kept(OPTION, leaves(tree)))


def leaves(tree: Mapping[str, Any], above: str = "") -> list[str]:
    """Return the dotted names of options."""
    return [
        name
        for key, value in tree.items()
        for name in (leaves(value, f"{above}{key}.") if isinstance(value, Mapping) and value else [above + key])
    ]


def interrupting(found: Sequence[Step], disrupts: Iterable[Disruption]) -> list[Step]:
    """Return the steps, the last of which interrupts something."""
    disrupts = tuple(disrupts)
    if not found or not disrupts:
        return list(found)
    return [*found[:-1], dataclasses.replace(found[-1], disrupts=(*found[-1].disrupts, *disrupts))]


def written(path: str, content: str | None) -> Step:
    """Write a file, or remove it if `content` is None, by tasks of the role's own, which have the content elsewhere."""
    return dataclasses.replace(file(path, content), data={})


def listed(kind: str, text: str, names: Iterable[str], *, item: str | None = None) -> list[Step]:
    """Return one step for all names, which the role's own tasks apply, or none without names.

    `text` has `{}` for the names. `item`: the kind of what stays.
    """
    names = list(names)
    shown = ", ".join(names)
    return [Step(kind, shown, text.format(shown), keeps=kept(item, names) if item else ())] if names else []


def kept(item: str, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return kind and name of items. `names` of packages may contain versions."""
    return tuple((item, name if name.startswith("~") else name.partition("=")[0]) for name in names)


def texts(steps: Iterable[Step]) -> list[str]:
    """Return the texts of the steps for the user, in their order."""
    return [step.text for step in steps]


def disruptions(steps: Iterable[Step]) -> list[Disruption]:
    """Return what the steps interrupt, each interruption once."""
    return list(dict.fromkeys(one for step in steps for one in step.disrupts))
