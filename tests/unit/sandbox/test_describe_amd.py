# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulator's AMD GPUs, as accelerator_facts reads them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    amd_devices,
    sysfs_refusals,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import pci_functions

SIMULATOR = Path(__file__).resolve().parents[2] / "sandbox/simulator"
sys.path.insert(0, str(SIMULATOR))
import describe
import trees

sys.path.remove(str(SIMULATOR))


class SimulatedAmd:
    """A root directory with what gpusim would show. Device nodes are plain files."""

    def __init__(self, root: Path, monkeypatch) -> None:
        self.root = root
        (root / "run").mkdir()
        monkeypatch.setattr(
            trees, "_node", lambda place, one: (place.parent.mkdir(parents=True, exist_ok=True), place.touch())
        )

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def show(self, *entries: dict) -> None:
        host, _state = describe.render({"accelerators": [{"vendor": "amd", **one} for one in entries]}, "sim")
        for function in host["pci"]:
            for name, text in function["files"].items():
                self.write(f"/sys/bus/pci/devices/{function['address']}/{name}", text)
            if function.get("driver"):
                link = self.at(f"/sys/bus/pci/devices/{function['address']}/driver")
                link.unlink(missing_ok=True)
                link.symlink_to(f"../../drivers/{function['driver']}")
        trees.show(host["accelerators"], self.at, "/run")

    def write(self, path: str, text: str) -> None:
        self.at(path).parent.mkdir(parents=True, exist_ok=True)
        self.at(path).write_text(text, encoding="utf-8")

    def read(self):
        return amd_devices.read(
            sysfs_refusals.SysfsTree(str(self.root)),
            pci_functions.scan_all(str(self.root)),
            "6.1.0-49-amd64",
        )


@pytest.fixture
def simulated(tmp_path, monkeypatch):
    return SimulatedAmd(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("entry", "count", "expected"),
    [
        ({"model": "MI300X"}, 1, {"model": "AMD Instinct MI300X OAM", "cores": 8, "generation": "gfx942"}),
        ({"model": "MI300X", "mode": "CPX"}, 8, {"cores": 1, "memory_total_mib": 24574, "power_w": None}),
        ({"model": "MI300X", "mode": "QPX"}, 4, {"cores": 2}),
        ({"model": "MI210", "count": 2}, 2, {"generation": "gfx90a", "stable_id_kind": "unique_id"}),
        ({"model": "MI300X", "fru": False}, 1, {"model": "MI300X"}),
        ({"model": "RX-7900"}, 1, {"model": "RX 7900", "stable_id_kind": "pci_address", "generation": "gfx1100"}),
        ({"model": "APU"}, 0, {}),
        ({"model": "MI300X", "health": "lost"}, 1, {"health": "lost", "temperature_c": None}),
        ({"model": "MI300X", "health": "ecc_errors"}, 1, {"health": "degraded"}),
        # MI200 clears the hardware's status when the counters are read.
        ({"model": "MI210", "health": "ecc_errors"}, 1, {"health": "ok"}),
    ],
)
def test_a_model_is_read_as_described(simulated, entry, count, expected):
    simulated.show(entry)
    found = simulated.read()
    assert len(found.devices) == count
    for device in found.devices:
        shown = {**device, "health": device["health"]["state"]}
        assert {key: shown[key] for key in expected} == expected
        assert all(node["gid"] is not None for node in device["nodes"])


def test_another_tree_replaces_the_partitions(simulated):
    simulated.show({"model": "MI300X"}, {"model": "MI210"})
    assert [one["stable_id"] for one in simulated.read().devices] == ["e3a9c0ffee120000", "e3a9c0ffee120001"]
    simulated.show({"model": "MI300X", "mode": "CPX"}, {"model": "MI210"})
    assert len(simulated.read().devices) == 9
    simulated.show({"model": "MI300X"}, {"model": "MI210"})
    assert len(simulated.read().devices) == 2
    assert sorted(path.name for path in simulated.at("/dev/dri").iterdir()) == [
        "card1",
        "card2",
        "renderD128",
        "renderD129",
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"model": "MI400"}, "unknown model 'MI400'; known are MI300X"),
        ({"model": "MI210", "mode": "CPX"}, "MI210 has no mode CPX"),
        ({"model": "MI210", "colour": 1}, "unknown key colour"),
        ({"vendor": "ati"}, "unknown vendor 'ati'; known are amd"),
    ],
)
def test_an_invalid_description_says_what_is_valid(entry, message):
    with pytest.raises(describe.DescriptionError, match=message):
        describe.render({"accelerators": [{"vendor": "amd", **entry}]}, "sim")
