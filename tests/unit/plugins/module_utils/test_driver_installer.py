# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils import driver_installer, driver_plan
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import KERNELS, host, platform

K80 = "0x102d"
SUM = "sha256:" + "0" * 64

KINDS = [
    ("580.95.05", "open", ["--kernel-module-type=open"]),
    ("560.28.03", "proprietary", ["--kernel-module-type=proprietary"]),
    ("550.54.15", "open", ["-m=kernel-open"]),
    ("515.43.04", "proprietary", ["-m=kernel"]),
    ("510.108.03", "proprietary", []),
    ("470.256.02", "proprietary", []),
]


@pytest.mark.parametrize(("version", "flavor", "kind"), KINDS)
def test_the_kind_of_modules_is_named_as_that_installer_knows_it(version, flavor, kind):
    assert driver_installer.options(version, flavor, True) == ["--silent", "--dkms", "--no-nouveau-check", *kind]
    assert "--dkms" not in driver_installer.options(version, flavor, False)


def test_a_card_that_only_old_branches_serve_gets_one_from_the_installer():
    there = host("debian-12", (K80,), headers=(KERNELS["debian-12"],), packages={"dkms": "3.0.10-8"})
    request = {"source": "runfile", "version": "470.256.02", "runfile_checksum": SUM}
    result = driver_plan.plan(there, request, platform("debian-12"))
    assert (result["errors"], result["flavor"]) == ([], "proprietary")
    assert result["todo"]["runfile"]["options"] == ["--silent", "--dkms", "--no-nouveau-check"]
