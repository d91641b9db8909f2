# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether the content of a record is damaged, and advise what to do with such a record. Pure functions."""

from __future__ import annotations

import dataclasses
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_ownership


def problem(content: Any) -> str | None:
    """Return what is wrong with the content of a record, or None."""
    if not isinstance(content, dict):
        return "it is not a JSON object"
    values = record_ownership.normalized(content)
    for name in record_ownership.TEXT_LISTS:
        if not isinstance(values[name], list) or not all(isinstance(item, str) for item in values[name]):
            return f"{name} is not a list of strings"
    for name in record_ownership.DICTIONARIES:
        if not isinstance(values[name], dict):
            return f"{name} is not an object"
    if not all(isinstance(item, dict) and {"before", "after"} <= {*item} for item in values["files"].values()):
        return "files lacks the text of a file"
    if not all(item is None or {"content", "mode"} <= {*item} for item in values["previous"].values()):
        return "previous lacks the content of a file"
    if not all(
        isinstance(item, list) and len(item) == len(dataclasses.fields(SimulatedChange)) for item in values["planned"]
    ):
        return "planned contains an incomplete change"
    return None


def message(path: str, problem: str) -> str:
    """Return the message for a damaged record."""
    return (
        f"The record {path} is damaged: {problem}. Restore the file from a backup. Without a backup, remove the file: "
        "the packages and files that it lists then stay on the host until you remove them by hand."
    )
