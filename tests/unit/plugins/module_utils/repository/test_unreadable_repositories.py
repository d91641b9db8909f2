# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import failure_report
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.unreadable_repositories import (
    ADVICE,
    FailedSource,
    judge,
    stalled,
)

OWN = FailedSource("own", "https://vendor.example/repo", "Could not resolve 'vendor.example'.")
OTHER = FailedSource("other", "https://other.example", "404  Not Found")
SECURITY = FailedSource("security", "https://m.example/debian-security", "503", is_security=True)


@pytest.mark.parametrize(
    ("failed", "needed", "offered_by", "errors", "warnings"),
    [
        ([], ["own"], {"driver": ["own"]}, [], []),
        # A third party's, and nobody needs it.
        ([OTHER], ["own"], {"driver": ["own"]}, [], ["other.example"]),
        ([OTHER], ["own"], {}, [], ["other.example"]),
        # The one that the transaction adds or uses, also beside another one.
        ([OWN], ["own"], {}, ["vendor.example/repo"], []),
        ([OWN, OTHER], ["own"], {}, ["vendor.example/repo"], ["other.example"]),
        # The only known source of a planned package, and one of two.
        ([OTHER], [], {"driver": ["other"]}, ["other.example", "driver"], ["other.example"]),
        ([OTHER], [], {"driver": ["other", "archive"]}, [], ["other.example"]),
        ([OTHER, SECURITY], [], {"lib": ["other", "security"]}, ["other.example", "debian-security"], ["o", "s"]),
        ([SECURITY], [], {"driver": ["archive"]}, [], ["security updates of the distribution"]),
        ([SECURITY], [], {"lib": ["security"]}, ["debian-security", "lib"], ["security updates"]),
        # A package that nobody is known to offer says nothing about the repository.
        ([OTHER], [], {"unknown": []}, [], ["other.example"]),
    ],
)
def test_error_or_warning(
    failed: list[FailedSource],
    needed: list[str],
    offered_by: dict[str, list[str]],
    errors: list[str],
    warnings: list[str],
) -> None:
    verdict = judge(failed, needed, offered_by)
    assert bool(verdict.error) == bool(errors)
    assert all(text in verdict.error for text in errors)
    assert len(verdict.warnings) == len(warnings)
    assert all(text in warning for text, warning in zip(warnings, verdict.warnings))


def test_the_error_names_the_variables_of_the_role() -> None:
    text = f"{judge([OWN], ['own'], {}).error} {ADVICE}"
    shown = failure_report.naming_variables(text, "nvidia_driver")
    assert "https://vendor.example/repo: Could not resolve 'vendor.example'. This transaction needs it." in shown
    assert "nvidia_driver_mirror" in shown
    assert "nvidia_driver_proxy" in shown


@pytest.mark.parametrize(
    ("urls", "expected"),
    [
        (["http://m/debian/dists/x/InRelease"], ["debian"]),
        (["http://me:pw@m/debian-security/x"], ["security"]),
        (["http://m/debian/x", "http://other/y"], ["debian", "other"]),
        (["http://m/debian/sub/repomd.xml"], ["sub"]),
        # One of them belongs to no repository: nothing is known.
        (["http://m/debian/x", "http://elsewhere/y"], []),
        (["2 more"], []),
    ],
)
def test_the_repositories_of_stalled_downloads(urls: list[str], expected: list[str]) -> None:
    known = {
        "debian": "http://m/debian/",
        "security": "http://m/debian-security",
        "sub": "http://m/debian/sub",
        "other": "http://me:pw@other",
    }
    found = stalled(urls, known, "no data")
    assert [one.name for one in found] == expected
    assert not any("pw" in str(one) for one in found)
