# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in for NVIDIA's installer checks for loaded modules like the original. Without DKMS, it then exits."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path

import pytest

VENDOR = Path(__file__).resolve().parents[2] / "sandbox" / "vendor"
HELD = "is loaded and in use"
GOES_ON = "there is no dkms"


@pytest.mark.parametrize(
    ("loaded", "is_held", "options", "says"),
    [
        ([], False, [], GOES_ON),
        (["nvidia_uvm", "nvidia"], False, [], GOES_ON),
        (["nvidia_uvm", "nvidia"], True, [], HELD),
        (["nvidia"], True, ["--allow-installation-with-running-driver"], GOES_ON),
        ([], False, ["--skip-everything"], "no option of this installer"),
    ],
)
def test_the_installer_checks_for_loaded_modules(tmp_path, monkeypatch, *, loaded, is_held, options, says):
    monkeypatch.syspath_prepend(str(VENDOR))
    text = importlib.import_module("make_runfile").INSTALLER.format(stand_in="", version="580.95.05")
    script, modules, programs = tmp_path / "driver.run", tmp_path / "modules", tmp_path / "bin"
    script.write_text(text.replace("/sys/module", str(modules)), encoding="utf-8")
    programs.mkdir()
    # The installer must not change the test machine.
    (programs / "rmmod").write_text(
        f"#!/bin/sh\n{'exit 1' if is_held else f'/bin/rmdir {modules}/$1'}\n", encoding="utf-8"
    )
    (programs / "rmmod").chmod(0o755)
    for name in ("mktemp", "chmod", "rm"):
        (programs / name).symlink_to(f"/bin/{name}")
    for name in loaded:
        (modules / name).mkdir(parents=True)
    argv = ["/bin/sh", str(script), "--silent", *options]
    ended = subprocess.run(argv, env={"PATH": str(programs)}, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert says in ended.stderr
