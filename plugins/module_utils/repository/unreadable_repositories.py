# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether package repositories that cannot be read prevent a transaction, or only require a warning."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins

# The end of each error. `packages/failure_report.py` adds the variables of the role.
ADVICE = "Check the URLs, the logins, the proxy and the network, or set another URL."


@dataclasses.dataclass(frozen=True)
class FailedSource:
    """A repository that could not be read. `name` identifies it for its package manager."""

    name: str
    # Without a login.
    url: str
    reason: str
    # It has the security updates of the distribution.
    is_security: bool = False

    def __str__(self) -> str:
        """Return the URL, and the reason if it does not contain the URL."""
        about = self.reason.strip().rstrip(".: ")
        return f"{self.url}: {about}" if about else self.url


def stalled(urls: Collection[str], known: Mapping[str, str], reason: str) -> list[FailedSource]:
    """Return the repositories from which no data arrived. `known` has the URLs of all repositories by name.

    The list is empty if one of the URLs belongs to none of them.
    """
    plain = {name: url_logins.without_login(url).rstrip("/") for name, url in known.items()}
    asked = [url_logins.without_login(url).rstrip("/") for url in urls]
    owners = [[name for name, base in plain.items() if f"{url}/".startswith(f"{base}/")] for url in asked]
    names = dict.fromkeys(max(found, key=lambda name: len(plain[name])) for found in owners if found)
    return [FailedSource(name, url_logins.masked(known[name]), reason) for name in names] if all(owners) else []


@dataclasses.dataclass
class SourceFailures:
    """What one transaction knows about repositories that cannot be read."""

    # The paths of the entries that the transaction adds or needs.
    needed: frozenset[str] = frozenset()
    found: list[FailedSource] = dataclasses.field(default_factory=list)
    # The names of the repositories that offered a package, by the last known lists.
    offered_by: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)

    def add(self, failed: Collection[FailedSource]) -> None:
        """Remember the failures that are not known yet."""
        known = {one.name for one in self.found}
        self.found += [one for one in failed if one.name not in known]

    @property
    def warnings(self) -> list[str]:
        """Return a warning for each of them."""
        return judge(self.found, (), self.offered_by).warnings


@dataclasses.dataclass(frozen=True)
class SourceVerdict:
    """The error, or an empty text, and the warnings for the repositories that are not necessary."""

    error: str
    warnings: list[str]


def judge(
    failed: Collection[FailedSource], needed: Collection[str], offered_by: Mapping[str, Collection[str]]
) -> SourceVerdict:
    """Return what failed repositories mean for a transaction.

    `needed` has the names of the repositories that the transaction adds or needs. `offered_by` has the names of the
    repositories that offer each planned package, by the last known lists.
    """
    names = {one.name for one in failed}
    lost = {package: {*sources} for package, sources in offered_by.items() if sources and {*sources} <= names}
    errors, warnings = [], []
    for one in failed:
        packages = ", ".join(sorted(package for package, sources in lost.items() if one.name in sources))
        if one.name in needed:
            errors.append(f"The package repository {one}. This transaction needs it.")
            continue
        warnings.append(_warning(one, packages))
        if packages:
            errors.append(f"The package repository {one}. As far as known, no other repository offers {packages}.")
    return SourceVerdict(" ".join(errors), warnings)


def _warning(one: FailedSource, packages: str) -> str:
    only = f" As far as known, no other repository offers {packages}." if packages else ""
    if one.is_security:
        return (
            f"The security updates of the distribution could not be read from {one}. This run used the other package "
            f"repositories. The host gets no security updates from this one until it answers.{only}"
        )
    return f"A package repository could not be read: {one}. This run used the others. Repair or disable this one.{only}"
