# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the nightly run starts, and how it continues, with targets that only record that they ran."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# A target fails if file `broken` names it, and waits if `slow` does. A scenario that does not pass leaves a host.
MAKEFILE = """
.RECIPEPREFIX = >
.PHONY: molecule
test cores bench molecule:
>@echo $@ $(ALL)$(SCENARIO) >>started
>@[ $@ != molecule ] || echo $(SCENARIO) >host
>@! grep -qs '^$@$(SCENARIO)$$' slow || sleep 60
>@! grep -qs '^$@$(SCENARIO)$$' broken
>@rm -f host
clean:
>@echo $@ >>started; rm -rf .cache
"""
DOCKER = """#!/bin/sh
case $1 in
ps) cat host 2>/dev/null || : ;;
rm) for id; do :; done; echo "removed $id" >>started; rm host ;;
esac
"""
ALL = ["clean", "test", "cores 1", "bench", "molecule gaudi", "molecule engine,facts"]


class NightlyCheckout:
    def __init__(self, path: Path):
        self.path = path
        (path / "tools").mkdir()
        for name in ("nightly.sh", "cpu.sh"):
            shutil.copy(ROOT / "tools" / name, path / "tools")
        for scenario in ("default", "engine", "facts", "gaudi"):
            (path / "molecule" / scenario).mkdir(parents=True)
            (path / "molecule" / scenario / "molecule.yml").touch()
        (path / "molecule/gaudi/inventory").mkdir()  # the others share hosts
        (path / "bin").mkdir()
        (path / "bin/docker").write_text(DOCKER)
        (path / "bin/docker").chmod(0o755)
        (path / "Makefile").write_text(MAKEFILE)
        (path / ".gitignore").write_text(".cache\nstarted\nhost\nslow\nbroken\n")
        self.git("init", "--quiet")
        self.commit()

    def git(self, *arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=self.path, check=True)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=state")

    def start(self, *arguments):
        # A shell starts background jobs with SIGINT ignored, and make gives its own options to the next make.
        others = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}}
        return subprocess.Popen(
            ["env", "--default-signal=INT", "tools/nightly.sh", *arguments],
            cwd=self.path,
            env={**others, "PATH": f"{self.path}/bin:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments):
        """Return the exit status and the output of a run, and what it started."""
        process = self.start(*arguments)
        output = process.communicate(timeout=60)[0]
        return process.returncode, output, self.started()

    def started(self):
        """Return the targets since the last call."""
        file = self.path / "started"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines

    def interrupt(self, signal_number):
        """Interrupt a run during its step with scenario gaudi, as Ctrl-C and a shutdown do."""
        (self.path / "slow").write_text("moleculegaudi\n")
        process = self.start()
        for _attempt in range(600):
            if (self.path / "host").exists():
                break
            time.sleep(0.05)
        os.killpg(process.pid, signal_number)
        process.communicate(timeout=60)
        (self.path / "slow").unlink()
        return process.returncode


@pytest.fixture
def checkout(tmp_path):
    return NightlyCheckout(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_continues_with_new_hosts(checkout, number):
    assert checkout.interrupt(number) != 0
    assert checkout.started() == ALL[:-1]
    status, output, started = checkout.run()
    # Nothing that passed is repeated, and the scenario does not get the hosts that it left.
    assert (status, started) == (0, ["removed gaudi", "molecule gaudi", "molecule engine,facts"])
    assert [line.split()[0] for line in output.splitlines() if "s CPU" in line] == ["passed"] * 5
    # A complete run has nothing left. Another commit begins again with empty caches.
    assert checkout.run()[::2] == (0, [])
    checkout.commit()
    assert checkout.run()[::2] == (0, ALL)


def test_all_steps_run_although_one_fails_and_only_that_one_is_repeated(checkout):
    (checkout.path / "broken").write_text("moleculegaudi\n")
    status, output, started = checkout.run()
    assert (status, started) == (1, [*ALL[:-1], "removed gaudi", ALL[-1]])
    assert [line.split()[0] for line in output.splitlines() if "s CPU" in line] == [*["passed"] * 3, "failed", "passed"]
    (checkout.path / "broken").unlink()
    assert checkout.run()[::2] == (0, ["molecule gaudi"])
    assert checkout.run("--restart")[::2] == (0, ALL)


def test_changes_without_a_commit_are_refused(checkout):
    (checkout.path / "Makefile").write_text("")
    status, output, started = checkout.run()
    assert (status, started) == (2, [])
    assert "commit your changes first" in output
