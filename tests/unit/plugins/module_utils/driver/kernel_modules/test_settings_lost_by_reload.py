# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that reloads the driver on an idle host does not take MIG devices and settings from its GPUs."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import part as site_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import variables as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import settings_lost_by_reload
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather_subset_option
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import KERNELS, host, offer, platform, resolve

OLD, NEW = "580.82.07", "580.95.05"
KEY = "debian-12"
JOB = {"pid": 812, "command": "python3", "devices": ["/dev/nvidia0"], "open": True, "container": None}
LOCKED = "the reload of the driver drops locked clocks, which NVML cannot read"
DEFAULTS = {
    "index": 0,
    "pci_bus_id": "0000:3b:00.0",
    "mig": {"enabled": False, "pending": False, "devices": []},
    "compute_mode": "default",
    "accounting_mode": False,
    "power": {"limit_w": 400.0, "default_limit_w": 400.0},
    "clocks": {"application_graphics_mhz": 1410, "default_application_graphics_mhz": 1410},
}
MIG = {"enabled": True, "pending": True, "devices": [{"profile": "3g.20gb"}, {"profile": "1g.5gb"}]}


def facts(*gpus: dict) -> dict:
    return {"nvidia_gpu_state": "ready", "nvidia_gpus": [{**DEFAULTS, **gpu} for gpu in gpus or ({},)]}


def loaded(on_disk: str = OLD, **changes) -> dict:
    """Describe a host with NVIDIA's packages of OLD, which is loaded."""
    driver = {
        "loaded": OLD,
        "kernel_module_flavor": "open",
        **dict.fromkeys(("library", "on_disk", "on_disk_next"), on_disk),
        **changes.pop("driver", {}),
    }
    names = resolve(host(KEY), {"source": "nvidia"}, platform(KEY)).lockstep
    return host(
        KEY,
        driver=driver,
        modules={KERNELS[KEY]: on_disk},
        headers=(KERNELS[KEY],),
        packages=dict.fromkeys(names, f"{on_disk}-1"),
        modules_loaded=["nvidia", "nvidia_modeset", "nvidia_uvm"],
        **changes,
    )


def present(there: dict, values: dict | None = None, settings: dict | None = None) -> dict:
    """Plan the part of the driver with answers of the repositories."""
    values = {"source": "nvidia", **(values or {})}
    data = platform(KEY)
    names = resolve(there, values, data).lockstep
    return site_driver.present(
        there,
        driver_request.read(values),
        values,
        data,
        versions=offer(there, [*names, "dkms"], f"{OLD}-1", f"{NEW}-1"),
        streams=None,
        is_controller=False,
        settings=settings,
    )


UPGRADE = {"version": NEW}


@pytest.mark.parametrize(
    ("there", "values", "reloads"),
    [
        (loaded(), {}, False),
        (loaded(), UPGRADE, True),
        # Another run has installed the driver.
        (loaded(on_disk=NEW), {}, True),
        (loaded(), {**UPGRADE, "activate": False}, False),
        # A reboot replaces modules in use, and its policy is a variable of its own.
        (loaded(holders=[JOB]), UPGRADE, False),
        (loaded(module_users={"nvidia": ["gdrdrv"]}), UPGRADE, False),
        # Nothing is loaded yet.
        (loaded(driver={"loaded": None}), UPGRADE, False),
        # Another package of the same driver.
        (loaded(), {"components": ["compute", "video"]}, False),
        (loaded(), {"flavor": "proprietary"}, True),
    ],
)
def test_a_reload_is_predicted(there, values, reloads):
    part = present(there, values, facts())
    assert part["errors"] == []
    assert part["plan"]["reloads"] is reloads
    assert (LOCKED in part["reasons"]) is reloads


LOST = [
    ({"mig": MIG}, ["MIG devices of GPU 0000:3b:00.0: 3g.20gb, 1g.5gb", "MIG mode of GPU 0000:3b:00.0"]),
    ({"mig": {"enabled": True, "pending": True, "devices": []}}, ["MIG mode of GPU 0000:3b:00.0"]),
    ({"compute_mode": "exclusive_process"}, ["compute mode exclusive_process of GPU 0000:3b:00.0"]),
    ({"accounting_mode": True}, ["accounting mode of GPU"]),
    ({"power": {"limit_w": 300.0, "default_limit_w": 400.0}}, ["power limit 300 W (default 400) of GPU"]),
    (
        {"clocks": {"application_graphics_mhz": 1200, "default_application_graphics_mhz": 1410}},
        ["application clock of graphics 1200 MHz (default 1410)"],
    ),
]


@pytest.mark.parametrize(("gpu", "words"), LOST, ids=str)
@pytest.mark.parametrize("there", [loaded(), loaded(on_disk=NEW)], ids=["upgrade", "earlier upgrade"])
def test_a_reload_that_loses_something_is_refused_unless_allowed(there, gpu, words):
    (error,) = present(there, UPGRADE, facts({}, gpu))["errors"]
    for word in [*words, "nvidia_driver_reload_loses_settings to true"]:
        assert word in error
    allowed = present(there, {**UPGRADE, "reload_loses_settings": True}, facts({}, gpu))
    assert allowed["errors"] == []
    assert any(words[0] in reason for reason in allowed["reasons"])


@pytest.mark.parametrize(
    "gpu",
    [
        {},
        # The GPU does not support the setting.
        {"mig": {"enabled": None, "pending": None, "devices": []}, "compute_mode": None, "accounting_mode": None},
        {"power": {"limit_w": None, "default_limit_w": None}, "clocks": {}},
        {"power": {"limit_w": 300.0, "default_limit_w": None}},
    ],
)
def test_a_reload_that_loses_nothing_is_allowed(gpu):
    assert present(loaded(), UPGRADE, facts(gpu))["errors"] == []


def test_settings_do_not_matter_without_a_reload():
    assert present(loaded(), {}, facts({"mig": MIG}))["errors"] == []
    assert present(loaded(holders=[JOB]), UPGRADE, facts({"mig": MIG}))["errors"] == []


MISMATCH = {"nvidia_gpu_state": "version_mismatch", "nvidia_gpu_state_reason": "Versions differ.", "nvidia_gpus": []}


def test_settings_that_cannot_be_read_are_reported():
    part = present(loaded(on_disk=NEW), {}, MISMATCH)
    assert part["errors"] == []
    assert any("cannot be read now: Versions differ." in reason for reason in part["reasons"])


@pytest.mark.parametrize("settings", [None, MISMATCH])
def test_mig_devices_are_found_without_nvml(settings):
    there = loaded(on_disk=NEW, nvidia={"mig_instances": ["gpu0/gi1", "gpu0/gi2"]})
    (error,) = present(there, {}, settings)["errors"]
    assert "2 MIG instances (gpu0/gi1, gpu0/gi2)" in error


def test_an_upgrade_announces_the_reload():
    assert "reload the kernel modules" in present(loaded(), UPGRADE, facts())["changes"]
    assert "reload the kernel modules" not in present(loaded(), {}, facts())["changes"]


def test_the_subsets_have_the_settings():
    chosen = gather_subset_option.choose_subsets(settings_lost_by_reload.SUBSETS)
    assert {"min", "identity", "power", "clocks"} == chosen
