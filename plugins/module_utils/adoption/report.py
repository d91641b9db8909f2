# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of playbook dlami: what it adopted, completed and left alone on a prepared image, and why.

Pure functions. The report has no times, so that a run that changes nothing does not change it, either.
"""

from __future__ import annotations

import json
import re
import textwrap
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.adoption import holds_of_image_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.aws import instance_families
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import option_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.holds import (
    hold_support,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence import plan as persistence
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import package_plan as toolkit_packages

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.adoption.allowed_on_image import Adoption
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

ADOPTED, COMPLETED, LEFT_ALONE = "adopted", "completed", "left_alone"
SCHEMA = 1
_HEADINGS = ("PART", "STATE", "VERSION", "REASON")
_WIDTH = 100
_ENGINES = ("docker", "podman", "containerd")
_TOOLKIT = "nvidia-container-toolkit"
_ROLE_OF_TOOLKIT = "nvidia_container_toolkit"
# What the report names apart from the part that configures it: this part, and the pattern of the changes.
_DETAILS = {
    "docker_options": ("container_engine", re.compile(re.escape(owned.DAEMON_JSON))),
    "docker_data_root": ("container_engine", re.compile(r"\bdata-root\b")),
    "nvidia_runtime": ("nvidia_container_toolkit", re.compile(re.escape(owned.DAEMON_JSON))),
    "cdi_specification": ("nvidia_container_toolkit", re.compile(r"\bcdi\b|^reload systemd$", re.IGNORECASE)),
}
_NOT_SELECTED = "not selected by the tags"
_NOT_HELD = f"not held: dnf has no {hold_support.VERSIONLOCK}"
# Changes that keep the version of what is installed.
_HOLD = re.compile(rf"hold |write {re.escape(owned.DRIVER_UNATTENDED_UPGRADES)}$")


class AdoptionEntry(t.TypedDict):
    """What happened to a part of the image. `state`: adopted, completed or left_alone."""

    part: str
    state: str
    version: str | None
    reason: str


class AdoptionPart(t.NamedTuple):
    """The plan of a part of the run: its changes, and the reasons that it names."""

    changes: t.Sequence[str]
    reasons: t.Sequence[str]


def build(
    host: Host,
    adoption: Adoption,
    plans: t.Mapping[str, AdoptionPart],
    held: t.Sequence[str],
    *,
    not_held: t.Sequence[str] = (),
    requested_kind: str = "",
) -> dict[str, t.Any]:
    """Return the report.

    `plans`: the plan of each part that may act, before the run has changed anything. `held`: packages that no role
    manages, and that this run holds. `not_held`: those that it cannot hold. `host`: the observation after the changes.
    """
    image = host["image"]
    instance_type = image["instance_type"]
    previous = _previous(host)
    entries = [
        *_entries(host, adoption, plans, held, not_held),
        *_details(host, adoption, plans),
        *_extras(host, held, not_held),
    ]
    return {
        "schema": SCHEMA,
        "image": {
            "kind": adoption.kind,
            "evidence": ["dlami_image"] if requested_kind else image["evidence"],
            "frameworks": image["frameworks"],
            "os": host["os"]["key"],
            "architecture": host["os"]["arch"],
        },
        "instance": instance_families.describe(instance_type) if instance_type else None,
        "parts": [_settled(entry, previous.get(entry["part"])) for entry in entries],
    }


def text(report: t.Mapping[str, t.Any]) -> str:
    """Return the content of the file on the host."""
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"


def is_written(host: Host, report: t.Mapping[str, t.Any]) -> bool:
    """Return whether the host has this report."""
    return host["files"][owned.ADOPTION_REPORT]["content"] == text(report)


def table(report: t.Mapping[str, t.Any]) -> list[str]:
    """Return the lines of a table. Long texts continue in the next line."""
    rows = [
        _HEADINGS,
        *((part["part"], part["state"], part["version"] or "-", part["reason"]) for part in report["parts"]),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS) - 1)]
    lines = []
    for row in rows:
        first, *rest = textwrap.wrap(row[-1], _WIDTH, break_on_hyphens=False) or [""]
        lines.append("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), first]).rstrip())
        lines += [f"{' ' * (sum(widths) + 2 * len(widths))}  {more}" for more in rest]
    return lines


def _previous(host: Host) -> dict[str, AdoptionEntry]:
    """Return the entries of the last report on the host. Another program may have damaged the file."""
    try:
        known = json.loads(host["files"][owned.ADOPTION_REPORT]["content"] or "")
        return {entry["part"]: entry for entry in known["parts"] if _is_entry(entry)}
    except (ValueError, KeyError, TypeError):
        return {}


def _is_entry(entry: t.Mapping[str, t.Any]) -> bool:
    texts = {name: value for name, value in entry.items() if (name, value) != ("version", None)}
    return {*entry} == {*AdoptionEntry.__annotations__} and all(isinstance(value, str) for value in texts.values())


def _settled(entry: AdoptionEntry, previous: AdoptionEntry | None) -> AdoptionEntry:
    """Keep what an earlier run completed, as long as the version is the same and nothing changes now.

    Keep also what an earlier run reported about a part that the tags do not select now, at the same version.
    """
    if previous is None or previous["version"] != entry["version"]:
        return entry
    if entry["reason"] == _NOT_SELECTED:
        return previous
    if entry["state"] != ADOPTED or previous["state"] == LEFT_ALONE:
        return entry
    # This run holds packages, or dnf's plugin was installed or removed since.
    holds = any(_HOLD.match(part) for part in entry["reason"].split("; "))
    if holds or _is_not_held(previous["reason"]) != _is_not_held(entry["reason"]):
        return AdoptionEntry(
            part=entry["part"], state=previous["state"], version=entry["version"], reason=entry["reason"]
        )
    return previous


def _is_not_held(reason: str) -> bool:
    """Return whether a reason, also one of the driver's plan, says that packages are not held."""
    return "not held" in reason


