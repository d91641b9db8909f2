# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated hosts' kept code of zip archives: a source is compiled once, and no other source's code is used."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

IMAGES = Path(__file__).resolve().parents[3] / "tests/sandbox/images"
# Counts the compilations of the module, like the hosts' Python: gpusim.pth imports the file at the start.
PROGRAM = """
import sys, zipimport
compiled, original = [], zipimport._compile_source
zipimport._compile_source = lambda *arguments: compiled.append(arguments) or original(*arguments)
import gpusim_bytecode
sys.path.insert(0, sys.argv[1])
import said
print(said.TEXT, said.__file__, len(compiled))
"""


def answer(archive: Path, cache: Path, source: str) -> str:
    """Import the source from a zip archive in a new process. Return its text, and how many files were compiled."""
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("said.py", source)
    environment = {**os.environ, "PYTHONPATH": str(IMAGES), "GPUSIM_BYTECODE": str(cache)}
    run = [sys.executable, "-c", PROGRAM, str(archive)]
    done = subprocess.run(run, env=environment, check=True, capture_output=True, text=True)
    text, path, compiled = done.stdout.split()
    assert path == f"{archive}/said.py"
    return f"{text} {compiled}"


def test_only_the_same_source_uses_kept_code(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert answer(tmp_path / "one.zip", cache, "TEXT = 'first'") == "first 1"
    assert answer(tmp_path / "two.zip", cache, "TEXT = 'first'") == "first 0"
    assert answer(tmp_path / "two.zip", cache, "TEXT = 'other'") == "other 1"


@pytest.mark.parametrize("content", [b"", b"\0", b"not bytecode"])
def test_a_broken_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    cache = tmp_path / "cache"
    answer(tmp_path / "one.zip", cache, "TEXT = 'first'")
    (kept,) = cache.iterdir()
    kept.write_bytes(content)
    assert answer(tmp_path / "one.zip", cache, "TEXT = 'first'") == "first 1"
    assert answer(tmp_path / "one.zip", cache, "TEXT = 'first'") == "first 0"


def test_a_directory_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert answer(tmp_path / "one.zip", tmp_path / "cache", "TEXT = 'first'").startswith("first")
