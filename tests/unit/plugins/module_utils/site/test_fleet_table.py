# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of hosts at the end of playbooks site and verify."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.output import fleet_lines
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import end_of_run_text, end_of_run_verdicts
from ansible_collections.gpufleet.hosts.tests.unit.plugins.fleet_samples import (
    A100,
    FLEET,
    H100,
    H100_FACTS,
    HEALTHY,
    NO_PERSISTENCE,
    observed,
)


def text(results: dict, *, is_check: bool = False) -> list[str]:
    return [line.text for line in end_of_run_text.render(end_of_run_verdicts.report(results), is_check=is_check)]


def test_one_host():
    assert text({"gpu01": FLEET["gpu01"]}) == [
        "HOST   ACCELERATORS               DRIVER     ENGINE         TOOLKIT  REBOOTED  VERDICT",
        "gpu01  8 x NVIDIA H100 80GB HBM3  580.95.05  docker 28.5.1  1.18.0   yes       pass",
        "",
        "1 host: 1 pass; 1 rebooted",
    ]


def test_two_hundred_equal_hosts_have_one_row():
    assert text({f"node{number:03}": FLEET["gpu01"] for number in range(200)}) == [
        "HOST                  ACCELERATORS               DRIVER     ENGINE         TOOLKIT  REBOOTED  VERDICT",
        "node000 and 199 more  8 x NVIDIA H100 80GB HBM3  580.95.05  docker 28.5.1  1.18.0   yes       pass",
        "",
        "200 hosts: 200 pass; 200 rebooted",
    ]


def test_among_two_hundred_hosts_each_different_one_has_its_own_row_and_its_name():
    hosts = {f"node{number:03}": FLEET["gpu01"] for number in range(200)}
    hosts["node007"] = FLEET["gpu03"]
    hosts |= {f"node{number}": FLEET["gpu04"] for number in (150, 151)}
    hosts["node199"] = FLEET["gpu05"]
    found = text(hosts)
    assert [line.split("  ")[0] for line in found[:6]] == [
        "HOST",
        "node000 and 195 more",
        "node007",
        "node150 and 1 more",
        "node199",
        "",
    ]
    assert "  node150, node151: nvidia_driver : Install the packages" in found
    assert f"  node007: {NO_PERSISTENCE}" in found
    assert "Unreachable: node199" in found
    assert found[-1] == "200 hosts: 196 pass, 3 critical, 1 unknown; 196 rebooted, 2 failed, 1 unreachable"


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (end_of_run_verdicts.FleetResult(end_of_run_verdicts.OK, H100, health=HEALTHY), "pass"),
        (
            end_of_run_verdicts.FleetResult(end_of_run_verdicts.OK, H100, health={"problems": [], "notes": ["One."]}),
            "info",
        ),
        (
            end_of_run_verdicts.FleetResult(
                end_of_run_verdicts.OK, H100, health={"problems": ["One."], "notes": ["Two."]}
            ),
            "critical",
        ),
        (end_of_run_verdicts.FleetResult(end_of_run_verdicts.OK, H100, health=None), "unknown"),
        # The observation of a failed host is older than the failure.
        (end_of_run_verdicts.FleetResult(end_of_run_verdicts.FAILED, H100, health=HEALTHY), "critical"),
        (end_of_run_verdicts.FleetResult(end_of_run_verdicts.FAILED), "unknown"),
        (end_of_run_verdicts.FleetResult(end_of_run_verdicts.UNREACHABLE, H100, health=HEALTHY), "unknown"),
        (end_of_run_verdicts.FleetResult(end_of_run_verdicts.NOT_STARTED), "unknown"),
    ],
)
def test_the_verdict(result, verdict):
    assert end_of_run_verdicts.report({"gpu01": result})[0]["verdict"] == verdict


def row(result: end_of_run_verdicts.FleetResult) -> dict:
    return end_of_run_verdicts.report({"gpu01": result})[0]


def cells(host: dict) -> list[str]:
    table = text({"gpu01": end_of_run_verdicts.FleetResult(end_of_run_verdicts.OK, host, health=HEALTHY)})
    return [cell for cell in table[1].split("  ") if cell]


MISSING = {"loaded": None, "library": None, "on_disk": None}
AMDGPU = {"name": "amdgpu", "loaded": False, "version": None, "kernels": ["6.8"]}
LOADED = {**AMDGPU, "loaded": True, "version": "6.12.12"}
MI300X = [("amd", None)]


@pytest.mark.parametrize(
    ("host", "driver"),
    [
        (observed(driver={**MISSING, "library": "580.1"}), "580.1 (not loaded)"),
        (observed(driver=MISSING), "-"),
        (observed(*MI300X, driver={**MISSING, "loaded": "580.1"}, module=LOADED), "nvidia 580.1, amdgpu 6.12.12"),
        (observed(*MI300X, module=AMDGPU), "amdgpu installed (not loaded)"),
        (observed(*MI300X, module={**AMDGPU, "kernels": []}), "-"),
    ],
)
def test_drivers_that_are_installed_loaded_or_missing(host, driver):
    assert cells(host)[2].strip() == driver


def test_gpus_that_belong_to_virtual_machines_do_not_count():
    nvidia = {**A100["accelerators"]["nvidia"], "gpus": ["0000:01:00.0"]}
    host = {**A100, "accelerators": {**A100["accelerators"], "nvidia": nvidia}}
    assert row(end_of_run_verdicts.FleetResult(end_of_run_verdicts.OK, host))["accelerators"] == [
        {"vendor": "NVIDIA", "model": "Ampere", "count": 1}
    ]


def test_a_host_without_accelerators():
    assert [cell.strip() for cell in cells(observed())[1:]] == ["none", "-", "-", "-", "-", "pass"]


def test_text_from_a_host_is_shown_in_its_cell_only():
    model = "\x1b[2J" + "evil\n" * 20
    facts = {"nvidia_gpus": [{"pci_bus_id": gpu["pci_bus_id"], "name": model} for gpu in H100_FACTS["nvidia_gpus"]]}
    found = text({"gpu01": replace(FLEET["gpu01"], facts=facts)})
    assert len(found) == 4
    assert "\x1b" not in "".join(found)
    assert len(found[1]) < 120


def test_the_color_of_a_row_is_that_of_its_verdict():
    lines = end_of_run_text.render(end_of_run_verdicts.report(FLEET))
    kinds = {line.text.split()[0]: line.kind for line in lines[1:8]}
    assert kinds == {
        "gpu01": fleet_lines.CONVERGED,
        "gpu02": fleet_lines.CHANGES,
        "gpu03": fleet_lines.ERROR,
        "amd01": fleet_lines.CONVERGED,
        "gpu04": fleet_lines.ERROR,
        "gpu05": fleet_lines.UNREACHABLE,
        "gpu06": fleet_lines.UNREACHABLE,
    }


@pytest.mark.parametrize(
    ("vendor", "generation", "cell"),
    [
        ("gaudi", "Gaudi3", "1 x Intel Gaudi3"),
        ("neuron", "Trainium2", "1 x AWS Trainium2"),
        ("amd", None, "1 x AMD"),
        ("intel", None, "1 x Intel"),
        ("nvidia", "Hopper", "1 x NVIDIA Hopper"),
    ],
)
def test_the_accelerators_of_every_vendor(vendor, generation, cell):
    assert cells(observed((vendor, generation)))[1].strip() == cell