def _entries(
    host: Host,
    adoption: Adoption,
    plans: t.Mapping[str, AdoptionPart],
    held: t.Sequence[str],
    not_held: t.Sequence[str],
) -> list[AdoptionEntry]:
    driver = nvidia_driver(host)
    # With apt, the daemon is part of a package of the driver, whose name contains the branch.
    has_daemon = (host["services"].get(persistence.UNIT) or {}).get("load_state") == "loaded"
    engine = next((name for name in _ENGINES if host["engines"][name]["package"]), None)
    found = {
        "nvidia_driver": driver["loaded"] or driver["on_disk"] or driver["library"],
        "nvidia_persistenced": _version(host, "nvidia-persistenced") or (driver["loaded"] if has_daemon else None),
        "container_engine": engine and f"{engine} {host['engines'][engine]['version'] or ''}".strip(),
        "nvidia_container_toolkit": _version(host, _TOOLKIT) or _version(host, f"{_TOOLKIT}-base"),
        "driver_volume": driver["loaded"],
        "container_proof": None,
    }
    toolkit = sorted(set(toolkit_packages.UNIT) & set(held))
    entries = {
        name: _entry(name, version, _why_not(adoption, name), _own_changes(name, plans.get(name), toolkit))
        for name, version in found.items()
    }
    if set(toolkit_packages.UNIT) & set(not_held):
        entries[_ROLE_OF_TOOLKIT]["reason"] += f"; {_NOT_HELD}"
    return [*entries.values()]


def _why_not(adoption: Adoption, part: str) -> str:
    """Return why a part without a plan is left alone."""
    return _NOT_SELECTED if part in adoption.exceptions else adoption.reason or _NOT_SELECTED


def _own_changes(name: str, plan: AdoptionPart | None, toolkit: t.Sequence[str]) -> AdoptionPart | None:
    """Return the plan of a part without what `_details` names, and with the playbook's own holds of the toolkit."""
    if plan is None:
        return None
    patterns = [pattern for part, pattern in _DETAILS.values() if part == name]
    changes = [change for change in plan.changes if not any(pattern.search(change) for pattern in patterns)]
    holds = [f"hold {', '.join(toolkit)}"] if toolkit and name == _ROLE_OF_TOOLKIT else []
    return AdoptionPart([*changes, *holds], plan.reasons)


