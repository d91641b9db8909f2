# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order in which tools/molecule.sh runs scenarios, and their hosts. Molecule only records its calls."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/molecule.sh", tmp_path / "tools")
    for scenario in ("amd", "default", "engine"):
        (tmp_path / "molecule" / scenario).mkdir(parents=True)
        (tmp_path / "molecule" / scenario / "molecule.yml").touch()
    (tmp_path / "molecule/amd/inventory").mkdir()  # has its own hosts
    (tmp_path / "bin").mkdir()
    for name, program in (("molecule", 'echo "$@" >>calls; [ "$*" != "$FAILS" ]'), ("docker", "cat hosts")):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "hosts").touch()
    return tmp_path


def calls(checkout: Path, *arguments: str, fails: str = "") -> tuple[int, list[str]]:
    """Return the exit status, and the calls of Molecule."""
    environment = {**os.environ, "PATH": f"{checkout}/bin:{os.environ['PATH']}", "FAILS": fails}
    status = subprocess.run(["tools/molecule.sh", *arguments], cwd=checkout, env=environment, check=False).returncode
    recorded = checkout / "calls"
    return status, recorded.read_text().splitlines() if recorded.exists() else []


def test_one_scenario_removes_its_hosts(checkout: Path) -> None:
    assert calls(checkout, "engine") == (0, ["reset -s engine", "test -s engine"])


def test_default_removes_what_an_earlier_run_left(checkout: Path) -> None:
    (checkout / "hosts").write_text("3f0c\n")
    assert calls(checkout, "default") == (0, ["destroy -s default", "reset -s default", "test -s default"])


def test_default_converges_the_hosts_of_the_others(checkout: Path) -> None:
    shared = [f"{call} -s {name}" for name in ("default", "engine") for call in ("reset", "test")]
    shared = [f"{call} --destroy=never" if call.startswith("test") else call for call in shared]
    assert calls(checkout, "engine,default") == (0, [*shared, "destroy -s default"])


def test_a_scenario_with_its_own_hosts_leaves_the_fleet_alone(checkout: Path) -> None:
    assert calls(checkout, "amd,engine") == (
        0,
        ["reset -s amd", "test -s amd", "reset -s engine", "test -s engine"],
    )


def test_without_arguments_all_run(checkout: Path) -> None:
    tested = [call.split()[2] for call in calls(checkout)[1] if call.startswith("test")]
    assert tested == ["default", "amd", "engine"]


def test_the_hosts_of_a_failed_scenario_stay(checkout: Path) -> None:
    status, called = calls(checkout, "default,engine", fails="test -s default --destroy=never")
    assert (status, called[-1]) == (1, "test -s default --destroy=never")


def test_an_unknown_scenario_stops_before_the_first(checkout: Path) -> None:
    assert calls(checkout, "engine,slrum") == (2, [])
    assert calls(checkout, "engine", "amd") == (2, [])
