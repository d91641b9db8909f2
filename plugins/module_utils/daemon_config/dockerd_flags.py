# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the flags that a systemd unit passes to dockerd, and compare them with the options in daemon.json."""

from __future__ import annotations

import glob
import os
import re
import shlex
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import managed_keys, option_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.docker_options import (
    FLAG_KEYS,
    KNOWN_OPTIONS,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.managed_keys import ABSENT

DEFAULT_UNIT = "docker.service"
_SYSTEMD_DIRECTORIES = (
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
# dockerd adds up the values of the flag and of the file, and does not report a conflict.
_ALLOWED_TWICE = frozenset({"runtimes"})
# Amazon Linux: before the unit starts dockerd, a script writes this environment file with a flag for each executable in
# this directory. The file does not exist before the first start.
_AMAZON_ENVIRONMENT = "/run/docker/runtimes.env"
_AMAZON_VARIABLE = "DOCKER_ADD_RUNTIMES"
_AMAZON_RUNTIMES = "/etc/docker-runtimes.d"
_DOCKERD = ("dockerd", "dockerd-ce")
_SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh")
_SEPARATORS = ";&|<>"
_SUBSTITUTION = re.compile(r"\$\(|`|\$\w|\$\{")


class Flag(t.NamedTuple):
    """A flag of dockerd: its text, the key in daemon.json, its value, and the file that contains it."""

    text: str
    key: str
    value: t.Any
    place: str


def unit_flags(root: str = "/", unit: str = DEFAULT_UNIT) -> list[Flag]:
    """Return the flags that the unit, its drop-ins and its environment files pass to dockerd.

    If the unit starts dockerd in a way that only a shell or a script understands, the running dockerd has the flags.
    """
    words = _exec_start(root, unit)
    command = _dockerd(words)
    if words and (not command or any(_SUBSTITUTION.search(word) for word, _place in command)):
        command = _running(root, unit) or command
    return _flags(command)


def has_command(root: str = "/") -> bool:
    """Return whether the unit or a drop-in contains the command of the daemon. A drop-in can exist before the unit."""
    return any(
        name == "ExecStart"
        for path in _unit_files(root, DEFAULT_UNIT)
        for name, _value in _assignments(read_text("/", path) or "")
    )


def of_command(command: str, place: str) -> list[Flag]:
    """Return the flags of the command of a unit that is not installed yet. `place` describes the unit."""
    return _flags(_dockerd([(word, place) for word in _split(command)]))


def runtimes(flags: list[Flag]) -> list[str]:
    """Return the names of the runtimes that flags register."""
    return [name.partition("=")[0] for flag in flags if flag.key == "runtimes" for name in flag.value]


def config_file_flag(flags: list[Flag]) -> Flag | None:
    """Return the flag that sets the path of the configuration file."""
    return next((flag for flag in flags if flag.key == "config-file"), None)


def _unit_files(root: str, unit: str) -> list[str]:
    fragment: list[str] = []
    dropins: dict[str, str] = {}
    for directory in _SYSTEMD_DIRECTORIES:
        path = os.path.join(root, directory, unit)
        if not fragment and os.path.exists(path):
            fragment = [path]
        for path in glob.glob(os.path.join(glob.escape(os.path.join(root, directory, f"{unit}.d")), "*.conf")):
            dropins.setdefault(os.path.basename(path), path)
    return fragment + [dropins[name] for name in sorted(dropins)]


def _exec_start(root: str, unit: str) -> list[tuple[str, str]]:
    """Return the words of ExecStart, each with the file that contains it."""
    environment: dict[str, tuple[str, str]] = {}
    files: list[str] = []
    command: tuple[str, str] | None = None
    for path in _unit_files(root, unit):
        shown = "/" + os.path.relpath(path, root)
        for name, value in _assignments(read_text("/", path) or ""):
            if name == "ExecStart":
                command = (value, shown) if value else None
            elif name == "Environment":
                for word in _split(value):
                    variable, _sign, content = word.partition("=")
                    environment[variable] = (content, f"{variable} in {shown}")
                if not value:
                    environment.clear()
            elif name == "EnvironmentFile":
                files = [*files, value.lstrip("-")] if value else []
    for file in files:
        for name, value in _assignments(read_text(root, file) or ""):
            environment[name] = (" ".join(_split(value)), f"{name} in {file}")
    if command is None:
        return []
    runtimes = []
    if _AMAZON_ENVIRONMENT in files:
        runtimes = _amazon_runtimes(root)
        value, place = environment.get(_AMAZON_VARIABLE, ("", ""))
        # The script writes these flags again.
        rest = re.sub(rf"--add-runtime[ =][^\s=]+={re.escape(_AMAZON_RUNTIMES)}/\S+", "", value)
        environment[_AMAZON_VARIABLE] = (rest, place)
    words: list[tuple[str, str]] = []
    is_script = False
    for word in _split(command[0]):
        if is_script:
            words += _script(word, command[1], environment)
            is_script = False
            continue
        is_script = _is_shell_option(word) and any(_base(known) in _SHELLS for known, _place in words)
        whole = re.fullmatch(r"\$(\w+)", word)
        if whole:
            value, place = environment.get(whole.group(1), ("", command[1]))
            words += [(part, place) for part in _split(value)]
            continue
        place = command[1]
        text = word
        for variable in re.findall(r"\$\{(\w+)\}", word):
            value, place = environment.get(variable, ("", command[1]))
            text = text.replace("${" + variable + "}", value)
        words.append((text, place))
    return words + runtimes


def _script(text: str, place: str, environment: dict[str, tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the words of a script of a shell, to the end of the command that starts dockerd."""

    def value(match: re.Match[str]) -> str:
        return environment[match.group(1)][0] if match.group(1) in environment else match.group(0)

    words = _split(re.sub(r"\$\{?(\w+)\}?", value, text), _SEPARATORS)
    ends = (index for index, word in enumerate(words) if not word.strip(_SEPARATORS) and _has_dockerd(words[:index]))
    end = next(ends, None)
    return [(word, place) for word in words[:end]]


def _has_dockerd(words: t.Iterable[str]) -> bool:
    return any(_base(word) in _DOCKERD for word in words)


def _is_shell_option(word: str) -> bool:
    return re.fullmatch(r"-[a-z]*c", word) is not None


def _base(word: str) -> str:
    return os.path.basename(word.lstrip("-@:+!|"))


def _dockerd(words: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the words from dockerd on. Other programs can start it, for example env, taskset or a shell."""
    if words and _base(words[0][0]) == "docker":  # old versions: docker daemon
        return words
    start = next((index for index, (word, _place) in enumerate(words) if _base(word) in _DOCKERD), None)
    return [] if start is None else words[start:]


def _running(root: str, unit: str) -> list[tuple[str, str]]:
    """Return the words of the dockerd that runs in the unit."""
    for pid in sorted(filter(str.isdigit, listing(root, "/proc")), key=int):
        words = (read_text(root, f"/proc/{pid}/cmdline") or "").rstrip("\0").split("\0")
        groups = read_text(root, f"/proc/{pid}/cgroup") or ""
        # The unit of a rootless daemon has the same name.
        if _base(words[0]) in _DOCKERD and f"/{unit}" in groups and "/user@" not in groups:
            return [(word, f"the command line of process {pid}") for word in words]
    return []


def _amazon_runtimes(root: str) -> list[tuple[str, str]]:
    """Return the words that the script of Amazon's unit adds to the command line of dockerd."""
    found = []
    for name in listing(root, _AMAZON_RUNTIMES):
        shown = f"{_AMAZON_RUNTIMES}/{name}"
        path = os.path.join(root, shown.lstrip("/"))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            found.append((f"--add-runtime={name}={shown}", _AMAZON_RUNTIMES))
    return found


def _assignments(text: str) -> list[tuple[str, str]]:
    found = []
    pending = ""
    for line in text.splitlines():
        # systemd.syntax(7): a comment between continued lines is ignored, and does not end them.
        if line.lstrip().startswith(("#", ";")):
            continue
        pending += line
        if line.endswith("\\"):
            pending = pending[:-1] + " "
            continue
        name, sign, value = pending.strip().partition("=")
        pending = ""
        if sign:
            found.append((name.strip(), value.strip()))
    return found


def _split(value: str, separators: str = "") -> list[str]:
    """Return the words of a text. `separators`: these characters end a word, and are words of their own."""
    words = shlex.shlex(value, posix=True, punctuation_chars=separators)
    words.whitespace_split, words.commenters = True, ""
    try:
        return list(words)
    except ValueError:
        return value.split()


def _flags(words: list[tuple[str, str]]) -> list[Flag]:
    found: dict[str, Flag] = {}
    rest = words[1:]
    while rest:
        (word, place), rest = rest[0], rest[1:]
        if not word.startswith("-") or word in ("-", "--"):
            continue
        text = word
        name, sign, value = word.lstrip("-").partition("=")
        if not word.startswith("--") and len(name) > 1 and not sign:
            name, value, sign = name[0], name[1:], "="
        key = FLAG_KEYS.get(name, name)
        kind = KNOWN_OPTIONS.get(key.partition(".")[0], "str")
        if kind == "bool":
            content: t.Any = value.lower() not in ("false", "0", "f") if sign else True
        else:
            if not sign and rest:
                (value, _place), rest = rest[0], rest[1:]
                text = f"{word} {value}"
            content = int(value) if kind == "int" and re.fullmatch(r"-?[0-9]{1,18}", value) else value
        if kind in ("list", "map") and "." not in key:
            earlier = found[key].value if key in found else []
            content = [*earlier, content]
            text = f"{found[key].text} {text}" if key in found else text
        found[key] = Flag(text, key, content, place)
    return list(found.values())


def without_options_set_by_flags(options: dict[str, t.Any], flags: list[Flag]) -> dict[str, t.Any]:
    """Return the options without those that a flag of the unit sets to the same value."""
    values = {flag.key: flag.value for flag in flags}

    def is_set(key: str, value: t.Any) -> bool:
        if key not in values or key in _ALLOWED_TWICE or value is None:
            return False
        have = values[key]
        if isinstance(value, list):
            return isinstance(have, list) and all(item in have for item in value)
        if isinstance(value, dict) and isinstance(have, list):
            words = {str(item).partition("=")[0]: str(item).partition("=")[2] for item in have}
            return bool(value) and all(words.get(name) == _flag_text(item) for name, item in value.items())
        return managed_keys.canonical(have) == managed_keys.canonical(value)

    return {key: value for key, value in options.items() if not is_set(key, value)}


def _flag_text(value: t.Any) -> str:
    soft, hard = option_fields.get(value, "Soft"), option_fields.get(value, "Hard")
    if soft is not None and hard is not None:  # a ulimit
        return f"{soft}:{hard}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def conflicts(config: dict[str, t.Any], flags: list[Flag], path: str, unit: str = DEFAULT_UNIT) -> list[str]:
    """Report options that both the file and a flag set. dockerd does not start, even if the values are equal."""
    found = []
    for flag in flags:
        node: t.Any = config
        for key in flag.key.split("."):
            node = node.get(key, ABSENT) if isinstance(node, dict) else ABSENT
        if node is ABSENT or flag.key in _ALLOWED_TWICE:
            continue
        found.append(
            f'"{flag.key}" would be set twice, so dockerd would not start: by the flag {flag.text} in {flag.place} '
            f"({unit}), and to {managed_keys.shown(node)} in {path}. {_removal(flag, unit)}, or remove "
            f'"{flag.key}" from the options and from the file.'
        )
    return found


def _removal(flag: Flag, unit: str) -> str:
    _variable, is_variable, file = flag.place.partition(" in ")
    if is_variable and not file.endswith((".service", ".conf")):
        return f"Remove the flag from {file}"
    return f"Remove the flag from the unit (systemctl edit {unit})"


def is_in_swarm(config: dict[str, t.Any], flags: list[Flag], root: str = "/") -> bool:
    """Return whether the daemon with this configuration is a member of a swarm."""
    data_root = next((flag.value for flag in flags if flag.key == "data-root"), None)
    directory = str(data_root or config.get("data-root") or "/var/lib/docker")
    return os.path.exists(os.path.join(root, directory.lstrip("/"), "swarm", "docker-state.json"))