def _entry(name: str, version: str | None, why_not: str, plan: AdoptionPart | None) -> AdoptionEntry:
    if plan is None:
        return AdoptionEntry(part=name, state=LEFT_ALONE, version=version, reason=why_not)
    holds = [change for change in plan.changes if _HOLD.match(change)]
    others = [change for change in plan.changes if change not in holds]
    if others:
        notes = [reason for reason in plan.reasons if _is_not_held(reason)]
        return AdoptionEntry(part=name, state=COMPLETED, version=version, reason="; ".join([*others, *holds, *notes]))
    if version is None and not holds and name != "container_proof":
        return AdoptionEntry(
            part=name, state=LEFT_ALONE, version=None, reason="; ".join(plan.reasons) or "not installed"
        )
    kept = "; ".join(plan.reasons) or "satisfies the request"
    return AdoptionEntry(part=name, state=ADOPTED, version=version, reason="; ".join([kept, *holds]))


def _details(host: Host, adoption: Adoption, plans: t.Mapping[str, AdoptionPart]) -> list[AdoptionEntry]:
    """Return the entries of what a part configures: Docker's options, its runtime nvidia, the CDI specification."""
    has_docker = bool(host["engines"]["docker"]["package"])
    runtimes = option_fields.runtimes(host["docker_daemon_json"].get("content"))
    found = {
        "docker_options": owned.DAEMON_JSON if host["files"][owned.DAEMON_JSON]["exists"] else None,
        "docker_data_root": host["docker_data"]["root"] if has_docker else None,
        "nvidia_runtime": "docker" if "nvidia" in runtimes else None,
        "cdi_specification": ", ".join(spec["path"] for spec in host["cdi_specs"]) or None,
    }
    entries = []
    for name, place in found.items():
        part, pattern = _DETAILS[name]
        plan = plans.get(part)
        if plan is not None:
            plan = AdoptionPart(
                [change for change in plan.changes if pattern.search(change)], ["configured"] if place else []
            )
        entry = _entry(name, place, _why_not(adoption, part), plan)
        if entry["state"] == LEFT_ALONE and plan is not None:
            entry["reason"] = "not configured"
        entries.append(entry)
    return entries


def _extras(host: Host, held: t.Sequence[str], not_held: t.Sequence[str]) -> list[AdoptionEntry]:
    """Return the entries of what no role manages: CUDA toolkits, DCGM, EFA."""
    image = host["image"]
    versions = {
        "cuda": ", ".join(image["cuda"]) or None,
        "dcgm": _lowest(holds_of_image_packages.extra_packages(host, "dcgm")),
        "efa": image["efa"] or _lowest(holds_of_image_packages.extra_packages(host, "efa")),
    }
    return [_extra(host, name, version, held, not_held) for name, version in versions.items()]


def _extra(
    host: Host, name: str, version: str | None, held: t.Sequence[str], not_held: t.Sequence[str]
) -> AdoptionEntry:
    if version is None:
        return AdoptionEntry(part=name, state=LEFT_ALONE, version=None, reason="not installed")
    packages = holds_of_image_packages.extra_packages(host, name)
    reason = "installed with the image, and kept"
    if name == "dcgm":
        state = (host["services"].get("nvidia-dcgm.service") or {}).get("active_state")
        reason += f"; nvidia-dcgm.service is {state}" if state else ""
    new = sorted(set(packages) & set(held))
    if new:
        reason += f"; hold {', '.join(new)}"
    elif set(packages) & set(not_held):
        reason += f"; {_NOT_HELD}"
    return AdoptionEntry(part=name, state=ADOPTED, version=version, reason=reason)


def _lowest(packages: t.Mapping[str, str]) -> str | None:
    return min((found.partition(" ")[0] for found in packages.values()), default=None)


def _version(host: Host, package: str) -> str | None:
    found = host["installed_packages"].get(package)
    return found.partition(" ")[0] if found else None
