# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbook verify on hosts with Gaudi accelerators."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver import verify_notes
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import accelerator_health as vendor_health
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_samples, gaudi_hosts
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gaudi_trees import GAUDI2, GaudiTree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.gaudi_driver.test_plan import bare, working


def test_a_healthy_host_and_a_host_of_another_vendor_have_no_notes(tmp_path):
    assert verify_notes.notes(working(tmp_path)) == []
    assert verify_notes.notes(driver_samples.host()) == []


def test_the_driver_of_the_kernel_is_named_with_what_it_lacks(tmp_path):
    (note,) = verify_notes.notes(working(tmp_path, GAUDI2, version=None))
    assert "habanalabs_cn, habanalabs_en, habanalabs_ib" in note


def test_a_vulnerable_runtime_is_named(tmp_path):
    (note,) = verify_notes.notes(working(tmp_path, packages={"habanalabs-container-runtime": "1.23.0-695"}))
    assert "CVE-2026-32677" in note


def test_unusable_accelerators_are_problems(tmp_path):
    tree = GaudiTree(tmp_path).board(statuses={3: "Disabled"})
    (problem,) = vendor_health.problems(gaudi_hosts.observed(tree))
    assert "module-3 is lost: the driver disabled the accelerator" in problem
    (problem,) = vendor_health.problems(bare(tmp_path / "bare"))
    assert "state no_driver" in problem
