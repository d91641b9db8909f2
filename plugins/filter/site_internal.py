# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filters of the playbooks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible import context
from ansible.errors import AnsibleFilterError
from ansible.utils.display import Display

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain, shown
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_report, turns_of_parts
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.registry import PARTS

display = Display()

# Ansible adds these hosts to every inventory when a pattern names them.
_IMPLICIT_HOSTS = ("localhost", "127.0.0.1", "::1")
# Modes of ansible-playbook that contact no host, and often run without an inventory.
_MODES_WITHOUT_HOSTS = ("syntax", "listtasks", "listtags")
_SPECIAL_TAGS = ("always", "never", "untagged")


def site_target(target: Any, groups: Mapping[str, list[str]], selected: Sequence[str]) -> str:
    """Return the value of gpufleet_target for `hosts`. `selected` are the hosts that the option --limit selects.

    Fail if it names no host: Ansible only skips such a play, and ends with exit code 0.
    """
    if not isinstance(target, str) or not target.strip():
        raise AnsibleFilterError(
            f"gpufleet_target is {shown(target)}, but must be the name of a group or host, or a pattern. Remove the "
            "variable to use group gpu_hosts."
        )
    target = target.strip()
    if any(context.CLIARGS.get(mode) for mode in _MODES_WITHOUT_HOSTS):
        return target
    members = [target] if _is_known(target, groups) else _members(target)
    literal = [member for member in members if _is_known(member, groups) or not re.search(r"[:&!*?\[~]", member)]
    for member in literal:
        if not _is_known(member, groups):
            named = "which" if member == target else f"but {member}"
            raise AnsibleFilterError(
                f"gpufleet_target is {shown(target)}, {named} is neither a group nor a host in the inventory. Add it "
                "to the inventory, select another inventory with -i, or set -e gpufleet_target=GROUP."
            )
    # The hosts of a wildcard are unknown here. A group without hosts is valid beside one that has hosts.
    added = [member for member in members if not member.startswith(("&", "!"))]
    if added and all(groups.get(member) == [] for member in added):
        named = "which has" if added == [target] else f"but {' and '.join(added)} {'have' if added[1:] else 'has'}"
        raise AnsibleFilterError(
            f"gpufleet_target is {shown(target)}, {named} no hosts in the inventory. Add hosts to the group, select "
            "another inventory with -i, or set -e gpufleet_target=GROUP."
        )
    hosts = {host for member in added for host in groups.get(member, [member])}
    if added and added == literal and hosts.isdisjoint([*selected, *_IMPLICIT_HOSTS]):
        raise AnsibleFilterError(
            f"gpufleet_target is {shown(target)}, but --limit selects none of its hosts. Correct --limit, or set "
            "-e gpufleet_target=GROUP."
        )
    return target


def _is_known(name: str, groups: Mapping[str, list[str]]) -> bool:
    return name in groups or name in _IMPLICIT_HOSTS or name in groups.get("all", [])


def _members(pattern: str) -> list[str]:
    """Split a pattern as Ansible does: at its commas, or else at the colons outside of brackets."""
    parts = pattern.split(",") if "," in pattern else re.findall(r"(?:[^\s:\[\]]|\[[^\]]*\])+", pattern)
    return [part.strip() for part in parts if part.strip()]


def site_batches(value: Any, limit: Any = 100) -> Any:
    """Return the value of site_serial for `serial`. Check `limit`, too: site_max_fail_percentage."""
    site_percentage(limit)
    if value is None or value == "":
        return "100%"
    batches = value if isinstance(value, list) else [value]
    if not batches or not all(_is_batch(batch) for batch in batches):
        raise AnsibleFilterError(
            f"site_serial is {shown(value)}, but must be a number of hosts, a percentage such as 10%, or a list of "
            "them."
        )
    return value


def _is_batch(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return False
    match = re.fullmatch(r"([0-9]{1,9})(%?)", str(value))
    return bool(match) and 1 <= int(match[1]) <= (100 if match[2] else int(match[1]))


def site_percentage(value: Any) -> int | float:
    """Return the value of site_max_fail_percentage as a number."""
    if value is None or value == "":
        return 100
    is_number = isinstance(value, (int, float, str)) and not isinstance(value, bool)
    if not is_number or not re.fullmatch(r"[0-9]{1,3}(\.[0-9]+)?%?", str(value)) or _number(value) > 100:
        raise AnsibleFilterError(
            f"site_max_fail_percentage is {shown(value)}, but must be a percentage of hosts from 0 to 100."
        )
    return _number(value)


def _number(value: Any) -> int | float:
    number = float(str(value).rstrip("%"))
    return int(number) if number.is_integer() else number


def site_stops(batch: Sequence[str], hosts: Sequence[str], working: Sequence[str], limit: Any) -> bool:
    """Return whether too many hosts of the earlier batches failed or became unreachable.

    `hosts`: all hosts of the play. `working`: those that have not failed. `limit`: site_max_fail_percentage.
    """
    earlier = hosts[: min((hosts.index(host) for host in batch if host in hosts), default=0)]
    failed = [host for host in earlier if host not in working]
    if not failed or 100 * len(failed) <= site_percentage(limit) * len(earlier):
        return False
    rest = [host for host in hosts[len(earlier) :] if host in working]
    named = [
        ", ".join([*names[:10], *([f"and {len(names) - 10} more"] if names[10:] else [])]) for names in (failed, rest)
    ]
    display.warning(
        f"{len(failed)} of {len(earlier)} hosts failed or became unreachable, and site_max_fail_percentage is "
        f"{site_percentage(limit)}: {named[0]}. The run stops before the next batch, so these hosts stay "
        f"unchanged: {named[1]}."
    )
    return True


def site_parts(run_tags: Sequence[str], skip_tags: Sequence[str]) -> list[str]:
    """Return the parts of playbook `site` that the options --tags and --skip-tags select."""
    if {"all", "tagged"}.isdisjoint(run_tags):
        selected = [part for part in PARTS if part in run_tags]
        unknown = sorted(set(run_tags).difference(PARTS, _SPECIAL_TAGS))
        if unknown:
            # Not an error: a larger playbook that imports this one may have other tags.
            display.warning(
                f"--tags {','.join(unknown)} selects no part of this playbook. The tags of its parts: "
                f"{', '.join(PARTS)}."
            )
    else:
        selected = list(PARTS)
    return [part for part in selected if part not in skip_tags]


def site_report(hostvars: Mapping[str, Any], hosts: list[str], variable: str) -> list[dict[str, Any]]:
    """Return an entry per host. `variable` has the result of module gpu_host_plan."""
    return plain(plan_report.report({host: hostvars[host].get(variable) for host in hosts}))


def site_turns(
    order: Sequence[Mapping[str, Any]], hostvars: Mapping[str, Any], hosts: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the turns of the parts in which at least one of the hosts acts."""
    results = [hostvars[host].get("site_plan") or {} for host in hosts]
    return plain(turns_of_parts.turns(order, [result for result in results if result.get("apply")]))


def site_part_file(turn: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """Return the file with the tasks of a host in the turn of a part, or an empty text."""
    return turns_of_parts.task_file(turn, plan)


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by their names."""
        return {
            "_site_batches": site_batches,
            "_site_part_file": site_part_file,
            "_site_parts": site_parts,
            "_site_report": site_report,
            "_site_stops": site_stops,
            "_site_target": site_target,
            "_site_turns": site_turns,
        }
