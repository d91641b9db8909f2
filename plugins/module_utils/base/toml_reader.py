# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the TOML files of a host, also with a Python before 3.11, which has no tomllib.

The reader for such a Python knows tables, keys, strings on one line, booleans, integers and lists. The configuration of
container engines and of NVIDIA's container toolkit uses nothing else. It reads any other value as None, and rejects
strings on several lines.
"""

from __future__ import annotations

import json
import re
from typing import Any

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY = re.compile(r"""[ \t]*([A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*""")
_STRING = re.compile(r"""(?!\"\"\"|''')("(?:[^"\\\n]|\\.)*"|'[^'\n]*')""")
_WORD = re.compile(r"[^\s,\]}#]+")
_INTEGER = re.compile(r"[+-]?(?:0|[1-9](?:_?\d){0,18})")
_LINE_END = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z)")


class TomlValueError(ValueError):
    """A text that is not TOML. The message names the line."""


def read(text: str) -> dict[str, Any]:
    """Return the content of a text. Raise TomlValueError if it is not TOML."""
    try:
        from tomllib import loads  # noqa: PLC0415 - Python 3.11
    except ImportError:
        loads = read_plain
    try:
        return loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also stands for a number with thousands of digits
        raise TomlValueError(str(error)[:200]) from error


def get(tree: Any, *path: str) -> Any:
    """Return the value at a path, or None."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def read_plain(text: str) -> dict[str, Any]:
    """Return the content of a text without tomllib. See the top of this file."""
    found: dict[str, Any] = {}
    table = found
    place = _SPACE.match(text).end()
    while place < len(text):
        if text.startswith("[", place):
            is_list = text.startswith("[[", place)
            keys, place = _keys(text, place + 1 + is_list)
            place = _expect(text, place, "]]" if is_list else "]")
            table = _table(text, place, found, keys[:-1])
            if is_list:
                table.setdefault(keys[-1], [])
                items = table[keys[-1]]
                _require(isinstance(items, list), text, place)
                items.append({})
                table = items[-1]
            else:
                table = _table(text, place, table, keys[-1:])
        else:
            keys, place = _keys(text, place)
            place = _expect(text, place, "=")
            value, place = _value(text, re.compile(r"[ \t]*").match(text, place).end())
            owner = _table(text, place, table, keys[:-1])
            _require(keys[-1] not in owner, text, place)
            owner[keys[-1]] = value
        end = _LINE_END.match(text, place)
        _require(end, text, place)
        place = _SPACE.match(text, end.end()).end()
    return found


def _require(is_valid: Any, text: str, place: int) -> None:
    if not is_valid:
        raise TomlValueError(f"not valid TOML (at line {text.count(chr(10), 0, place) + 1})")


def _expect(text: str, place: int, sign: str) -> int:
    _require(text.startswith(sign, place), text, place)
    return place + len(sign)


def _keys(text: str, place: int) -> tuple[list[str], int]:
    keys = []
    while True:
        match = _KEY.match(text, place)
        _require(match, text, place)
        keys.append(_string(text, match.group(1), place) if match.group(1)[0] in "\"'" else match.group(1))
        place = match.end()
        if not text.startswith(".", place):
            return keys, place
        place += 1


def _table(text: str, place: int, tree: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    for key in keys:
        tree = tree.setdefault(key, {})
        # A table below a list of tables belongs to the last one.
        tree = tree[-1] if isinstance(tree, list) and tree else tree
        _require(isinstance(tree, dict), text, place)
    return tree


def _string(text: str, quoted: str, place: int) -> str:
    if quoted[0] == "'":
        return quoted[1:-1]
    # JSON has all escapes of TOML except this one.
    escaped = re.sub(r"\\U([0-9a-fA-F]{8})", lambda match: json.dumps(chr(int(match.group(1), 16)))[1:-1], quoted)
    try:
        return json.loads(escaped, strict=False)
    except (ValueError, OverflowError):
        raise TomlValueError(f"not valid TOML (at line {text.count(chr(10), 0, place) + 1})") from None


def _value(text: str, place: int) -> tuple[Any, int]:
    if text.startswith("[", place):
        return _list(text, place + 1)
    match = _STRING.match(text, place)
    if match:
        return _string(text, match.group(1), place), match.end()
    if text.startswith("{", place):
        return _inline_table(text, place + 1)
    _require(text[place : place + 1] not in ('"', "'"), text, place)
    match = _WORD.match(text, place)
    _require(match, text, place)
    word = match.group(0)
    if word in ("true", "false"):
        return word == "true", match.end()
    return int(word.replace("_", "")) if _INTEGER.fullmatch(word) else None, match.end()


def _inline_table(text: str, place: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while True:
        place = _SPACE.match(text, place).end()
        if text.startswith("}", place):
            return found, place + 1
        keys, place = _keys(text, place)
        place = _SPACE.match(text, _expect(text, place, "=")).end()
        owner = _table(text, place, found, keys[:-1])
        owner[keys[-1]], place = _value(text, place)
        place = _SPACE.match(text, place).end()
        if not text.startswith("}", place):
            place = _expect(text, place, ",")


def _list(text: str, place: int) -> tuple[list[Any], int]:
    found = []
    while True:
        place = _SPACE.match(text, place).end()
        if text.startswith("]", place):
            return found, place + 1
        value, place = _value(text, place)
        found.append(value)
        place = _SPACE.match(text, place).end()
        if not text.startswith("]", place):
            place = _expect(text, place, ",")
