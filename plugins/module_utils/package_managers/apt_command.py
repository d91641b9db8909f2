# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run apt and dpkg, wait for their locks, and read from the output why they failed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.url_logins import masked
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import lock_holders
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    BusyError,
    PackageManagerError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.lock_holders import (
    busy,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.stalled_downloads import StalledError

# Ask no questions, and restart no services.
_ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "APT_LISTCHANGES_FRONTEND": "none",
    "NEEDRESTART_MODE": "l",
    "NEEDRESTART_SUSPEND": "1",
}
SOLVER = [
    "--no-install-recommends",
    # The host's configuration may remove unneeded packages with every transaction.
    "--option=APT::Get::AutomaticRemove=false",
    # Without this option, apt takes a missing package's name as a pattern if it contains a dot.
    "--option=APT::Cmd::Pattern-Only=true",
]
KEEP_CONFIGURATION = ["--force-confdef", "--force-confold"]
_LOCKED = re.compile(r"Could not get lock|is another process using it|lock (?:was|is) locked by")
_ERROR = re.compile(
    r"^(?:E: |W: (?:Failed|GPG|Some)|dpkg: (?:error|dependency)|Errors were|The following packages have unmet)"
)
_PROGRESS = re.compile(r"^(?:\(Reading |Preparing |Unpacking |Setting up |Processing triggers |Removing |Purging )")
_SCRIPT_LINES = 5
_LINES = 15


class AptCommand:
    """Runs programs that change the host. Waits for locks up to the lock timeout."""

    def __init__(self, run: Run, root: str, timeout: float) -> None:
        """Use `run` for all programs. The locks are below `root`."""
        self._run = run
        self._root = root
        self._timeout = timeout

    def wait(self, timeout: float | None = None) -> None:
        """Wait until no other program uses apt or dpkg."""
        seconds = self._timeout if timeout is None else timeout
        holder = lock_holders.wait(lambda: lock_holders.holder(self._root, "apt"), seconds)
        if holder:
            raise BusyError(busy(holder, self._timeout))

    def update(self, more: Iterable[str] = ()) -> list[str]:
        """Return the command that fetches the package lists. `more` are options that select some of them."""
        return [
            "apt-get",
            f"--option=DPkg::Lock::Timeout={self._timeout:.0f}",
            "--option=APT::Update::Error-Mode=any",
            "--option=Acquire::Retries=0",
            *more,
            "update",
        ]

    def get(self) -> list[str]:
        """Return the beginning of a command that installs or removes packages."""
        options = [f"--option=DPkg::Lock::Timeout={self._timeout:.0f}"]
        options += [f"--option=DPkg::Options::={option}" for option in KEEP_CONFIGURATION]
        return ["apt-get", "--assume-yes", *SOLVER, *options]

    def attempt(self, argv: list[str]) -> str:
        """Run a program. Return why it failed, or an empty text."""
        try:
            rc, out, err = self.change(argv)
        except StalledError as error:
            return str(error)
        if rc < 0:
            return f"{argv[0]} was killed by signal {-rc}."
        return reason(out, err) if rc else ""

    def succeed(self, argv: list[str], failure: str) -> None:
        """Run a program, and raise PackageManagerError with its output if it fails."""
        error = self.attempt(argv)
        if error:
            raise PackageManagerError(f"{failure}: {error}")

    def download(self, argv: list[str]) -> None:
        """Download the packages of an installation. It can be ended if it stalls, and the installation cannot.

        The installation repeats and reports other errors.
        """
        self.change([argv[0], "--download-only", *argv[1:]])

    def change(self, argv: list[str]) -> tuple[int, str, str]:
        """Run a program, and again if another program takes the lock in between."""
        end = time.monotonic() + self._timeout
        while True:
            is_last = time.monotonic() >= end
            rc, out, err = self._run(argv, environment=_ENVIRONMENT)
            if rc == 0 or not _LOCKED.search(err):
                return rc, out, err
            self.wait(end - time.monotonic())
            if is_last:
                raise BusyError(busy(reason(out, err).rstrip("."), self._timeout))
            time.sleep(0.2)


def reason(out: str, err: str) -> str:
    """Return the lines of an output that say why apt or dpkg failed, as one sentence without logins."""
    kept: list[str] = []
    for text in (out, err):
        lines = text.splitlines()
        errors = [index for index, line in enumerate(lines) if _ERROR.match(line)]
        # What a package's script prints is between dpkg's last step and its message.
        first = next((index for index in errors if lines[index].startswith("dpkg: error processing")), 0)
        steps = [index for index in range(first) if _PROGRESS.match(lines[index])]
        start = max([first - _SCRIPT_LINES, 0, *(index + 1 for index in steps[-1:])])
        chosen = {*errors, *range(start, first)}
        for index, line in enumerate(lines):
            if line.startswith(" ") and index - 1 in chosen:
                chosen.add(index)
        kept += [lines[index].strip() for index in sorted(chosen)]
    kept = list(dict.fromkeys(line for line in kept if line)) or (err.strip() or out.strip()).splitlines()[-_LINES:]
    text = masked(" ".join(kept[:_LINES]))
    return text if text.endswith((".", "!", "?")) else f"{text}."
