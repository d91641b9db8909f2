# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read TOML, and change single values in its text, so that comments and all other lines stay. Pure functions.

They need tomllib, which the controller has: ansible-core 2.19 requires Python 3.11 there. They check each change by
parsing the new text.

This file is private to the collection: it may change in any release.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import re
import typing as t

Path = tuple[str, ...]

_HEADER = re.compile(r"\s*\[(?!\[)[^#]*\]\s*(?:#.*)?")
_ARRAY_HEADER = re.compile(r"\s*\[\[")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class TomlError(Exception):
    """A text is not TOML, or a value in it cannot be changed. The message has no path of a file."""


@dataclasses.dataclass(frozen=True)
class _Entry:
    """The lines of an assignment, and the text before its equals sign. `end` is exclusive."""

    start: int
    end: int
    key: str


@dataclasses.dataclass
class _Document:
    """The lines of a text: where its assignments, its headers and the sections of its tables are."""

    lines: list[str]
    entries: dict[Path, _Entry] = dataclasses.field(default_factory=dict)
    headers: dict[Path, int] = dataclasses.field(default_factory=dict)
    # The line after the last assignment or header of each table. The table of the top level is ().
    ends: dict[Path, int] = dataclasses.field(default_factory=lambda: {(): 0})


def parse(text: str) -> dict[str, t.Any]:
    """Return the content of a text."""
    import tomllib  # noqa: PLC0415 - Python 3.11, see above

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlError(f"not valid TOML: {error}") from error


def _parsed(text: str) -> dict[str, t.Any] | None:
    try:
        return parse(text)
    except TomlError:
        return None


def get(tree: t.Mapping[str, t.Any], path: Path) -> t.Any:
    """Return the value at a path, or None."""
    node: t.Any = tree
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    return node


# --- writing ------------------------------------------------------------------------------------------------------


