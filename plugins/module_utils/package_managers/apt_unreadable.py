# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of apt's repositories could not be read, and the options that make apt use the others."""

from __future__ import annotations

import os
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.stalled_downloads import StalledError
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import (
    apt_excluded,
    apt_sources,
    download_retries,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.apt_excluded import Target
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.unreadable_repositories import FailedSource

# apt before version 2.3 only warns if a repository does not answer.
NOT_FETCHED = re.compile(r"^W: (?:Failed to fetch|Some index files failed)", re.MULTILINE)
# A download that failed, with the reason on the next lines.
_FAILED = re.compile(r"^Err:(?P<number>\d+) (?P<uri>\S+) (?:(?P<suite>\S*) )?.*(?P<reason>(?:\n  .*)*)", re.MULTILINE)
_STATUS = re.compile(r"^(?P<status>Err|Get|Hit):(?P<number>\d+) ", re.MULTILINE)
# A repository that answered, but that apt refuses.
_REFUSED = re.compile(
    r"^[EW]: (?P<reason>.*?(?:[Rr]epository '|GPG error: )(?P<uri>[^\s']+) (?:(?P<suite>\S*) )?(?:In)?Release\b.*)",
    re.MULTILINE,
)
_RELEASE_FILE = re.compile(r"^[EW]: (?P<reason>Release file for (?P<url>\S+) .*)", re.MULTILINE)
_SECURITY = re.compile(r"(?:-security|/updates)$")
_MOST = 300


def failures(out: str, err: str, files: dict[str, str], arch: str, root: str = "/") -> list[FailedSource]:
    """Return the repositories that `apt-get update` could not read.

    The list is empty if apt failed for a reason that cannot be attributed to a repository in the source files.
    """
    known = apt_excluded.targets(files, arch)
    printed = _printed(files, arch, root)
    reasons: dict[Target, str] = {}
    # Without a Release file, apt tries several compressions of a list under one number.
    last = {found["number"]: found["status"] for found in _STATUS.finditer(out)}
    failed = [found for found in _FAILED.finditer(out) if last[found["number"]] == "Err"]
    for found in [*failed, *_REFUSED.finditer(f"{err}\n{out}")]:
        one = _known(found["uri"].rstrip("/"), found["suite"] or "", printed)
        if one is None:
            return []
        reasons.setdefault(one, " ".join(found["reason"].split()))
    for found in _RELEASE_FILE.finditer(err):
        for one in (one for one in known if found["url"].startswith(_directories(one))):
            reasons.setdefault(one, found["reason"])
    return [_failed(one, download_retries.noted(reasons[one], err)) for one in reasons]


def stalled(error: StalledError, files: dict[str, str], arch: str) -> list[FailedSource]:
    """Return the repositories from which no data arrived."""
    found = {
        one: None
        for one in apt_excluded.targets(files, arch)
        for url in error.urls
        if f"{url}/".startswith(_directories(one))
    }
    return [_failed(one, error.reason) for one in found]


def offered_by(out: str, files: dict[str, str], arch: str, root: str = "/") -> dict[str, set[str]]:
    """Return the repositories that offer each package, from the output of `apt-cache madison`."""
    printed = _printed(files, arch, root)
    found: dict[str, set[str]] = {}
    for package, _version, source in (row for row in map(_cells, out.splitlines()) if len(row) == 3):
        uri, _space, rest = source.partition(" ")
        one = _known(uri.rstrip("/"), rest.partition(" ")[0], printed)
        found.setdefault(package, set()).add(str(one) if one else source)
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def _printed(files: dict[str, str], arch: str, root: str) -> dict[Target, Target]:
    """Return the targets by the texts that apt prints for them."""
    known = apt_excluded.targets(files, arch)
    mirrors = {Target(uri, one.suite): one for one in known for uri in apt_sources.mirrors(one.uri, root)}
    return {**mirrors, **{one: one for one in known}}


def _known(uri: str, suite: str, printed: dict[Target, Target]) -> Target | None:
    """Return the target of a message, in which a component can follow the suite."""
    uri = url_logins.without_login(uri)
    words = suite.split("/")
    for end in range(len(words), -1, -1):
        found = printed.get(Target(uri, "/".join(words[:end]).rstrip("/")))
        if found:
            return found
    # Without a suite, the next word of the message is the name of a file.
    return printed.get(Target(uri, ""))


def _directories(one: Target) -> tuple[str, ...]:
    return (f"{one.uri}/dists/{one.suite}/", f"{one.uri}/{one.suite}/".replace("//", "/").replace(":/", "://", 1))


def _failed(one: Target, reason: str) -> FailedSource:
    return FailedSource(
        str(one), url_logins.masked(str(one)), url_logins.masked(reason)[:_MOST], bool(_SECURITY.search(one.suite))
    )


def named(failed: list[FailedSource]) -> set[Target]:
    """Return the targets of failed repositories."""
    return {Target(uri, suite) for uri, _space, suite in (one.name.partition(" ") for one in failed)}


def excluding(files: dict[str, str], failed: list[FailedSource], arch: str, directory: str) -> tuple[str, ...]:
    """Write the source files without the failed repositories. Return the options that make apt read them."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    for name in os.listdir(directory):
        os.unlink(f"{directory}/{name}")
    for path, text in apt_excluded.without(files, named(failed), arch).items():
        # An entry may have a login.
        with os.fdopen(os.open(f"{directory}/{os.path.basename(path)}", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
    return ("--option=Dir::Etc::SourceList=/dev/null", f"--option=Dir::Etc::SourceParts={directory}")
