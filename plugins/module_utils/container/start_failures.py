# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe the failure of an engine's module, and remove a container that it created but could not start."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Docker, Podman
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError

# States of a container that was created and has never run.
NEVER_STARTED = ("configured", "created", "initialized")
_NAME_TAKEN = re.compile(r"container name \S+ is already in use")
# Podman's module returns the exit status of the command podman here. The reason is only in stderr.
_PODMAN_ACTION = re.compile(r"^Container \S+ exited with code (-?\d+) when ([a-z]+?)ed$")
_LOG_LINE = re.compile(r'^time="[^"]*" level=(?:debug|info|warning) ')
_LAST_LINES = 3
# moby/moby, daemon/devices.go (docker-v29.2.0). Docker selects the driver of --gpus when it starts.
_NO_HOOK = re.compile(r"could not select device driver .*with capabilities: \[\[[^]]*\bgpu\b")
_RESTART = (
    "Docker found no hook for --gpus when it started, so the vendor's toolkit was probably installed later. Run "
    "`systemctl restart docker`, or use another isolation."
)


def message(engine: str, name: str, result: Mapping[str, Any]) -> str:
    """Return the error message for a failed result."""
    return f"{engine} container {name}: {describe(result)}"


def describe(result: Mapping[str, Any]) -> str:
    """Return the message of a failed result with the reason from its stderr."""
    text = str(result.get("msg") or "failed without a message").strip()
    action = _PODMAN_ACTION.match(text)
    if result.get("status"):
        # With detach=false, Docker's module waits for the container and returns only its output.
        text = f"its program ended with status {result['status']}: {text}"
    if action:
        text = f"podman {action.group(2)} exited with status {action.group(1)}"
    why = reason(str(result.get("stderr") or result.get("module_stderr") or ""))
    text = text if not why or why in text else f"{text.rstrip('.')}: {why}"
    return join_sentences([text, _RESTART]) if _NO_HOOK.search(text) else text


def reason(stderr: str) -> str:
    """Return the errors in a command's stderr, or its last lines if there are none."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not _LOG_LINE.match(line)]
    errors = [line[len("Error: ") :] for line in lines if line.startswith("Error: ")]
    return "; ".join(dict.fromkeys(errors or lines[-_LAST_LINES:]))


def join_sentences(parts: Sequence[str]) -> str:
    """Join sentences and end each with a full stop."""
    return " ".join(part if part.endswith((".", "!", "?")) else f"{part}." for part in parts if part)


def is_name_conflict(result: Mapping[str, Any]) -> bool:
    """Return whether the module failed because somebody else created a container with the same name."""
    return bool(_NAME_TAKEN.search(f"{result.get('msg')} {result.get('stderr')}"))


def remove_unstarted(engine: Docker | Podman, name: str, before: str | None, *, keep: bool) -> dict[str, Any]:
    """Remove the container that the engine's module created instead of `before` and could not start.

    The identifier of this container differs from that of `before`, and it has never run. The engine refuses
    to remove a running container.
    """
    unavailable = engine.unavailable_reason()
    if unavailable:
        raise EngineError(unavailable)
    found = engine.container(name)
    after = found["Id"] if found else None
    status = ((found or {}).get("State") or {}).get("Status") or ""
    outcome: dict[str, Any] = {"before": before, "after": after, "status": status, "removed": False, "error": None}
    if after is None or after == before or keep or status not in NEVER_STARTED:
        return outcome
    try:
        engine.remove_container(after)
    except EngineError as error:
        return {**outcome, "error": str(error)}
    return {**outcome, "after": None, "removed": True}


def has_changed(outcome: Mapping[str, Any]) -> bool:
    """Return whether the failed run replaced or removed the container."""
    return outcome["after"] != outcome["before"]


def describe_outcome(outcome: Mapping[str, Any]) -> str:
    """Describe the current state of the old and the new container."""
    after, before, status = outcome["after"], outcome["before"], outcome["status"]
    removed = "The former container had already been removed." if before else ""
    if outcome["error"]:
        return f"The new container could not be removed: {outcome['error']}. Its state is {status}."
    if outcome["removed"]:
        return f"The new container was removed. {removed}".rstrip()
    if after is None:
        return removed
    if after == before:
        return "The container was not changed." + (f" Its state is {status}." if status else "")
    return f"A container with this name exists. Its state is {status}."
