# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the programs of a package manager, and end those that only download if no data arrives.

A program that may change packages is never ended.
"""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import process_state
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import run as base_run
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.watched_run import WatchedResult, run_watched
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import download_sources, lock_files
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError

# Roles use their own name as the name of their record.
_ROLES = ("nvidia_driver", "container_engine", "nvidia_container_toolkit", "cuda_toolkit", "nvidia_persistenced")
_VERBS = {"apt-get": {"update"}, "dnf": {"makecache", "repoquery"}, "zypper": {"refresh", "search"}}
_OPTIONS = {
    "apt-get": {"--download-only", "--print-uris"},
    "dnf": {"--downloadonly", "--assumeno"},
    "zypper": {"--download-only", "--dry-run"},
}


class StalledError(PackageManagerError):
    """No data arrived, and the program was ended."""


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
        f"{program} received no data{source} for {limits.timeout:g} seconds, so it was ended before it changed a "
        f"package. Check the server, the proxy and the network, or increase {variable(limits.record)}."
    )


def runner(module: Any, manager: str, limits: DownloadLimits, root: str = "/") -> base_run.Run:
    """Return a function that runs a program like `base.run.runner`, and raises StalledError if a download stalls."""
    if limits.timeout < 1:
        raise PackageManagerError(f"{variable(limits.record)} is {limits.timeout:g}, but must be 1 or more.")
    plain = base_run.runner(module)

    def run(
        argv: list[str], environment: dict[str, str] | None = None, stdin: str | None = None
    ) -> tuple[int, str, str]:
        program = process_state.find(argv[0]) if only_downloads(argv) else None
        if program is None:
            return plain(argv, environment=environment, stdin=stdin)
        result = run_watched(
            [program, *argv[1:]],
            process_state.environment(dict(os.environ), environment),
            limits.timeout,
            stdin=stdin,
            waits=waiting(root, manager, limits.lock_timeout),
        )
        if result.stalled:
            urls = _sources(argv, result, lambda more: plain(more, environment=environment)[1], root)
            raise StalledError(message(argv, urls, limits))
        return result.rc, result.out, result.err

    return run


def waiting(root: str, manager: str, seconds: float) -> Callable[[set[int]], bool]:
    """Return a function that tells whether processes wait for another package manager, at most for so many seconds."""
    end = time.monotonic() + seconds
    return lambda pids: time.monotonic() < end and lock_files.has_foreign_owner(root, manager, pids)


def _sources(argv: list[str], result: WatchedResult, run: Callable[[list[str]], str], root: str) -> list[str]:
    if argv[0] == "apt-get":
        printed = run([argv[0], "--print-uris", *argv[1:]])
        return download_sources.apt(printed, result.out, result.open_files)
    return download_sources.rpm(download_sources.entries(argv, root), result.out, result.open_files)
