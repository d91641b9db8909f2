# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runtime that package nvidia-docker2 registered in daemon.json. Pure functions of its content."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import json_text, option_fields, record

NAME = "nvidia"
# The programs in daemon.json of NVIDIA/nvidia-docker, tags v2.0.2 to v2.13.0.
_PROGRAMS = ("nvidia-container-runtime", "/usr/bin/nvidia-container-runtime")


def is_shipped(content: dict[str, Any]) -> bool:
    """Return whether the runtime is registered as the package did, without changes of the user."""
    entry = option_fields.runtimes(content).get(NAME)
    is_plain = isinstance(entry, dict) and {key.lower() for key in entry} == {"path", "runtimeargs"}
    return is_plain and option_fields.get(entry, "path") in _PROGRAMS and not option_fields.get(entry, "runtimeArgs")


def is_recorded(text: str | None, path: str) -> bool:
    """Return whether the record of this collection in daemon.json has the runtime. `text`: the record."""
    try:
        entries = record.load_state(text, path).record.entries
    except json_text.DaemonConfigError:
        return True
    return any(tuple(leaf.path[:2]) == ("runtimes", NAME) for leaf in entries)


def without(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content without the runtime. An object that only had this runtime goes with it."""
    runtimes = option_fields.runtimes(content)
    if NAME not in runtimes:
        return content
    rest = {name: entry for name, entry in runtimes.items() if name != NAME}
    return {key: rest if key == "runtimes" else value for key, value in content.items() if key != "runtimes" or rest}
