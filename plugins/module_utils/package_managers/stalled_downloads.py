# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the programs of a package manager, and end those that only download if no data arrives.

A program that may change packages is never ended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import time
from typing import Any, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment, url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import program_runner as base_run
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.stalled_program import WatchedResult, run_watched
from ansible_collections.gpufleet.hosts.plugins.module_utils.output import progress_file
from ansible_collections.gpufleet.hosts.plugins.module_utils.output.package_manager_lines import ProgressReader
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import lock_holders, stalled_download_urls
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.download_retries import Retries, note

# Roles use their own name as the name of their record.
_ROLES = ("nvidia_driver", "container_engine", "nvidia_container_toolkit", "cuda_toolkit", "nvidia_persistenced")
# The programs that change packages, with the commands of each that only download.
_VERBS = {
    "apt-get": {"update"},
    "dnf": {"makecache", "repoquery"},
    "zypper": {"refresh", "search"},
    "dpkg": set(),
}
_OPTIONS = {
    "apt-get": {"--download-only", "--print-uris"},
    "dnf": {"--downloadonly", "--assumeno"},
    "zypper": {"--download-only", "--dry-run"},
}
# apt before version 2.3 and dnf succeed without some repositories.
_LEFT_OUT = re.compile(r"^W: (?:Failed to fetch|Some index files)|^Ignoring repositories:", re.MULTILINE)


class StalledError(PackageManagerError):
    """No data arrived, and the program was ended."""

    def __init__(self, text: str, urls: list[str], seconds: float, output: str = "") -> None:
        super().__init__(text)
        self.output = output
        self.urls = [url_logins.without_login(url) for url in urls]
        self.reason = f"no data for {seconds:g} seconds, twice"


@dataclasses.dataclass(frozen=True)
class DownloadLimits:
    """Seconds without progress, and seconds to wait for another package manager. `record` names the role."""

    timeout: float
    lock_timeout: float
    record: str


def only_downloads(argv: list[str]) -> bool:
    """Return whether a command fetches metadata or packages, but changes no package."""
    options = {word for word in argv[1:] if word.startswith("--")}
    # A package can have the name of a command.
    return _verb(argv) in _VERBS.get(argv[0], ()) or bool(options & _OPTIONS.get(argv[0], set()))


def _verb(argv: list[str]) -> str:
    words = [word for before, word in zip(argv, argv[1:]) if not word.startswith("-") and before != "-c"]
    return words[0] if words else ""


def variable(record: str) -> str:
    """Return the name of the option and of the variable that sets it."""
    return f"{record}_download_timeout" if record in _ROLES else "download_timeout"


def message(argv: list[str], urls: list[str], limits: DownloadLimits) -> str:
    """Return the message for a stalled download."""
    program = f"{argv[0]} {_verb(argv)}"
    source = f" from {' or '.join(urls)}" if urls else ""
    return (
        f"{program} received no data{source} for {limits.timeout:g} seconds, twice, so it was ended before it changed "
        f"a package. Check the server, the proxy and the network, or increase {variable(limits.record)}."
    )


def runner(
    module: Any,
    manager: str,
    limits: DownloadLimits,
    root: str = "/",
    retries: Retries | None = None,
    *,
    reports: bool = False,
) -> base_run.Run:
    """Return a function that runs a program like `program_runner.runner`, and raises StalledError if a download stalls.

    Downloads that fail for a reason that can pass by itself are tried again, and so is the first one that stalls.
    `reports`: write what the programs do to the progress file.
    """
    if limits.timeout < 1:
        raise PackageManagerError(f"{variable(limits.record)} is {limits.timeout:g}, but must be 1 or more.")
    retries = retries or Retries()
    plain = _reporting(base_run.runner(module), root) if reports else base_run.runner(module)

    def run(
        argv: list[str], environment: dict[str, str] | None = None, stdin: str | None = None
    ) -> tuple[int, str, str]:
        program = pinned_environment.find(argv[0]) if only_downloads(argv) else None
        if program is None:
            return plain(argv, environment=environment, stdin=stdin)

        def attempt() -> tuple[int, str, str]:
            nonlocal stalls
            result = watched()
            if result.stalled and not stalls:
                stalls = 1
                result = watched()
            if result.stalled:
                urls = _sources(argv, result, lambda more: plain(more, environment=environment)[1], root)
                raise StalledError(message(argv, urls, limits), urls, limits.timeout, result.out)
            return result.rc, result.out, result.err

        def watched() -> WatchedResult:
            return run_watched(
                [program, *argv[1:]],
                pinned_environment.environment(dict(os.environ), environment),
                limits.timeout,
                stdin=stdin,
                waits=waiting(root, manager, limits.lock_timeout),
            )

        stalls = 0
        text = f"downloading {'package lists' if _verb(argv) in _VERBS[argv[0]] else 'packages'}"
        with progress_file.shown(root, text) if reports else contextlib.nullcontext():
            (rc, out, err), tries = retries.run(attempt, _problem)
        return rc, out, f"{err.rstrip()}\n{_tried(argv, tries)}" if tries > 1 and _problem((rc, out, err)) else err

    return run


def _reporting(run: base_run.Run, root: str) -> base_run.Run:
    """Return a function that also writes to the progress file what a package manager does."""

    def reported(
        argv: list[str], environment: dict[str, str] | None = None, stdin: str | None = None
    ) -> tuple[int, str, str]:
        if argv[0] not in _VERBS:
            return run(argv, environment=environment, stdin=stdin)
        reader = ProgressReader(f"running {argv[0]}")

        def watch(data: bytes) -> None:
            if reader.feed(data):
                progress_file.write(root, reader.text)

        with progress_file.shown(root, reader.text):
            return run(argv, environment=environment, stdin=stdin, watch=watch)

    return reported


def _problem(result: tuple[int, str, str]) -> str:
    """Return the output of a program that failed, or that left out a repository."""
    rc, out, err = result
    return f"{err}\n{out}" if rc or _LEFT_OUT.search(f"{err}\n{out}") else ""


def _tried(argv: list[str], tries: int) -> str:
    """Return the line that says how often a command was tried, in the form of its errors."""
    return f"{'E: ' if argv[0] == 'apt-get' else ''}{note(tries)}\n"


def waiting(root: str, manager: str, seconds: float) -> Callable[[set[int]], bool]:
    """Return a function that tells whether processes wait for another package manager, at most for so many seconds."""
    end = time.monotonic() + seconds
    return lambda pids: time.monotonic() < end and lock_holders.has_foreign_owner(root, manager, pids)


def _sources(argv: list[str], result: WatchedResult, run: Callable[[list[str]], str], root: str) -> list[str]:
    if argv[0] == "apt-get":
        printed = run([argv[0], "--print-uris", *argv[1:]])
        return stalled_download_urls.apt(printed, result.out, result.open_files)
    return stalled_download_urls.rpm(stalled_download_urls.entries(argv, root), result.out, result.open_files)
