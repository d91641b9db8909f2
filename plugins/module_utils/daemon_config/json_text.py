# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read and write the text of daemon.json."""

from __future__ import annotations

import codecs
import json
import math
import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import managed_keys
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.secret_masking import masked_file

DEFAULT_PATH = owned.DAEMON_JSON

# dockerd ignores one byte-order mark, and white space as Go defines it: without the separators 1c to 1f.
_BOM = "\ufeff"
_WHITE_SPACE = re.compile(r"[^\S\x1c-\x1f]*")
# Older versions fail to start with an empty file ("EOF") and with a byte-order mark ("invalid character").
_FIRST_VERSION_THAT_READS_EMPTY_FILES = (23, 0)
# No option of dockerd comes near this depth, and every function that walks the tree can handle it.
_MAX_DEPTH = 100


class DaemonConfigError(Exception):
    """The file or the requested options cannot be used. The text names the place and what to do."""


def decode(content: bytes, path: str) -> str:
    """Decode the bytes of the file. Keep line ends and a byte-order mark."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DaemonConfigError(f"{path} is encoded in UTF-16. Nothing was changed. Save the file as UTF-8.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DaemonConfigError(
            f"{path}, byte {error.start}: the file is not valid UTF-8. Nothing was changed. Save the file as UTF-8."
        ) from error


def portable(text: str) -> str:
    """Convert a text into one that every dockerd reads: no byte-order mark, and `{}` instead of an empty file."""
    text = text[1:] if text.startswith(_BOM) else text
    return "{}\n" if _WHITE_SPACE.fullmatch(text) else text


def is_rejected_by(text: str, version: tuple[int, ...]) -> bool:
    """Return whether a dockerd of this version rejects a text that newer versions read. () is an unknown version."""
    return bool(version) and version < _FIRST_VERSION_THAT_READS_EMPTY_FILES and portable(text) != text


def parse(text: str, path: str) -> dict[str, t.Any]:
    """Parse the text of the file. Raise an error that names the place if dockerd cannot read it.

    As in dockerd, an empty file, a file with only white space, and `null` mean no options.
    """
    text = portable(text)

    def refuse_duplicates(pairs: list[tuple[str, t.Any]]) -> dict[str, t.Any]:
        found: dict[str, t.Any] = {}
        for key, value in pairs:
            if key in found:
                place = _place(path, text, rf"{re.escape(json.dumps(key, ensure_ascii=False))}\s*:")
                raise _invalid(place, f'the key "{key}" appears twice in one object, so one of its values is lost')
            found[key] = value
        return found

    def refuse_constant(name: str) -> t.Any:
        raise _invalid(_place(path, text, re.escape(name), limit=1), f"{name} is not valid JSON")

    def parse_float(number: str) -> float:
        value = float(number)
        if math.isinf(value):
            place = _place(path, text, re.escape(number), limit=1)
            raise _invalid(place, f"the number {managed_keys.shortened(number, 20)} is too large for dockerd")
        return value

    def parse_int(number: str) -> int:
        parse_float(number)
        return int(number)

    try:
        tree = json.loads(
            text,
            object_pairs_hook=refuse_duplicates,
            parse_constant=refuse_constant,
            parse_float=parse_float,
            parse_int=parse_int,
        )
    except json.JSONDecodeError as error:
        line = text.split("\n")[error.lineno - 1].strip()
        raise _invalid(
            f"{path}, line {error.lineno} column {error.colno}",
            f"invalid JSON: {error.msg}, in {managed_keys.shortened(masked_file(line), 120)!r}"
            f"{_cause(text, error.pos)}",
        ) from error
    except RecursionError as error:
        raise _too_deep(path) from error
    except ValueError as error:
        raise _invalid(path, str(error)) from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise _invalid(
            f"{path}, line 1 column 1",
            "dockerd requires a JSON object, but the file contains "
            f"{managed_keys.shortened(managed_keys.shown(tree), 60)}",
        )
    if _depth(tree) > _MAX_DEPTH:
        raise _too_deep(path)
    return tree


def runtimes(content: t.Mapping[str, t.Any] | None, path: str = DEFAULT_PATH) -> dict[str, t.Any]:
    """Return the option `runtimes` of a parsed file."""
    found = (content or {}).get("runtimes")
    if found is not None and not isinstance(found, dict):
        raise DaemonConfigError(
            f"{path}, runtimes: {str(found)[:80]!r} is not an object. Nothing was changed. Correct the file, and run "
            "the role again."
        )
    return found or {}


def _cause(text: str, position: int) -> str:
    """Name the two most common causes of invalid JSON."""
    if re.match(r"\s*(//|/\*|#)", text[position:]):
        return ". JSON does not allow comments"
    # Python 3.13 and newer report the position of the comma, older versions that of the next character.
    before, after = text[:position].rstrip(), text[position:]
    if (before.endswith(",") and after[:1] in ("}", "]")) or re.match(r",\s*[}\]]", after):
        return ". JSON does not allow a comma after the last item"
    return ""


def _place(path: str, text: str, pattern: str, limit: int = 0) -> str:
    """Return the path with the numbers of the lines that match the pattern, at most `limit`."""
    lines = [str(number) for number, line in enumerate(text.split("\n"), 1) for _match in re.finditer(pattern, line)]
    lines = lines[:limit] if limit else lines
    if not lines:
        return path
    return f"{path}, line{'s' if len(lines) > 1 else ''} {' and '.join(lines)}"


def _invalid(place: str, problem: str) -> DaemonConfigError:
    return DaemonConfigError(f"{place}: {problem}. Nothing was changed. Correct the file by hand.")


def _too_deep(path: str) -> DaemonConfigError:
    return _invalid(path, f"objects and lists are nested more than {_MAX_DEPTH} levels deep")


def _depth(tree: t.Any) -> int:
    """Return the number of nested objects and lists, counted without recursion."""
    depth, level = 0, [tree]
    while level := [node for node in level if isinstance(node, (dict, list))]:
        depth += 1
        level = [item for node in level for item in (node.values() if isinstance(node, dict) else node)]
    return depth


def dump(tree: dict[str, t.Any], like: str | None) -> str:
    """Return the text of the file with the indentation and line ends of `like` and the keys in their order."""
    indent = re.search(r"^([ \t]+)\S", like or "", re.MULTILINE)
    text = json.dumps(tree, indent=indent.group(1) if indent else 2, ensure_ascii=False, allow_nan=False) + "\n"
    return managed_keys.encodable(text.replace("\n", "\r\n") if "\r\n" in (like or "") else text)