def value(item: t.Any) -> str:
    """Return the text of a value."""
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, str):
        return json.dumps(item, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(item, (list, tuple)):
        return f"[{', '.join(value(part) for part in item)}]"
    if isinstance(item, t.Mapping):
        inside = ", ".join(f"{name(key)} = {value(part)}" for key, part in item.items())
        return f"{{{inside}}}"
    return repr(item)


def name(key: str) -> str:
    """Return the text of a key."""
    return key if _BARE_KEY.fullmatch(key) else value(key)


def document(tree: t.Mapping[str, t.Any]) -> str:
    """Return the text of a whole document. Every table has a header of its own."""
    return "\n\n".join(block for block in _tables(tree, ()) if block) + "\n"


def _tables(tree: t.Mapping[str, t.Any], above: Path) -> t.Iterator[str]:
    own = [f"{name(key)} = {value(item)}" for key, item in tree.items() if not isinstance(item, t.Mapping)]
    header = [f"[{'.'.join(map(name, above))}]"] if above and (own or not tree) else []
    yield "\n".join([*header, *own])
    for key, item in tree.items():
        if isinstance(item, t.Mapping):
            yield from _tables(item, (*above, key))


# --- changing a text ----------------------------------------------------------------------------------------------


def lines_of(text: str, path: Path) -> list[str] | None:
    """Return the lines that assign the value at a path, or None."""
    found = _read(text)
    entry = found.entries.get(path)
    return found.lines[entry.start : entry.end] if entry else None


def changed(text: str, path: Path, item: t.Any) -> str:
    """Return the text with another value at a path. None removes the value. All other lines stay."""
    before = parse(text)
    found = _read(text)
    entry = found.entries.get(path)
    if entry is None and get(before, path) is not None:
        raise TomlError(
            f"{'.'.join(path)} is a part of another value. Write it on a line of its own, in the table "
            f"[{'.'.join(path[:-1])}]"
        )
    if entry is not None and item is None:
        lines = [*found.lines[: entry.start], *found.lines[entry.end :]]
    elif entry is not None:
        line = f"{entry.key}= {value(item)}{_comment(found.lines[entry.start : entry.end])}"
        lines = [*found.lines[: entry.start], line, *found.lines[entry.end :]]
    elif item is None:
        return text
    else:
        lines = _inserted(found, path, [f"{name(path[-1])} = {value(item)}"])
    return _checked("\n".join(lines), _with(before, path, item), path)


def restored(text: str, path: Path, lines: list[str] | None, *, table: bool) -> str:
    """Return the text with the former lines of a value. None: the key was missing. `table`: so was its table."""
    before, found = parse(text), _read(text)
    entry = found.entries.get(path)
    item = get(parse("\n".join(lines)), _own_path(lines)) if lines else None
    if entry is not None:
        kept = [*found.lines[: entry.start], *(lines or []), *found.lines[entry.end :]]
    else:
        kept = _inserted(found, path, lines) if lines else found.lines
    new = "\n".join(kept)
    if table and not lines:
        new = _without_empty_table(new, path[:-1])
    return _checked(new, _with(before, path, item), path)


def _own_path(lines: list[str]) -> Path:
    return next(iter(_read("\n".join(lines)).entries))


def has_table(text: str, path: Path) -> bool:
    """Return whether a table has a header."""
    return not path or path in _read(text).headers


def _without_empty_table(text: str, path: Path) -> str:
    found = _read(text)
    start = found.headers.get(path)
    # The table ends with its header if it has no assignments.
    if start is None or found.ends[path] != start + 1:
        return text
    first = start - 1 if start and not found.lines[start - 1].strip() else start
    return "\n".join([*found.lines[:first], *found.lines[start + 1 :]])


def _inserted(found: _Document, path: Path, added: list[str]) -> list[str]:
    """Return the lines with a new assignment: after its commented default, else at the end of its table."""
    table = path[:-1]
    if table not in found.ends:
        # Keep the line break at the end of the text.
        body = found.lines[:-1] if found.lines and not found.lines[-1] else found.lines
        space = [""] if body and body[-1].strip() else []
        return [*body, *space, f"[{'.'.join(map(name, table))}]", *added, ""]
    comment = re.compile(rf"\s*#\s*{re.escape(path[-1])}\s*=")
    start = found.headers.get(table, -1) + 1
    later = [line for line in found.headers.values() if line >= start]
    place = found.ends[table]
    for number in range(start, min(later, default=len(found.lines))):
        if comment.match(found.lines[number]):
            place = number + 1
    return [*found.lines[:place], *added, *found.lines[place:]]


def _checked(text: str, expected: dict[str, t.Any] | None, path: Path) -> str:
    """Return the text if it has exactly the expected content."""
    found = _parsed(text)
    if found is None or expected is None or _pruned(found) != _pruned(expected):
        raise TomlError(f"{'.'.join(path)} cannot be changed without changing other values. Change it by hand")
    return text


def _with(tree: dict[str, t.Any], path: Path, item: t.Any) -> dict[str, t.Any] | None:
    """Return the tree with another value at a path, or None if a part of the path is no table."""
    result = copy.deepcopy(tree)
    node = result
    for key in path[:-1]:
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            return None
    if item is None:
        node.pop(path[-1], None)
    else:
        node[path[-1]] = item
    return result


def _pruned(tree: t.Any) -> t.Any:
    """Return a tree without empty tables."""
    if not isinstance(tree, dict):
        return tree
    return {key: part for key, item in tree.items() if (part := _pruned(item)) != {}}


def _comment(lines: list[str]) -> str:
    """Return the comment at the end of an assignment, with the blanks before it."""
    text = "\n".join(lines)
    for match in re.finditer(r"[ \t]*#", text):
        if _parsed(text[: match.start()]) == _parsed(text):
            comment = text[match.start() :]
            return comment if "\n" not in comment else ""
    return ""


# --- reading the lines --------------------------------------------------------------------------------------------


def _read(text: str) -> _Document:
    parse(text)
    found, table, number = _Document(text.split("\n")), (), 0
    while number < len(found.lines):
        line = found.lines[number]
        number += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if _ARRAY_HEADER.match(line):
            # Nothing inside of an array of tables can be addressed.
            table = ("[[", line)
        elif _HEADER.fullmatch(line) and _parsed(line) is not None:
            table = _followed(parse(line))
            found.headers[table] = number - 1
        else:
            start = number - 1
            while _parsed("\n".join(found.lines[start:number])) is None:
                number += 1
            key = _key(line)
            found.entries[(*table, *_followed(parse(f"{key}= 0")))] = _Entry(start, number, key)
        found.ends[table] = number
    return found


def _key(line: str) -> str:
    """Return the text of an assignment before its equals sign. Quoted keys may contain an equals sign, too."""
    places = (place for place, character in enumerate(line) if character == "=")
    return next(line[:place] for place in places if _parsed(f"{line[:place]}= 0") is not None)


def _followed(tree: dict[str, t.Any]) -> Path:
    """Return the path to the only value of a tree."""
    path: Path = ()
    node: t.Any = tree
    while isinstance(node, dict) and node:
        ((key, node),) = node.items()
        path = (*path, key)
    return path
