# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import version_order
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.version_order import (
    newest,
    satisfies,
)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("580.82.07-1", "580.95.05-1"),
        ("6.9-1", "6.12-1"),
        ("1.0~rc1-1", "1.0-1"),
        ("1.0~~", "1.0~"),
        ("1.0-1~bpo12+1", "1.0-1"),
        ("1.0-1", "1.0-1+deb12u1"),
        ("99.0-1", "1:1.0-1"),
        ("1.0", "1.0-1"),
        ("1.0a", "1.0+"),
        ("1.0-1", "1.0-1.1"),
        ("5:27.0.3-1~debian.12~bookworm", "5:27.5.1-1~debian.12~bookworm"),
    ],
)
def test_order_of_dpkg(older: str, newer: str) -> None:
    assert version_order.debian(older) < version_order.debian(newer)


@pytest.mark.parametrize(("one", "other"), [("1.0", "1.0-0"), ("0:1.0-1", "1.0-1"), ("1.01", "1.1")])
def test_equal_versions_of_dpkg(one: str, other: str) -> None:
    assert version_order.debian(one) == version_order.debian(other)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("580.82.07-1.el9", "580.95.05-1.el9"),
        ("1.0~rc1-1", "1.0-1"),
        ("1.0-1", "1.0^20260101git-1"),
        ("1.0^20260101git-1", "1.0.1-1"),
        ("1.a-1", "1.1-1"),
        ("1.0-1", "1.0a-1"),
        ("99-1", "3:1-1"),
        ("1.0-1.el9", "1.0-1.el9_4"),
    ],
)
def test_order_of_rpm(older: str, newer: str) -> None:
    assert version_order.rpm(older) < version_order.rpm(newer)


def test_rpm_ignores_separators() -> None:
    assert version_order.rpm("1.0+1-1") == version_order.rpm("1.0_1-1")


@pytest.mark.parametrize(
    ("version", "minimum", "expected"),
    [
        ("580.95.05-1", "580.95.05", True),
        ("580.95.05-1", "580.95.05-1", True),
        ("580.95.05-1", "580.95.05-2", False),
        ("580.82.07-1", "580.95.05", False),
        ("580.95.05~rc1-1", "580.95.05", False),
        # A minimum without an epoch is compared with the version that users know.
        ("5:27.0.3-1~debian.12~bookworm", "27", True),
        ("5:27.0.3-1~debian.12~bookworm", "28", False),
        ("5:27.0.3-1", "6:1", False),
        ("27.0.3-1", "5:1", False),
    ],
)
def test_minimum(version: str, minimum: str, expected: bool) -> None:
    assert satisfies(version, minimum) is expected


def test_minimum_in_the_order_of_rpm() -> None:
    # With apt, this version is older: a caret comes after the end of the version only with rpm.
    assert satisfies("1.0^git1-1", "1.0", "dnf")
    assert not satisfies("1.0a-1", "1.0.1", "dnf")


OFFERS = ["5:28.0.0-1~debian", "5:27.0.3-2~debian", "5:27.0.3-1~debian", "27.0.3-1"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("28.0.0", "5:28.0.0-1~debian"),
        ("27.0.3", "5:27.0.3-2~debian"),
        ("27.0.3-1", "27.0.3-1"),
        ("27.0.3-1~debian", "5:27.0.3-1~debian"),
        ("5:27.0.3", "5:27.0.3-2~debian"),
        ("0:27.0.3", "27.0.3-1"),
        ("4:27.0.3", None),
        ("27.0", None),
        ("27.0.3-3", None),
    ],
)
def test_newest_offer(wanted: str, expected: str | None) -> None:
    assert newest(OFFERS, wanted) == expected
