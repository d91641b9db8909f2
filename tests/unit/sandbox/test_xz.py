# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated hosts' program xz: kernel modules become valid files, and all else goes to the real program."""

from __future__ import annotations

import lzma
import os
import runpy
from pathlib import Path
from typing import Any

import pytest

PROGRAM = runpy.run_path(str(Path(__file__).resolve().parents[3] / "tests/sandbox/images/xz"))
DKMS = ["--check=crc32", "--lzma2=dict=1MiB", "-f"]


@pytest.mark.parametrize("size", [0, 1, 3, 0xFFFF, 0x10000, 0x10001, 300_001])
def test_a_file_has_the_content_of_the_module(size: int) -> None:
    content = os.urandom(size)
    assert lzma.decompress(PROGRAM["stored"](content), format=lzma.FORMAT_XZ) == content


def test_a_module_is_replaced_by_its_file(tmp_path: Path) -> None:
    module = tmp_path / "nvidia.ko"
    module.write_bytes(b"module")
    module.chmod(0o640)
    PROGRAM["main"]([*DKMS, str(module)])
    (found,) = tmp_path.iterdir()
    assert (found.name, found.stat().st_mode & 0o777) == ("nvidia.ko.xz", 0o640)
    assert lzma.decompress(found.read_bytes()) == b"module"


@pytest.mark.parametrize(
    "arguments", [[], ["--decompress", "nvidia.ko.xz"], ["-f", "nvidia.ko"], [*DKMS, "archive.tar"]]
)
def test_other_uses_run_the_real_program(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Replaced(Exception):
        pass

    def execv(*call: Any) -> None:
        raise Replaced(call)

    monkeypatch.setattr(os, "execv", execv)
    with pytest.raises(Replaced) as caught:
        PROGRAM["main"](arguments)
    assert caught.value.args == (("/usr/bin/xz", ["xz", *arguments]),)
