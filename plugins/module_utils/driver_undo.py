# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to put back when a driver's installation failed."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver_plan import BLACKLIST_FILE, PIN_FILE
from ansible_collections.gpufleet.hosts.plugins.module_utils.host_files import upstream_version


def files(before: dict, now: dict, version: str | None) -> list[dict]:
    """Return the files that keep apt at one version as they were `before`, with `path`, `state` and `content`.

    None where a package of the `version` came: what is there of it stays where it is.
    """
    if _of_version(now, version) - _of_version(before, version) or _unfinished(now) - _unfinished(before):
        return []
    former = {path: _content(before, path) for path in (PIN_FILE, BLACKLIST_FILE)}
    return [
        {"path": path, "state": "absent" if text is None else "present", "content": text or ""}
        for path, text in former.items()
        if _content(now, path) != text
    ]


def _of_version(host: dict, version: str | None) -> set[str]:
    return {name for name, package in host["packages"].items() if upstream_version(package["version"]) == version}


def _unfinished(host: dict) -> set[str]:
    return set(host["package_state"]["unfinished"])


def _content(host: dict, path: str) -> str | None:
    return (host["files"].get(path) or {}).get("content")
