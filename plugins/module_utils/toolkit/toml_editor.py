# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read TOML, and change single values in its text with tomlkit, so that comments and all other lines stay.

These functions run on the controller: tomllib needs Python 3.11, which ansible-core 2.19 requires there. tomllib reads
every text that tomlkit wrote, so that a change of any other value is an error.
"""

from __future__ import annotations

import copy
import dataclasses
import re
import sys
import typing as t

Path = tuple[str, ...]

# No TOML text contains this character. It marks a place in the text.
_MARK = "\0"


class TomlError(Exception):
    """A text is not TOML, or a value in it cannot be changed. The message has no path of a file."""


@dataclasses.dataclass(frozen=True)
class _Entry:
    """An element of a document. `key` and `path` are None for blanks and comments."""

    path: Path | None
    key: t.Any
    item: t.Any
    parent: t.Any


@dataclasses.dataclass
class _Table:
    """Where new keys of a table belong. `anchor`: the last element before them. `prefix`: of dotted keys."""

    anchor: t.Any
    prefix: Path = ()
    comments: list[t.Any] = dataclasses.field(default_factory=list)
    inline: t.Any = None


def parse(text: str) -> dict[str, t.Any]:
    """Return the content of a text."""
    import tomllib  # noqa: PLC0415 - Python 3.11, see above

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also stands for a number with thousands of digits
        raise TomlError(f"not valid TOML: {str(error)[:200]}") from error


def get(tree: t.Mapping[str, t.Any], path: Path) -> t.Any:
    """Return the value at a path, or None."""
    node: t.Any = tree
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    return node


def document(tree: t.Mapping[str, t.Any]) -> str:
    """Return the text of a whole document."""
    return _tomlkit().dumps(tree)


def lines_of(text: str, path: Path) -> list[str] | None:
    """Return the lines that assign the value at a path, or None."""
    entry = _entry(_read(text), path)
    return _lines(entry).split("\n") if entry else None


def changed(text: str, path: Path, item: t.Any) -> str:
    """Return the text with another value at a path. None removes the value. All other lines stay."""
    before, found = parse(text), _read(text)
    entry = _entry(found, path)
    if entry is None and get(before, path) is not None:
        raise TomlError(f"{'.'.join(path)} is a table. Replace it by hand")
    new = text
    if entry is not None and item is None:
        entry.parent.remove(entry.key)
        new = found.as_string()
    elif entry is not None:
        entry.parent[entry.key] = _inline(item)
        new = found.as_string()
    elif item is not None:
        new = _inserted(text, found, path, _assignment(path[-1:], item), item)
    return _checked(new, _with(before, path, item), path)


def restored(text: str, path: Path, lines: list[str] | None, *, table: bool) -> str:
    """Return the text with the former lines of a value. None: the key was missing. `table`: so was its table."""
    before, found = parse(text), _read(text)
    entry, former = _entry(found, path), None
    if lines:
        former = next((entry for entry in _leaves(_read("\n".join(lines))) if entry.path), None)
    item = former.item.unwrap() if former else None
    if entry is None:
        new = _inserted(text, found, path, "\n".join(lines or []), item) if former else text
    else:
        if former:
            entry.parent[entry.key] = former.item
        else:
            entry.parent.remove(entry.key)
        new = found.as_string()
    if table and not lines:
        new = _without_empty_table(new, path[:-1])
    return _checked(new, _with(before, path, item), path)


def has_table(text: str, path: Path) -> bool:
    """Return whether a text has a table, so that a new key needs no new header."""
    return path in _tables(_read(text))


# --- the elements of a document -----------------------------------------------------------------------------------


def _tomlkit() -> t.Any:
    try:
        import tomlkit  # noqa: PLC0415 - hosts whose files stay as they are do not need it
    except ImportError as error:
        raise TomlError(
            "the Python package tomlkit is missing on the controller, which changes TOML files with it. Install it: "
            f"{sys.executable} -m pip install tomlkit"
        ) from error
    return tomlkit


def _read(text: str) -> t.Any:
    """Return the document of a text. tomlkit rejects some rare texts that are valid."""
    parse(text)
    tomlkit = _tomlkit()
    try:
        return tomlkit.parse(text)
    except (tomlkit.exceptions.TOMLKitError, RecursionError) as error:
        raise TomlError(f"tomlkit cannot read it: {str(error)[:200]}. Change it by hand") from error


def _elements(parent: t.Any, path: Path = ()) -> t.Iterator[_Entry]:
    """Return the elements in the order of the text, without those in arrays of tables, which no path names."""
    container = getattr(parent, "value", parent) if path else parent
    for key, item in container.body:
        if key is None:
            yield _Entry(None, None, item, parent)
            continue
        names = (*path, key.key)
        yield _Entry(names, key, item, parent)
        if _is_table(item):
            yield from _elements(item, names)


def _is_table(item: t.Any) -> bool:
    items = _tomlkit().items
    return isinstance(item, (items.Table, items.InlineTable))


def _leaves(found: t.Any) -> t.Iterator[_Entry]:
    items = _tomlkit().items
    tables = (items.Table, items.AoT)
    return (entry for entry in _elements(found) if entry.path and not isinstance(entry.item, tables))


def _entry(found: t.Any, path: Path) -> _Entry | None:
    return next((entry for entry in _leaves(found) if entry.path == path), None)


def _lines(entry: _Entry) -> str:
    trivia = entry.item.trivia
    assignment = f"{entry.key.as_string()}{entry.key.sep}{entry.item.as_string()}"
    return f"{trivia.indent}{assignment}{trivia.comment_ws}{trivia.comment}{trivia.trail}".rstrip("\r\n")


def _tables(found: t.Any) -> dict[Path, _Table]:
    """Return the tables that can get a new key: those with a header, with dotted keys, and inline tables."""
    result: dict[Path, _Table] = {(): _Table(None)}
    _add_tables(result, found, (), ())
    return result


def _add_tables(result: dict[Path, _Table], parent: t.Any, path: Path, header: Path) -> None:
    """Add the tables below one. `header`: the path of the last header above."""
    items = _tomlkit().items
    for key, item in (parent.value if path else parent).body:
        own = result.get(path)
        if key is None:
            if isinstance(item, items.Comment) and own:
                own.comments.append(item)
            continue
        names = (*path, key.key)
        if isinstance(item, items.InlineTable):
            result[names] = _Table(None, inline=item)
            _advance(result, path, header, item)
        elif isinstance(item, items.Table):
            if key.is_dotted():
                result.setdefault(names, _Table(None, names[len(header) :]))
                _add_tables(result, item, names, header)
            else:
                if not item.is_super_table():
                    result[names] = _Table(item)
                _add_tables(result, item, names, names)
        elif not isinstance(item, items.AoT):
            _advance(result, path, header, item)


def _advance(result: dict[Path, _Table], path: Path, header: Path, item: t.Any) -> None:
    """Let new keys follow an assignment, in its table and in those whose dotted keys name it."""
    for length in range(len(header), len(path) + 1):
        if path[:length] in result:
            result[path[:length]].anchor = item


# --- changing a document --------------------------------------------------------------------------------------------


def _assignment(names: Path, item: t.Any) -> str:
    tomlkit = _tomlkit()
    key = tomlkit.key(list(names)) if len(names) > 1 else tomlkit.key(names[0])
    return f"{key.as_string()} = {tomlkit.item(_inline(item)).as_string()}"


def _inline(item: t.Any) -> t.Any:
    """Return the value for an assignment. Without this, tomlkit gives a mapping a header of its own."""
    if isinstance(item, t.Mapping):
        table = _tomlkit().inline_table()
        table.update({key: _inline(part) for key, part in item.items()})
        return table
    if isinstance(item, (list, tuple)):
        array = _tomlkit().array()
        array.extend(_inline(part) for part in item)
        return array
    return item


def _inserted(text: str, found: t.Any, path: Path, lines: str, item: t.Any) -> str:
    """Return the text with a new assignment: after its commented default, else after the last one of its table."""
    table = _tables(found).get(path[:-1])
    end = "\r\n" if "\r\n" in text else "\n"
    if table is None:
        gap = "" if not text else end if text.endswith("\n") else end * 2
        header = _tomlkit().key(list(path[:-1])).as_string() if path[2:] else _tomlkit().key(path[0]).as_string()
        return f"{text}{gap if text.strip() else ''}[{header}]{end}{lines}{end}"
    if table.inline is not None:
        table.inline[path[-1]] = _inline(item)
        return found.as_string()
    if table.prefix:
        lines = _assignment((*table.prefix, path[-1]), item)
    default = re.compile(rf"#\s*{re.escape(path[-1])}\s*=")
    comments = [comment for comment in table.comments if default.match(comment.as_string().strip())]
    anchor = comments[-1] if comments else table.anchor
    if anchor is None:
        return f"{lines}{end}{text}"
    is_last = not anchor.trivia.trail.endswith("\n")
    anchor.trivia.trail += f"{end if is_last else ''}{_MARK}"
    return found.as_string().replace(_MARK, f"{lines}{'' if is_last else end}", 1)


def _without_empty_table(text: str, path: Path) -> str:
    found = _read(text)
    for entry in _elements(found):
        if entry.path == path and _is_table(entry.item) and _has_only_tables(entry.item):
            entry.item.trivia.indent, entry.item.trivia.trail = _MARK, _MARK
            before, _header, after = found.as_string().split(_MARK)
            # The blank line before the header was added with it.
            return re.sub(r"(^|\n)\r?\n\Z", r"\1", before) + after
    return text


def _has_only_tables(table: t.Any) -> bool:
    """Return whether a table has a header, and neither assignments nor comments. Its tables do not need the header."""
    items = _tomlkit().items
    if table.is_super_table() or isinstance(table, items.InlineTable):
        return False
    return all(
        isinstance(item, (items.Whitespace, items.Null) if key is None else (items.Table, items.AoT))
        and not (key and key.is_dotted())
        for key, item in table.value.body
    )


def _checked(text: str, expected: dict[str, t.Any] | None, path: Path) -> str:
    """Return the text if it has exactly the expected content."""
    try:
        is_expected = expected is not None and _pruned(parse(text)) == _pruned(expected)
    except TomlError:
        is_expected = False
    if not is_expected:
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
