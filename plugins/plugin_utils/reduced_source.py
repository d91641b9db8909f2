# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leave out of Python source what a program on a host does not need. All line numbers stay, for tracebacks.

The functions read text, because syntax trees of all modules would take half a second at each start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_STRING = r'r?"""(?:[^"\\]|"(?!"")|\\.)*"""(?=\n)'
# The first statement of a file, or the first line of a block.
_DOCSTRING = re.compile(rf"\A(?:#.*\n)*{_STRING}|(?<=:\n)( *){_STRING}")
_COMMENT = re.compile(r"^ *#.*$|  # .*$", re.MULTILINE)
# A function or class at the top level, with its decorators, or a name with a value of one line.
_DEFINITION = re.compile(
    r"^(?:@[^\n]*\n)*(?:def|class) (\w+)[^\n]*\n(?:(?:[ \t)][^\n]*)?\n)*|^([A-Za-z_]\w*) *= *[^\n(\[{\\]*\n",
    re.MULTILINE,
)
_WORD = re.compile(r"[A-Za-z_]\w*")


def without_texts(source: str) -> str:
    """Leave out docstrings and comments. The source must be formatted as in this collection."""
    return _COMMENT.sub("", _DOCSTRING.sub(_empty, source))


def _empty(docstring: re.Match) -> str:
    lines = "\n" * docstring[0].count("\n")
    # A block can consist of its docstring.
    return lines if docstring[1] is None else f'{docstring[1]}""{lines}'


def without_unused(source: str, users: Iterable[str]) -> str:
    """Leave out the top-level definitions of a module that neither the sources `users` nor other statements mention.

    A word that ends with an underscore, such as `NVML_ERROR_`, mentions all names that begin with it.
    """
    definitions: dict[str, list[str]] = {}
    for found in _DEFINITION.finditer(source):
        definitions.setdefault(found[1] or found[2], []).append(found[0])
    known: set[str] = set()
    waiting = [_DEFINITION.sub("", source), *users]
    while waiting:
        for word in {*_WORD.findall(waiting.pop())} - known:
            known.add(word)
            if word.endswith("_"):
                begun = [name for name in definitions if name.startswith(word) and name not in known]
                known.update(begun)
            else:
                begun = []
            waiting += [text for name in (word, *begun) for text in definitions.get(name, ())]

    def kept(found: re.Match) -> str:
        return found[0] if (found[1] or found[2]) in known else "\n" * found[0].count("\n")

    return _DEFINITION.sub(kept, source)
