# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw docs/recording.svg, what playbooks print on simulated hosts, from docs/recording.cast.

The recording has all lines. The picture leaves out tasks that only say `ok`, `changed` or `skipping` for each host, and
lines about a long task that repeat what the lines before said.

`--record COMMAND...` runs commands and writes the recording in the text format of asciinema, version 2: a header, then
a line of JSON for each line that they print. tests/sandbox/record.sh does this on the simulated hosts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
WIDTH, SIZE, LINE, MARGIN = 120, 12, 16, 12
# The colors that Ansible uses.
_COLORS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea"}
_PLAIN, _DIM, _BACKGROUND = "#e6edf3", "#8b949e", "#0d1117"
# What Ansible prints about a task that only succeeds: a line per host, and indented details.
_QUIET = re.compile(r"^((ok|changed|skipping|included): .*|\s.*|)$")
_PROGRESS = re.compile(r"^([^:\[]+): (\d+:)?\d+:\d\d (.*)$")
_TITLE = re.compile(r"^(PLAY|TASK|RUNNING HANDLER) (\[|RECAP)")
_ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")


def record(commands: list[str]) -> str:
    """Run the commands in a shell, and return the recording."""
    header = {"version": 2, "width": WIDTH, "height": 40, "title": "gpufleet.hosts on simulated hosts"}
    entries: list[str] = [json.dumps(header)]
    began = time.monotonic()

    def add(text: str) -> None:
        entries.append(json.dumps([round(time.monotonic() - began, 2), "o", text]))

    environment = {**os.environ, "ANSIBLE_FORCE_COLOR": "1", "COLUMNS": str(WIDTH)}
    for command in commands:
        add(f"$ {command}\r\n")
        with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True, env=environment) as process:
            for line in process.stdout or ():
                # The files are those of this clone. Users find them below their home directory.
                add(line.replace(f"{ROOT}/", "~/").replace("\n", "\r\n"))
    return "\n".join([*entries, ""])


def lines(recording: str) -> list[str]:
    """Return what a recording shows, line by line, with the sequences of the colors."""
    _header, *entries = recording.splitlines()
    return "".join(json.loads(entry)[2] for entry in entries).replace("\r\n", "\n").rstrip("\n").split("\n")


def folded(shown: list[str]) -> list[str]:
    """Return the lines with a count in the place of tasks that only succeed."""
    found: list[str] = []
    quiet = 0
    said: set[tuple[str, str]] = set()
    for block in _blocks(shown):
        plain = [_ESCAPE.sub("", line) for line in block]
        progress = [match for match in map(_PROGRESS.match, plain[1:]) if match]
        rest = [line for line in plain[1:] if not _PROGRESS.match(line) and not _QUIET.match(line)]
        if not plain[0].startswith(("TASK", "RUNNING")) or rest:
            found += [*_count(quiet), *block]
            quiet = 0
            continue
        quiet += 1
        new: dict[tuple[str, str], str] = {}
        for match in progress:
            if (match[1], match[3]) not in said:
                new.setdefault((match[1], match[3]), match[0])
        said |= set(new)
        if new:
            found += [*_count(quiet), *new.values(), ""]
            quiet = 0
    return found + _count(quiet)


def _blocks(shown: list[str]) -> list[list[str]]:
    """Return the lines in blocks. A title of Ansible or a command begins a block."""
    blocks: list[list[str]] = [[]]
    for line in shown:
        plain = _ESCAPE.sub("", line)
        if _TITLE.match(plain) or plain.startswith("$ "):
            blocks.append([])
        blocks[-1].append(line)
    return [block for block in blocks if block]


def _count(tasks: int) -> list[str]:
    return [f"\x1b[2m... {tasks} {'task' if tasks == 1 else 'tasks'} ...\x1b[0m", ""] if tasks else []


def spans(line: str) -> list[tuple[str, str]]:
    """Return the parts of a line with their colors."""
    found, color, position = [], _PLAIN, 0
    for match in [*_ESCAPE.finditer(line), None]:
        text = line[position : match.start() if match else len(line)]
        if text:
            found.append((text, color))
        if match:
            codes = match[1].split(";")
            color = next((_COLORS[code] for code in codes if code in _COLORS), _DIM if "2" in codes else _PLAIN)
            position = match.end()
    return found


def drawing(shown: list[str]) -> str:
    """Return the picture of a terminal with these lines."""
    longest = max((len(_ESCAPE.sub("", line)) for line in shown), default=0)
    width, height = int(longest * SIZE * 0.61) + 2 * MARGIN, len(shown) * LINE + 2 * MARGIN
    found = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img">',
        "<title>Playbooks plan, site and verify on simulated hosts</title>",
        f"<style>text{{font-family:monospace;font-size:{SIZE}px;white-space:pre}}</style>",
        f'<rect width="{width}" height="{height}" rx="6" fill="{_BACKGROUND}"/>',
    ]
    for number, line in enumerate(shown):
        parts = "".join(f'<tspan fill="{color}">{escape(text)}</tspan>' for text, color in spans(line))
        if parts:
            found.append(
                f'<text x="{MARGIN}" y="{MARGIN + (number + 1) * LINE - 4}" xml:space="preserve">{parts}</text>'
            )
    return "\n".join([*found, "</svg>", ""])


def main(arguments: list[str] | None = None) -> int:
    """Record commands, or write or check the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if the picture is out of date")
    parser.add_argument("--record", nargs="+", metavar="COMMAND", help="run these commands and record what they print")
    parser.add_argument("--root", type=Path, default=ROOT, help="the collection that contains the recording")
    options = parser.parse_args(arguments)
    source, picture = options.root / "docs/recording.cast", options.root / "docs/recording.svg"
    if options.record:
        source.write_text(record(options.record), encoding="utf-8")
    text = drawing(folded(lines(source.read_text(encoding="utf-8"))))
    if picture.exists() and picture.read_text(encoding="utf-8") == text:
        return 0
    if options.check:
        print("docs/recording.svg: The picture is out of date. Run `make docs`.", file=sys.stderr)
        return 1
    picture.write_text(text, encoding="utf-8")
    print("docs/recording.svg: updated")
    return 0


if __name__ == "__main__":
    sys.exit(main())
