# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a failure of an engine's module means, in one message: what it says, why, and what became of the container. Pure
but for `cleared`, which removes a container that could not be started.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import Docker, Podman
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.volumes import EngineError

# What engines say of a container that was made and never ran.
NEVER_STARTED = ("configured", "created", "initialized")
_NAME_TAKEN = re.compile(r"container name \S+ is already in use")
# Podman's module tells the status and leaves the reason to stderr. What it calls "exited" is the command podman.
_PODMAN_ACTION = re.compile(r"^Container \S+ exited with code (-?\d+) when ([a-z]+?)ed$")
_LOG_LINE = re.compile(r'^time="[^"]*" level=(?:debug|info|warning) ')
_LAST_LINES = 3


def message(engine: str, name: str, result: Mapping[str, Any]) -> str:
    """Say what failed and why, beginning with the container's name."""
    return f"{engine} container {name}: {reasoned(result)}"


def reasoned(result: Mapping[str, Any]) -> str:
    """Join what a module says of its failure with the reason that it leaves to stderr."""
    said = str(result.get("msg") or "failed without a word").strip()
    action = _PODMAN_ACTION.match(said)
    if result.get("status"):
        # Docker's module waits for a container with detach=false, and tells its output alone.
        said = f"its program ended with status {result['status']}: {said}"
    if action:
        said = f"podman {action.group(2)} exited with status {action.group(1)}"
    why = reason(str(result.get("stderr") or result.get("module_stderr") or ""))
    return said if not why or why in said else f"{said.rstrip('.')}: {why}"


def reason(stderr: str) -> str:
    """Take from what a command wrote why it failed: its errors, else its last lines."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not _LOG_LINE.match(line)]
    errors = [line[len("Error: ") :] for line in lines if line.startswith("Error: ")]
    return "; ".join(dict.fromkeys(errors or lines[-_LAST_LINES:]))


def sentences(parts: Sequence[str]) -> str:
    """Join sentences, each with a full stop at its end."""
    return " ".join(part if part.endswith((".", "!", "?")) else f"{part}." for part in parts if part)


def is_taken_name(result: Mapping[str, Any]) -> bool:
    """Tell whether somebody else made a container of the name while this run was about to."""
    return bool(_NAME_TAKEN.search(f"{result.get('msg')} {result.get('stderr')}"))


def cleared(engine: Docker | Podman, name: str, before: str | None, *, keep: bool) -> dict[str, Any]:
    """Remove the container that the engine's module made in place of `before` and could not start, and nothing else.

    It has another identifier than what was there before, and never ran. The engine refuses to remove one that runs.
    """
    absence = engine.absence()
    if absence:
        raise EngineError(absence)
    found = engine.container(name)
    there = found["Id"] if found else None
    status = ((found or {}).get("State") or {}).get("Status") or ""
    outcome: dict[str, Any] = {"before": before, "there": there, "status": status, "removed": False, "error": None}
    if there is None or there == before or keep or status not in NEVER_STARTED:
        return outcome
    try:
        engine.remove_container(there)
    except EngineError as error:
        return {**outcome, "error": str(error)}
    return {**outcome, "there": None, "removed": True}


def has_changed(outcome: Mapping[str, Any]) -> bool:
    """Tell whether the failed run left the host with another container than before, or with none."""
    return outcome["there"] != outcome["before"]


def fate(outcome: Mapping[str, Any]) -> str:
    """Say what became of the container that was there, and of the one that was made."""
    there, before, status = outcome["there"], outcome["before"], outcome["status"]
    if outcome["error"]:
        return f"What was made is left in state {status}, for it could not be removed: {outcome['error']}"
    if outcome["removed"]:
        made = "What was made of it is removed"
        return f"{made}; the one that was there before had to give way to it." if before else f"{made}."
    if there is None:
        return "The one that was there before had to give way to it." if before else ""
    if there == before:
        return f"It is left as it was, in state {status}." if status else "It is left as it was."
    return f"There is one of that name in state {status}."
