# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's configuration files: their lines, the nodes of a line, our block, and files that are not edited."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_OPTION = re.compile(r"([A-Za-z_]+)\s*=\s*(\"[^\"]*\"|\S+)")
# More nodes than any cluster has in one expression; what is longer is not expanded.
_MOST = 100_000


@dataclass(frozen=True)
class SlurmLine:
    """A line without its comment. `options` have names in lower case."""

    number: int
    text: str
    options: dict[str, str] = field(default_factory=dict)


def parse(text: str) -> list[SlurmLine]:
    """Return the lines that set options. A backslash continues a line, and # starts a comment."""
    found, waiting, start = [], "", 0
    # The end of the file ends a continued line, too.
    for number, raw in enumerate([*text.splitlines(), ""], start=1):
        line = raw.partition("#")[0].rstrip()
        start = start or number
        if line.endswith("\\"):
            waiting += line[:-1] + " "
            continue
        whole, first = (waiting + line).strip(), start
        waiting, start = "", 0
        if whole:
            options = {name.lower(): value.strip('"') for name, value in _OPTION.findall(whole)}
            found.append(SlurmLine(first, whole, options))
    return found


def includes(text: str) -> bool:
    """Return whether a file includes others."""
    return any(line.text.lower().split()[0] == "include" for line in parse(text))


def expand(expression: str) -> list[str]:
    """Return the names in a host list: gpu[01-03,7],head → gpu01, gpu02, gpu03, gpu7, head."""
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", expression):
        found = [""]
        for literal, ranges in re.findall(r"([^\[]*)(?:\[([^\]]*)\])?", part):
            if not literal and not ranges:
                continue
            numbers = _numbers(ranges) if ranges else [""]
            if len(found) * len(numbers) > _MOST:
                return names
            found = [f"{start}{literal}{number}" for start in found for number in numbers]
        names += found
    return names


def _numbers(ranges: str) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            numbers.append(part)
            continue
        first, last = match.group(1), match.group(2) or match.group(1)
        if int(last) - int(first) > _MOST:
            continue
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return numbers


def applies(line: SlurmLine, node: str) -> bool:
    """Return whether a line is for a node. A line without NodeName is for all nodes."""
    names = line.options.get("nodename")
    return names is None or names.upper() == "DEFAULT" or node in expand(names)


def own_block(text: str, node: str) -> str | None:
    """Return the content of the block for a node, or None without a block."""
    match = _block(node).search(text)
    return match.group("body") if match else None


def without_block(text: str, node: str) -> str:
    """Return a file without the block for a node."""
    return _block(node).sub("", text)


def with_block(text: str, node: str, lines: list[str]) -> str:
    """Return a file with one block for a node, at the place of the first one, or at the end.

    Without lines, the file has no block.
    """
    if not lines:
        return without_block(text, node)
    first, last = _marks(node)
    block = "\n".join([first, *lines, last]) + "\n"
    match = _block(node).search(text)
    if match:
        return text[: match.start()] + block + without_block(text[match.end() :], node)
    return text + ("" if not text or text.endswith("\n") else "\n") + block


def refusal_of_edit(text: str, node: str) -> str | None:
    """Return why a file gets no block, after its path: the edit would change lines of others."""
    continues = own_block(text, node) is None and text.rstrip("\n").endswith("\\")
    # The character that stands for bytes that are not UTF-8.
    if not continues and "\ufffd" not in text:
        return None
    what = "ends with a backslash" if continues else "is not UTF-8"
    return f"{what}, so an edit would change lines of others. Correct the file."


def is_type(text: str) -> bool:
    """Return whether a text can be the type of a device in Slurm's files."""
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", text))


def _marks(node: str) -> tuple[str, str]:
    return (f"# BEGIN gpufleet {node} (role gpu_slurm_node; changes are lost)", f"# END gpufleet {node}")


def _block(node: str) -> re.Pattern[str]:
    name = re.escape(node)
    # A block whose end is lost does not reach into the next block.
    line = r"(?!# BEGIN gpufleet ).*\n"
    return re.compile(
        rf"^# BEGIN gpufleet {name} .*\n(?P<body>(?:{line})*?)# END gpufleet {name}[ \t\r]*(?:\n|\Z)", re.MULTILINE
    )
