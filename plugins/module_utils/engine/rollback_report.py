# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Report why Docker's daemon did not apply changed options, and what the rollback did. Pure functions."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DEFAULT_PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.secret_masking import masked
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.plan import MANAGER

VARIABLE = "container_engine_docker_options"

# dockerd logs in logfmt, or in JSON with `log-format: json`. Its last message before it exits has no level.
_LEVEL = re.compile(r"\blevel=(\w+)")
_MESSAGE = re.compile(r'\bmsg=(?:"((?:\\.|[^"\\])*)"|(\S+))')
_ERROR = re.compile(r'\berror="((?:\\.|[^"\\])*)"')
_FINAL_ERROR = re.compile(r"(?i)\b(?:fail|unable|cannot|error|invalid|panic|status: )")
# systemd's own lines about the unit, and those of them that name the cause of a failure.
_UNIT = re.compile(r"^(?:\S+\.service: |(?:Start|Stopp|Reload)(?:ing|ed) |Failed to (?:start|reload) |Reload failed )")
_UNIT_FAILURE = re.compile(
    r"^\S+\.service: (?:(?:Main|Control) process exited|\w+ operation timed out|State \S+ timed out|Failed (?:at|to) "
    r"|A process of this unit has been killed)"
)
_MAX_LENGTH = 500
# A registry's login may be a token, which only its position distinguishes from a name.
_REGISTRY_LOGIN = re.compile(r'((?:insecure registry |invalid host \\*"|invalid index name \())[^\s":]+@')
# Go omits the fragment of an address in its errors, and so the @ of a password that contains a #. Quotes in the message
# may be escaped; a quote in the password has one more backslash.
_REST_OF_QUOTED = r'(?:(?!(?<!\\)\2").)+'
_PART_OF_ADDRESS = re.compile(rf'(?s)((?:invalid port|invalid URL escape) (\\*)"){_REST_OF_QUOTED}')
_PARSED_ADDRESS = re.compile(
    rf'(?s)(parse (\\*)"[\w+.-]+://[^\s@:/"\\\[]*:)(?!\d*(?:[/?#"\\]|$)|\*{{8}}){_REST_OF_QUOTED}'
)


class _Line(t.NamedTuple):
    rank: int
    text: str


_RANKS = {"fatal": 0, "panic": 0, "error": 2}
_FINAL_ERROR_RANK, _PLAIN_RANK, _UNIT_RANK = 1, 3, 4


def _read(line: str) -> _Line | None:
    """Rank a line of the journal, None if it does not describe a failure."""
    level, text = None, line
    if line.startswith("{"):
        try:
            entry = json.loads(line)
        except ValueError:
            entry = {}
        if isinstance(entry, dict) and "level" in entry:
            level, text = str(entry["level"]), str(entry.get("msg", ""))
            text += f": {entry['error']}" if entry.get("error") else ""
    elif _LEVEL.search(line) and _MESSAGE.search(line):
        level = t.cast("re.Match[str]", _LEVEL.search(line)).group(1)
        quoted, bare = t.cast("re.Match[str]", _MESSAGE.search(line)).groups()
        error = _ERROR.search(line)
        text = _unquoted(quoted or bare or "") + (f": {_unquoted(error.group(1))}" if error else "")
    if level:
        return _Line(_RANKS[level], text) if level in _RANKS else None
    if _UNIT.match(line):
        return _Line(_UNIT_RANK, line) if _UNIT_FAILURE.match(line) else None
    return _Line(_FINAL_ERROR_RANK if _FINAL_ERROR.search(text) else _PLAIN_RANK, text)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": " ", "t": " "}.get(match.group(1), match.group(1)), text)


def causes(journal: str, at_most: int = 3) -> list[str]:
    """Return the messages in the daemon's journal that explain the failure: the most specific first, no duplicates.

    The daemon repeats its messages each time systemd restarts it. If the daemon logs nothing, systemd may name the
    cause: a missing program, or a start that timed out.
    """
    read = [_read(line.strip()) for line in journal.splitlines() if line.strip()]
    lines = sorted({line for line in read if line and line.text}, key=lambda line: (line.rank, read.index(line)))
    found: list[str] = []
    for line in lines:
        if line.rank >= _PLAIN_RANK and found:
            break
        text = _masked(line.text)[:_MAX_LENGTH]
        if len(found) < at_most and not any(text in known or known in text for known in found):
            found.append(text)
    return found


