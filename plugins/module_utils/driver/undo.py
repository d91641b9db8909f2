# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to put back when a driver's installation failed."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.plan import BLACKLIST_FILE, PIN_FILE
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.nvidia_repository import APT_PREFERENCE_FILE


def files(before: dict, now: dict, version: str | None) -> list[dict]:
    """Return the files that keep apt at one version as they were `before`, with `path`, `state` and `content`.

    None where a package of the `version` came: what is there of it stays where it is.
    """
    if _of_version(now, version) - _of_version(before, version) or _unfinished(now) - _unfinished(before):
        return []
    former = {path: _content(before, path) for path in (PIN_FILE, BLACKLIST_FILE, APT_PREFERENCE_FILE)}
    return [
        {"path": path, "state": "absent" if text is None else "present", "content": text or ""}
        for path, text in former.items()
        if _content(now, path) != text
    ]


def lacking(before: dict, now: dict, plan: dict) -> list[str]:
    """Say what a host had `before` and has not got `now`, in words, so that a user can put it back."""
    todo = plan["todo"]
    units = [unit for unit in plan["services"] if now["services"].get(unit, {}).get("load_state") == "loaded"]
    lost = {
        "the hold of {}": [name for name in todo["release"] if name in now["packages"] and not _held(now, name)],
        "the running service {}": [unit for unit in units if _active(before, unit) and not _active(now, unit)],
        "the former {}": [file["path"] for file in files(before, now, plan["version"])],
    }
    required = {name for name in plan["lockstep"] if name not in plan["optional"]}
    if not required <= _of_version(now, plan["version"]):
        there = [name for name in todo["remove"] if name in before["packages"]]
        lost["the package {}"] = [name for name in there if name not in now["packages"]]
        stream = todo["stream"]
        same = stream is None or _stream(now, stream["module"]) == _stream(before, stream["module"])
        lost["the former stream of module {}"] = [] if same else [stream["module"]]
    return [text.format(", ".join(names)) for text, names in lost.items() if names]


def _held(host: dict, name: str) -> bool:
    return host["packages"][name]["held"]


def _active(host: dict, unit: str) -> bool:
    return host["services"].get(unit, {}).get("active_state") == "active"


def _stream(host: dict, module: str) -> str | None:
    return host["module_streams"].get(module)


def _of_version(host: dict, version: str | None) -> set[str]:
    return {name for name, package in host["packages"].items() if upstream_version(package["version"]) == version}


def _unfinished(host: dict) -> set[str]:
    return set(host["package_state"]["unfinished"])


def _content(host: dict, path: str) -> str | None:
    return (host["files"].get(path) or {}).get("content")
