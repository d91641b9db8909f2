# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follow a walk of CONTRIBUTING.md in a copy of the collection."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("plugins", "roles", "playbooks", "tests/drift", "tests/unit/plugins")


def copy(home: Path, files: Sequence[str]) -> Path:
    """Copy the collection without its pages, and these files. With its bytecode, a probe compiles only the changes."""
    target = home / "ansible_collections/gpufleet/hosts"
    for folder in FOLDERS:
        # Python and pytest write bytecode to X.pyc.NUMBER first, and another process may rename that file at any time.
        ignored = shutil.ignore_patterns("*-pytest-*.pyc", "*.pyc.*", "files", "*.md")
        shutil.copytree(ROOT / folder, target / folder, ignore=ignored)
    for path in files:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, target / path)
    return target


def edit(target: Path, edits: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Insert lines. `edits`: by file, the text before which a line is inserted, and the line."""
    for path, insertions in edits.items():
        text = (target / path).read_text(encoding="utf-8")
        for place, line in insertions:
            assert text.count(place) == 1, f"{path}: {place}"
            text = text.replace(place, line + place)
        (target / path).write_text(text, encoding="utf-8")


def changed(target: Path) -> list[str]:
    """Return the files of a copy that the collection does not have, or has with other content."""
    files = (path for path in target.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    names = (str(path.relative_to(target)) for path in files)
    return sorted(
        name
        for name in names
        if not (ROOT / name).is_file() or (ROOT / name).read_bytes() != (target / name).read_bytes()
    )


def probe(home: Path, program: str) -> Any:
    """Run a program with the copy, and return what it prints as JSON."""
    environment = {**os.environ, "PYTHONPATH": str(home), "ANSIBLE_COLLECTIONS_PATH": str(home)}
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, cwd=home, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def page(title: str) -> str:
    """Return a walk's text."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.partition(f"### {title}\n")[2].partition("\n##")[0]