def _masked(message: str) -> str:
    """Mask logins in a message of the daemon, which may repeat a part of a rejected address."""
    text = _REGISTRY_LOGIN.sub(r"\1********@", masked(message))
    return _PART_OF_ADDRESS.sub(r"\1********", _PARSED_ADDRESS.sub(r"\1********", text))


def named_options(message: str, options: t.Iterable[str], config: dict[str, t.Any]) -> list[str]:
    """Return the options that a message names, by the last part of their name or else by their value."""
    names = list(options)
    return [name for name in names if _contains(message, name.rpartition(".")[2])] or [
        name for name in names if any(_contains(message, text) for text in _texts(config, name))
    ]


def _texts(config: t.Any, name: str) -> list[str]:
    for key in name.split("."):
        config = config.get(key) if isinstance(config, dict) else None
    return [item for item in (config if isinstance(config, list) else [config]) if isinstance(item, str)]


def _contains(message: str, word: str) -> bool:
    return len(word) > 2 and re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", message) is not None


def report(
    journal: str, failure: str, config: dict[str, t.Any], undone: dict[str, t.Any], applied: dict[str, t.Any], *,
    was_restarted: bool, is_up: bool,
) -> str:  # fmt: skip
    """Return the cause, the option, the current state of file and daemon, and what to do, one line each.

    `config` and `undone` are results of docker_daemon_config. `applied` is the result of the reload or restart after
    the rollback.
    """
    found = causes(journal)
    # A stopped daemon has no pending options.
    waiting = [name for names in config["pending"].values() for name in names]
    changed = waiting or config["changed_keys"]
    named = named_options(" ".join(found), changed, config["config"])
    others = {name: keys for name, keys in (undone.get("undone_keys") or {}).items() if name != MANAGER}
    verb = "start with" if was_restarted else "apply"
    lines = [f"Docker failed to {verb} the changed {DEFAULT_PATH}: {'; '.join(found) or _one_line(failure)}"]
    if named:
        lines.append(f"The message names {', '.join(named)}.")
    elif waiting:
        lines.append(f"The {'restart' if was_restarted else 'reload'} was meant to apply {', '.join(waiting)}.")
    elif changed:
        lines.append(f"The run changed {', '.join(changed)}.")
    lines.append(_outcome(undone, applied, was_restarted=was_restarted, is_up=is_up))
    lines += [f"Options of managed_by={name} were undone, too: {', '.join(keys)}." for name, keys in others.items()]
    lines.append(_what_to_do(named or changed, undone, others, is_up=is_up))
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return _masked(" ".join(text.split()))


def _outcome(undone: dict[str, t.Any], applied: dict[str, t.Any], *, was_restarted: bool, is_up: bool) -> str:
    if undone.get("msg"):
        return f"The former daemon.json was not restored: {undone['msg']}"
    if not undone.get("changed"):
        if is_up:
            return "The daemon is running, and daemon.json was not changed."
        return "The daemon is not running, and there is no former daemon.json to restore."
    if was_restarted:
        if applied.get("msg") or not is_up:
            return "The former daemon.json is restored, but the daemon does not start with it either."
        return "The former daemon.json is restored, and the daemon runs with it."
    if applied.get("msg"):
        return (
            "The former daemon.json is restored. The daemon was not restarted, and its reload failed: "
            f"{_one_line(str(applied['msg']))}"
        )
    return "The former daemon.json is restored, and the daemon has reloaded it. The daemon was not restarted."


def _what_to_do(
    options: list[str], undone: dict[str, t.Any], others: dict[str, list[str]], *, is_up: bool
) -> str:  # fmt: skip
    keys = [key for names in others.values() for key in names]
    ours = [name for name in options if name not in keys]
    option = ours[0] if len(ours) == 1 else "the wrong option"
    where = f"in {VARIABLE}" if ours or not options else "where it is set"
    if undone.get("msg"):
        where += f", correct {DEFAULT_PATH} by hand"
    start = "" if is_up else ", start the daemon (systemctl reset-failed docker; systemctl start docker)"
    return f"Correct {option} {where}{start}, and run this role again. Log: journalctl --unit=docker.service"
