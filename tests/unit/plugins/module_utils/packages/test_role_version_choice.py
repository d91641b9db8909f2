# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version of a role's packages. The tests of the roles cover what differs between them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import role_version_choice

UNIT = ["main", "base"]


@pytest.mark.parametrize(
    ("main", "base", "requested", "first", "expected"),
    [
        (["2.1-1", "2.0-1"], ["2.1-1", "2.0-1"], "", "", ({"main": "2.1-1", "base": "2.1-1"}, [])),
        # Epochs differ between packages of one version.
        (["3:2.1-1"], ["1:2.1-1"], "2.1", "", ({"main": "3:2.1-1", "base": "1:2.1-1"}, [])),
        (["2.1-2"], ["2.1-1"], "", "", ({}, ["base"])),
        # The newest version that all packages have, and what the newest of all lacks.
        (["2.1-1", "2.0-1"], ["2.0-1"], "", "", ({"main": "2.0-1", "base": "2.0-1"}, ["base"])),
        (["2.1-1", "2.0-1"], ["2.0-1"], "2.1", "", ({}, ["base"])),
        (["2.1-1", "2.0-1"], ["2.1-1", "2.0-1"], "2.0", "", ({"main": "2.0-1", "base": "2.0-1"}, [])),
        (["2.1-1", "1.9-1"], ["1.9-1"], "", "2", ({}, ["base"])),
        (["1.9-1"], ["1.9-1"], "", "2", ({}, [])),
        ([], [], "", "", ({}, [])),
    ],
)
def test_all_packages_get_the_newest_version_that_suits(
    main: list[str], base: list[str], requested: str, first: str, expected: t.Any
) -> None:
    choice = role_version_choice.choose(
        {"main": main, "base": base},
        UNIT,
        lambda version: role_version_choice.fits(version, requested),
        lambda version: "is too old" if version.rpartition(":")[2] < first else None,
    )
    assert (choice.builds, choice.lacking) == expected


@pytest.mark.parametrize(
    ("version", "requested", "expected"),
    [
        ("1.23.0-695", "1.23", True),
        ("1.23.0-695", "1.23.0-695", True),
        ("1.23.0-695", "1.23.0-69", False),
        ("5:26.1.5+dfsg1-9", "26.1.5", True),
        ("1.20.10-1", "1.20.1", False),
        ("1.20.1-1", "", True),
    ],
)
def test_a_request_is_the_start_of_a_version(version: str, requested: str, expected: bool) -> None:
    assert role_version_choice.fits(version, requested) == expected
