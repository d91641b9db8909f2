# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read why apt or dpkg failed from the output."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.addresses import masked

_ERROR = re.compile(
    r"^(?:E: |W: (?:Failed|GPG|Some)|dpkg: (?:error|dependency)|Errors were|The following packages have unmet)"
)
_PROGRESS = re.compile(r"^(?:\(Reading |Preparing |Unpacking |Setting up |Processing triggers |Removing |Purging )")
_SCRIPT_LINES = 5
_LINES = 15


def reason(out: str, err: str) -> str:
    """Return the lines of an output that say why apt or dpkg failed, as one sentence without logins."""
    kept: list[str] = []
    for text in (out, err):
        lines = text.splitlines()
        errors = [index for index, line in enumerate(lines) if _ERROR.match(line)]
        # What a package's script prints is between dpkg's last step and its message.
        first = next((index for index in errors if lines[index].startswith("dpkg: error processing")), 0)
        steps = [index for index in range(first) if _PROGRESS.match(lines[index])]
        start = max([first - _SCRIPT_LINES, 0, *(index + 1 for index in steps[-1:])])
        chosen = {*errors, *range(start, first)}
        for index, line in enumerate(lines):
            if line.startswith(" ") and index - 1 in chosen:
                chosen.add(index)
        kept += [lines[index].strip() for index in sorted(chosen)]
    kept = list(dict.fromkeys(line for line in kept if line)) or (err.strip() or out.strip()).splitlines()[-_LINES:]
    text = masked(" ".join(kept[:_LINES]))
    return text if text.endswith((".", "!", "?")) else f"{text}."
