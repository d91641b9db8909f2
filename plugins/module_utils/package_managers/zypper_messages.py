# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the messages of zypper and the package lists of rpm."""

from __future__ import annotations

import re
from html import unescape

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.download_retries import noted

_TEXT = re.compile(
    r'<message type="\w+">(?P<message>.*?)</message>|<description>(?P<problem>Problem: .*?)</description>', re.DOTALL
)
_LOCKED = re.compile(r"remove lock to allow \w+ of (\S+)-[^-\s]+-[^-\s]+")
_KEY = re.compile(r"<key-fingerprint>(\w+)</key-fingerprint>")
# Messages that are not about the problem, or that only make sense at a terminal.
_NOISE = re.compile(
    r"(?:Loading|Reading|Resolving|Building|Checking|Use|In cache|All repositories|Specified|Forcing) |"
    r"Retrieving|Nothing to do|Note: |Please (?:see|check)|History:|- ABORT|Installation has been aborted|"
    r"Problem occurred|Skipping repository|Could not refresh the repositories|Some of the repositories|"
    r"There is an update candidate|No update candidate|.* not found in package names|.* is already installed|"
    r"(?:Removing|Installing)[: ]|\([0-9]+/[0-9]+\)|<|$"
)
_CONFLICT = re.compile(
    r"<lhs><file>(?P<file>[^<]*)</file>.*?<name>(?P<new>[^<]*)</name>.*?</lhs>.*?<rhs>.*?<name>(?P<old>[^<]*)</name>",
    re.DOTALL,
)
_REFRESHED = re.compile(r'name="Retrieving repository &apos;(?P<name>[^"]+)&apos; metadata')
_SKIPPED = re.compile(r"Skipping repository '(?P<name>.+)' because of the above error")
_CAUSE = re.compile(r"^\s*Error (?:code|message): (.+)$", re.MULTILINE)
_LIMIT = 20


class SolverError(PackageManagerError):
    """zypper found no solution without a decision of the user."""


def failure(command: str, rc: int, out: str, err: str) -> PackageManagerError:
    """Return the error for a failed command, with the lines that explain it."""
    hint = (
        "\nCheck the URL, the proxy, the network and the signing key, or set another URL."
        if command == "zypper refresh"
        else ""
    )
    kind = SolverError if "<description>Problem: " in out else PackageManagerError
    return kind(f"{command} failed with exit status {rc}: {problems(out, err) or 'it printed no reason.'}{hint}")


def problems(out: str, err: str) -> str:
    """Return the lines that explain a failure, without logins and without the menu of solutions.

    `out` is the output of `zypper --xmlout`. zypper and rpm also write to `err`.
    """
    lines = [
        f"{unescape(found['new'])} and {unescape(found['old'])} both have the file {unescape(found['file'])}."
        for found in _CONFLICT.finditer(out)
    ]
    for found in _TEXT.finditer(out):
        text = unescape(found["message"] or re.split(r"\n\s*Solution 1:", found["problem"] or "")[0])
        # Only the menu of solutions names the locks.
        locked = dict.fromkeys(_LOCKED.findall(found["problem"] or ""))
        key = _KEY.search(text)
        if key:
            lines.append(f"The signing key {key[1]} is not trusted.")
        elif not re.match(r"\s*Note: ", text):
            lines += [*text.splitlines(), *(f"Package {package} is locked." for package in locked)]
    lines = [line.strip() for line in [*lines, *err.splitlines()]]
    useful = list(dict.fromkeys(line for line in lines if not _NOISE.match(line)))
    return url_logins.masked("\n".join(useful[-_LIMIT:]))


def current(out: str) -> str:
    """Return the name or alias of the repository that an ended refresh was reading, or an empty text."""
    found = [unescape(match["name"]) for match in _REFRESHED.finditer(out)]
    return found[-1] if found else ""


def skipped(out: str, err: str) -> dict[str, str]:
    """Return the repositories that zypper could not refresh, by name or alias, with the reason."""
    found, reason = {}, ""
    for message in _TEXT.finditer(out):
        text = unescape(message["message"] or "")
        name = _SKIPPED.match(text)
        if name:
            found[name["name"]] = noted(reason, err)
        reason = url_logins.masked(" ".join(_CAUSE.findall(text)) or " ".join(problems(message.group(), "").split()))
    return found


def doubles(text: str) -> dict[str, list[str]]:
    """Return the packages that are installed several times for one architecture, the latest installation last.

    `text` has the name, the version, the architecture and the installation time of one package on each line. As with
    zypper, the result has no epoch that is 0.
    """
    copies: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for name, version, arch, installed_at in (line.split("\t") for line in text.splitlines() if line.count("\t") == 3):
        if name != "gpg-pubkey":
            copies.setdefault((name, arch), []).append((int(installed_at), version.removeprefix("0:")))
    return {
        name: [version for _time, version in sorted(found, key=lambda copy: copy[0])]
        for (name, _arch), found in sorted(copies.items())
        if len(found) > 1
    }
