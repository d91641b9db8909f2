# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the commands of a documentation page in the current directory, so that a test does not retype them.

    run.py PAGE HEADING...

The blocks of the sections run in their order. A YAML block that begins with the comment `# NAME.yml` is written to
that file. Each command in a block `sh` must succeed. A section without a command is an error: the page has changed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\w+\.yml)\n")


class PageError(Exception):
    """The page lacks what the test runs."""


def section(page: str, heading: str) -> str:
    """Return the text of a section of the second level."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    if not found:
        raise PageError(f"The page has no section {heading!r}.")
    return found.group(1)


def commands(text: str) -> list[str]:
    """Return the commands of a block, with continued lines joined."""
    lines = text.replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if line.strip() and not line.lstrip().startswith("#")]


def steps(page: str, headings: list[str]) -> Iterator[tuple[str, str]]:
    """Return the files to write and the commands to run, in order: `("file NAME", text)` and `("run", command)`."""
    for heading in headings:
        blocks = _FENCE.findall(section(page, heading))
        found = [("run", command) for language, text in blocks if language == "sh" for command in commands(text)]
        if not found:
            raise PageError(f"Section {heading!r} has no command.")
        for language, text in blocks:
            named = _FILE.match(text)
            if language == "yaml" and named:
                yield f"file {named.group(1)}", text
        yield from found


def main() -> int:
    """Run the steps of the page."""
    page = Path(sys.argv[1]).read_text(encoding="utf-8")
    for kind, text in [*steps(page, sys.argv[2:])]:
        if kind.startswith("file "):
            Path(kind.partition(" ")[2]).write_text(text, encoding="utf-8")
            continue
        print(f"$ {text}", flush=True)
        code = subprocess.run(text, shell=True, check=False).returncode
        if code:
            print(f"The command failed with code {code}.")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
