# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to take back of the driver, and the record of what there is to take back, for role nvidia_driver."""

from __future__ import annotations

import re
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import removal as driver_removal

# name-[epoch:]version-release.arch; the name is what is found.
_NEVRA = r"(\S+?)-(?:\d+:)?[^-\s]+-[^-\s]+"


def _checked(name: str, host: dict) -> dict:
    if not isinstance(host, dict) or "nvidia" not in host or "kernel" not in host:
        raise AnsibleFilterError(
            f"{name} wants what gpufleet.hosts.gpu_host_info returned as host, or the variable gpufleet_host that role "
            "gpufleet.hosts.observe sets."
        )
    return host


def nvidia_driver_removal(host: dict, platform: dict | None = None) -> dict[str, Any]:
    """Say what has to be done so that nothing of the driver that was installed here is left."""
    return driver_removal.plan(_checked("nvidia_driver_removal", host), platform or None)


def nvidia_driver_record(
    host: dict,
    before: list[str],
    after: list[str] | None = None,
    changed_files: list[dict] | None = None,
    key: str | None = None,
    *,
    todo: dict | None = None,
    runfile: str | None = None,
    holds: list[str] | None = None,
) -> str:
    """Return the text that remembers what came to a host, so that it can be taken back."""
    _checked("nvidia_driver_record", host)
    if holds is not None:
        return driver_removal.hold(host, holds)
    if after is None and runfile:
        return driver_removal.begin_runfile(host, runfile)
    if after is None:
        return driver_removal.begin(host, before, changed_files, key, todo=todo)
    return driver_removal.record(host, before, after, changed_files, key, runfile=runfile or None)


def apt_removable(text: str, names: list[str]) -> list[str]:
    """Pick those of the names that a simulated `apt-get autoremove` would remove."""
    would_go = set(re.findall(r"^Remv (\S+)", text, re.MULTILINE))
    return [name for name in names if name in would_go]


def rpm_removable(tests: list[dict], gone: list[str] | None = None) -> list[str]:
    """Pick those of the packages that nothing needs but one another and what goes anyway."""
    needed = {test["item"]: _needed_by(test.get("stderr", "")) for test in tests}
    # Who needs them is the one reason for which rpm refuses that is understood here.
    going = {test["item"] for test in tests if test["rc"] == 0 or needed[test["item"]]}
    staying = {name for name in going if needed[name] - going - set(gone or [])}
    while staying:
        going -= staying
        staying = {name for name in going if needed[name] - going - set(gone or [])}
    return sorted(going)


def _needed_by(text: str) -> set[str]:
    return set(re.findall(rf" is needed by \(installed\) {_NEVRA}$", text, re.MULTILINE))


def nvidia_driver_strangers(
    text: str, may_go: list[str], packages: dict | None = None, released: list[str] | None = None
) -> list[str]:
    """Name the packages that a simulation would remove, or change in spite of a hold, and that are not the driver's."""
    removed = re.findall(r"^(?:Remv|Purg) ([^\s:]+)", text, re.MULTILINE)
    # dnf's module says so of the old version of a package that it moves, too.
    moved = re.findall(rf"^Installed: {_NEVRA}$", text, re.MULTILINE)
    removed += [name for name in re.findall(rf"^Removed: {_NEVRA}$", text, re.MULTILINE) if name not in moved]
    removed += _needed_by(text)
    changed = re.findall(r"^Inst ([^\s:]+)\S* \[", text, re.MULTILINE)
    held = [name for name, package in (packages or {}).items() if package["held"]]
    found = [name for name in removed if name not in may_go]
    return sorted({*found, *(name for name in changed if name in held and name not in (released or []))})


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by their names."""
        return {
            "apt_removable": apt_removable,
            "nvidia_driver_record": nvidia_driver_record,
            "nvidia_driver_removal": nvidia_driver_removal,
            "rpm_removable": rpm_removable,
            "nvidia_driver_strangers": nvidia_driver_strangers,
        }
