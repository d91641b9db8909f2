# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part gaudi_driver in the plan of playbook site."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver import part
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import drain_decision as site_drain
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.gaudi_driver.test_plan import (
    INSTALLED,
    KEY,
    OFFERED,
    PLATFORMS,
    UNIT,
    bare,
    in_use,
    record,
    working,
)


def planned(host, versions=None, parts=None, *, drains=False, **values) -> Part:
    given = {"gaudi_driver": {"key_fingerprint": KEY, **values}, "container_engine": {}}
    platforms = {"gaudi_driver": PLATFORMS}
    context = Context(host, given, platforms, versions=versions, drains=drains, accelerator_program=str)
    return part.plan(context, parts or {})


def test_the_registry_has_the_part_after_the_engine():
    order = list(registry.PARTS)
    assert order.index("container_engine") < order.index("gaudi_driver") < order.index("verify")
    assert registry.BY_NAME["gaudi_driver"].vendor == "gaudi"


def test_a_host_of_another_vendor_gets_nothing():
    result = planned(driver_samples.host())
    assert (result.acts, result.changes, result.query, result.errors, result.report) == (False, [], None, [], None)


def test_a_bare_host_asks_first(tmp_path):
    first = planned(bare(tmp_path))
    assert first.query is not None
    assert (first.query["record"], first.query["query"]) == ("gaudi_driver", UNIT)
    second = planned(bare(tmp_path / "again"), OFFERED)
    assert (second.query, second.acts) == (None, True)
    assert any(change.startswith("install habanalabs-dkms=1.23.0-695") for change in second.changes)


def test_a_new_engine_is_registered_after_its_installation(tmp_path):
    engine = {"container_engine": Part(outcome=outcomes.EngineOutcome(installs=True))}
    assert planned(bare(tmp_path), OFFERED, engine, container_runtime=False).plans_again is False
    host = working(tmp_path / "again", packages={**INSTALLED, "habanalabs-container-runtime": "1.24.0-1"})
    assert planned(host, None, engine, container_runtime=True).plans_again is True


def test_removal_names_its_packages(tmp_path):
    result = planned(record(working(tmp_path, packages=INSTALLED)), state="absent")
    assert result.removes
    assert result.removal == {"record": "gaudi_driver", "together_with": [], "remove": UNIT, "keep": []}


# --- the drain of playbook site ---------------------------------------------------------------------------------------

SLURM = {"adapter": "slurm"}


@pytest.mark.parametrize("values", [{"version": "1.22"}, {"state": "absent"}])
def test_accelerators_in_use_are_drained_first_and_the_role_plans_again_afterwards(tmp_path, values):
    host = in_use(tmp_path, "/dev/accel/accel0")
    assert "in use by process 4711" in planned(host, OFFERED, **values).errors[0]
    found = planned(host, OFFERED, drains=True, **values)
    assert (found.errors, found.acts, found.plans_again) == ([], True, True)
    assert "accelerators are in use by process 4711 (python3) (/dev/accel/accel0); the drain" in found.reasons[-1]
    assert site_drain.of_run(SLURM, {"gaudi_driver": found}, {})[0]["reason"] == "new driver"


def test_only_packages_of_the_driver_are_a_reason_to_drain(tmp_path):
    first = planned(bare(tmp_path), OFFERED, drains=True)
    assert site_drain.of_run(SLURM, {"gaudi_driver": first}, {})[0]["reason"] == "new driver"
    host = record(working(tmp_path / "b", packages=INSTALLED, held=tuple(UNIT)))
    for more in ({"extra_packages": ["numactl"]}, {"hold": False}):
        found = planned(host, OFFERED, **more)
        assert site_drain.of_run(SLURM, {"gaudi_driver": found}, {})[0] is None
