# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.holds import dnf_version_locks


@pytest.mark.parametrize(
    ("lock", "name", "expected"),
    [
        ("drv-0:1-1.el9.*", "drv", True),
        ("drv-0:1-1.el9.*", "drv=1-1.el9", True),
        ("ep-3:2.0-1.el9.*", "ep=3:2.0-1.el9", True),
        ("ep-3:2.0-1.el9.*", "ep=2.0-1.el9", True),
        ("ep-3:2.0-1.el9.*", "ep=1.0-1.el9", False),
        ("drv", "drv", True),
        ("drv*", "drv", False),
        ("drv-1*", "drv", False),
        ("drv-libs-0:1-1.el9.*", "drv", False),
        ("drvlib-0:1-1.el9.*", "drv", False),
        ("!drv-0:1-1.el9.*", "drv", False),
    ],
)
def test_lock_on_a_package(lock, name, expected):
    """Excludes, and locks that also cover other packages, are not the package's own."""
    assert dnf_version_locks.is_lock_on(lock, name) is expected


@pytest.mark.parametrize(
    ("lock", "expected"),
    [
        ("nvidia-driver-cuda-3:580.82.07-1.el9.*", ("nvidia-driver-cuda", "3:580.82.07-1.el9")),
        ("drv-0:1-1.el9.*", ("drv", "0:1-1.el9")),
        ("java-17-openjdk-1:17.0-1.*", ("java-17-openjdk", "1:17.0-1")),
        ("drv", ("", "")),
        ("drv*", ("", "")),
        ("drv-1*", ("", "")),
        ("drv-580.*", ("", "")),
    ],
)
def test_locked_version(lock, expected):
    assert dnf_version_locks.locked_version(lock) == expected
