# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to say where Docker's daemon has not taken up changed options: pure functions over what was tried and seen.

This file is private to the collection: it may change in any release.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import daemon_config

MANAGER = "container_engine"
VARIABLE = "container_engine_docker_options"

# dockerd's log lines: logfmt, or JSON with `log-format: json`. What it ends with comes without a level.
_LEVEL = re.compile(r"\blevel=(\w+)")
_MESSAGE = re.compile(r'\bmsg=(?:"((?:\\.|[^"\\])*)"|(\S+))')
_ERROR = re.compile(r'\berror="((?:\\.|[^"\\])*)"')
_LAST_WORDS = re.compile(r"(?i)\b(?:fail|unable|cannot|error|invalid|panic|status: )")
# systemd's own lines on the unit, and those of them that tell of a failure more than that there was one.
_UNIT = re.compile(r"^(?:\S+\.service: |(?:Start|Stopp|Reload)(?:ing|ed) |Failed to (?:start|reload) |Reload failed )")
_UNIT_FAILURE = re.compile(
    r"^\S+\.service: (?:(?:Main|Control) process exited|\w+ operation timed out|State \S+ timed out|Failed (?:at|to) "
    r"|A process of this unit has been killed)"
)
_LONGEST = 500
# A registry's login may be a token, which nothing but its place tells from a name.
_REGISTRY_LOGIN = re.compile(r'((?:insecure registry |invalid host "))[^\s"@:]+@')
_PART_OF_ADDRESS = re.compile(r'((?:invalid port|invalid URL escape) ")[^"]*(")')


class _Line(t.NamedTuple):
    rank: int
    text: str


_RANKS = {"fatal": 0, "panic": 0, "error": 2}
_LAST_WORDS_RANK, _PLAIN_RANK, _UNIT_RANK = 1, 3, 4


def _read(line: str) -> _Line | None:
    """A line of the journal with its rank, None where it says nothing of a failure."""
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
    return _Line(_LAST_WORDS_RANK if _LAST_WORDS.search(text) else _PLAIN_RANK, text)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": " ", "t": " "}.get(match.group(1), match.group(1)), text)


def causes(journal: str, at_most: int = 3) -> list[str]:
    """The lines of the daemon's journal that say why it failed, without their times, each once, the best first.

    A daemon that systemd has started again and again says the same each time. Where the daemon says nothing itself,
    systemd may: a program that is not there, a start that took too long.
    """
    read = [_read(line.strip()) for line in journal.splitlines() if line.strip()]
    lines = sorted({line for line in read if line and line.text}, key=lambda line: (line.rank, read.index(line)))
    found: list[str] = []
    for line in lines:
        if line.rank >= _PLAIN_RANK and found:
            break
        text = _masked(line.text)[:_LONGEST]
        if len(found) < at_most and not any(text in known or known in text for known in found):
            found.append(text)
    return found


def _masked(words: str) -> str:
    """The daemon's words without a login, of which a refused address may show a part once more."""
    text = _REGISTRY_LOGIN.sub(r"\1********@", daemon_config.masked(words))
    return text if text == words else _PART_OF_ADDRESS.sub(r"\1********\2", text)


def suspects(words: str, options: t.Iterable[str], config: dict[str, t.Any]) -> list[str]:
    """Those of the options that the daemon's words name, by the last part of their name or else by their value."""
    names = list(options)
    return [name for name in names if _is_named(name.rpartition(".")[2], words)] or [
        name for name in names if any(_is_named(text, words) for text in _texts(config, name))
    ]


def _texts(config: t.Any, name: str) -> list[str]:
    for key in name.split("."):
        config = config.get(key) if isinstance(config, dict) else None
    return [item for item in (config if isinstance(config, list) else [config]) if isinstance(item, str)]


def _is_named(word: str, words: str) -> bool:
    return len(word) > 2 and re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", words) is not None


def report(
    journal: str, failure: str, config: dict[str, t.Any], undone: dict[str, t.Any], told: dict[str, t.Any], *,
    was_restarted: bool, is_up: bool,
) -> str:  # fmt: skip
    """The cause, the option, what is in the file and runs now, and what to do: a line each.

    `config` and `undone` are results of docker_daemon_config, `told` that of the reload or restart for the way back.
    """
    said = causes(journal)
    waiting = [name for names in config["pending"].values() for name in names]
    named = suspects(" ".join(said), waiting, config["config"])
    theirs = {name: keys for name, keys in (undone.get("undone_keys") or {}).items() if name != MANAGER}
    verb = "start with" if was_restarted else "take up"
    lines = [f"Docker does not {verb} the changed {daemon_config.DEFAULT_PATH}: {'; '.join(said) or _flat(failure)}"]
    if named:
        lines.append(f"The daemon names {_list(named)}.")
    elif waiting:
        lines.append(f"It was {'restarted' if was_restarted else 'reloaded'} for {_list(waiting)}.")
    lines.append(_outcome(undone, told, was_restarted=was_restarted, is_up=is_up))
    lines += [f"Options that are managed_by {name} went back, too: {_list(keys)}." for name, keys in theirs.items()]
    lines.append(_way_out(named or waiting, undone, theirs, is_up=is_up))
    return "\n".join(lines)


def _flat(text: str) -> str:
    return _masked(" ".join(text.split()))


def _list(names: t.Sequence[str]) -> str:
    return ", ".join(names)


def _outcome(undone: dict[str, t.Any], told: dict[str, t.Any], *, was_restarted: bool, is_up: bool) -> str:
    if undone.get("msg"):
        return f"daemon.json stays as it is: {undone['msg']}"
    if not undone.get("changed"):
        if is_up:
            return "The daemon is up, and daemon.json stays as it is."
        return "The daemon is down, and there is no former daemon.json to go back to."
    if was_restarted:
        if told.get("msg") or not is_up:
            return "The former daemon.json is back, and the daemon does not start with it either."
        return "The former daemon.json is back, and the daemon runs with it."
    if told.get("msg"):
        return (
            "The former daemon.json is back. The daemon was not restarted, and did not read it: "
            f"{_flat(str(told['msg']))}"
        )
    return "The former daemon.json is back, and the daemon has read it. It was not restarted."


def _way_out(
    options: list[str], undone: dict[str, t.Any], theirs: dict[str, list[str]], *, is_up: bool
) -> str:  # fmt: skip
    keys = [key for names in theirs.values() for key in names]
    ours = [name for name in options if name not in keys]
    what = ours[0] if len(ours) == 1 else "the option at fault"
    where = f"in {VARIABLE}" if ours or not options else "where it is set"
    if undone.get("msg"):
        where += f", and {daemon_config.DEFAULT_PATH} by hand"
    start = "" if is_up else ", start the daemon (systemctl reset-failed docker; systemctl start docker)"
    return f"Correct {what} {where}{start}, and run again. All that the daemon said: journalctl --unit=docker.service"
