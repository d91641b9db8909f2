# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix of the solvers fails for removals that are refused, leave packages, or take those of others."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.tests.sandbox.vendor.archives import Package
from ansible_collections.gpufleet.hosts.tests.solver.cases import Case, Expected, Outcome
from ansible_collections.gpufleet.hosts.tests.solver.hosts import System
from ansible_collections.gpufleet.hosts.tests.solver.removals import Removed, faults, key

IMAGE = Package("linux-image-6.1.0-56-amd64", "1", "amd64", release="6.1.0-56-amd64")
SYSTEM = (IMAGE, Package("kmod", "30", "amd64"))
CUDA = Package("libcuda1", "535.1-1", "amd64", driver="535.1")
DAEMON = Package("nvidia-persistenced", "535.1-1", "amd64")
UBUNTUS = Package("nvidia-compute-utils-535", "535.1-1", "amd64", provides=("nvidia-persistenced",))
OTHER = Package("libnvidia-tesla-470-cfg1", "470.1-1", "amd64", driver="470.1")
NEW_KERNEL = Package("linux-image-6.1.0-57-amd64", "1", "amd64", release="6.1.0-57-amd64")
HOST = System("debian-12/amd64/updated", "debian-12", "", "", SYSTEM, ("debian",))
RIGHT = Expected(("dkms",))
BEFORE = (*SYSTEM, CUDA, DAEMON)
REMOVALS = [
    (Removed("", BEFORE, SYSTEM), None),
    (Removed("", (*SYSTEM, UBUNTUS), SYSTEM), None),
    # Headers may have brought a kernel, which stays.
    (Removed("", (*BEFORE, NEW_KERNEL), (*SYSTEM, NEW_KERNEL)), None),
    (Removed("would also install libnvidia-tesla-470-cfg1"), "refused: would also install libnvidia-tesla-470-cfg1"),
    (Removed("", BEFORE, (*SYSTEM, DAEMON)), "leaves nvidia-persistenced"),
    (Removed("", (*BEFORE, OTHER), (*SYSTEM, OTHER)), "leaves libnvidia-tesla-470-cfg1"),
    (Removed("", BEFORE, (IMAGE,)), "also removes kmod"),
    (Removed("", (*SYSTEM, CUDA), SYSTEM), "the daemon was not installed"),
]


@pytest.mark.parametrize(("removed", "fault"), REMOVALS)
def test_verdict(removed, fault):
    found = faults(Case(HOST, "A100", (), RIGHT), removed)
    assert found == [] if fault is None else fault in " ".join(found)


PLAN = {"source": "distribution", "branch": "535", "flavor": "proprietary", "module_build": "dkms"}
CHANGED = ["install libcuda1"]


@pytest.mark.parametrize(
    ("host", "expected", "changes", "is_simulated"),
    [
        ("debian-12/amd64/updated", RIGHT, CHANGED, True),
        ("debian-12/amd64/oldest", RIGHT, CHANGED, False),
        ("debian-12/amd64/updated", RIGHT, [], False),
        ("debian-12/amd64/updated", Expected(kept=True), CHANGED, False),
        ("debian-12/amd64/updated", Expected(user_space="535.1"), CHANGED, False),
    ],
)
def test_each_kind_of_driver_is_removed_once(host, expected, changes, is_simulated):
    case = Case(System(host, "debian-12", "", "", SYSTEM, ()), "A100", (), expected)
    found = key(case, Outcome(plan=PLAN, changes=changes))
    assert (found is not None) is is_simulated
    assert found == key(case, Outcome(plan={**PLAN, "version": "535.2"}, changes=changes))
