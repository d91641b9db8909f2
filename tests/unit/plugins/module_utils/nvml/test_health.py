# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import health as nvml_health
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.values import CODES, NvmlFailure

WELL = {
    "uuid_failure": None,
    "recovery_action": "none",
    "retired_pages_pending": False,
    "remapped_rows": {"correctable": 2, "uncorrectable": 1, "pending": False, "failed": False},
    "uncorrected_errors": 0,
    "sram_threshold_exceeded": False,
    "pcie": {"generation": 5, "generation_max": 5, "width": 16, "width_max": 16},
    "performance_state": 0,
    "gpu_percent": 97,
    "throttle_reasons": ["software_power_cap"],
    "fabric": {"state": "completed", "status": 0},
}
UNSUPPORTED = dict.fromkeys(WELL)


def test_a_gpu_without_complaints_is_ok():
    assert nvml_health.judge(WELL) == {"state": "ok", "reasons": []}


def test_what_a_product_does_not_support_speaks_not_against_it():
    assert nvml_health.judge(UNSUPPORTED) == {"state": "ok", "reasons": []}
    assert nvml_health.judge({}) == {"state": "ok", "reasons": []}


@pytest.mark.parametrize(
    ("signs", "words"),
    [
        ({"uuid_failure": "Unknown Error"}, "does not tell its UUID: Unknown Error; look into the kernel log"),
        ({"recovery_action": "gpu_reset"}, "asks for a reset of this GPU"),
        ({"recovery_action": "node_reboot"}, "asks for a reboot of the host"),
        ({"recovery_action": "drain_p2p"}, "peer-to-peer work be drained"),
        ({"recovery_action": "drain_and_reset"}, "drained from this GPU and that it be reset"),
        ({"recovery_action": "recover_imex_domain"}, "IMEX domain"),
        ({"recovery_action": "bus_reset"}, "a reset of the bus of this GPU"),
        ({"recovery_action": "system_reboot"}, "a reboot of the system"),
        ({"recovery_action": "unknown_9"}, "recovery action 9, which this release does not know"),
        ({"retired_pages_pending": True}, "wait for their retirement: reset this GPU or reboot"),
        ({"remapped_rows": {"pending": True, "failed": False}}, "waits for its remapping: reset this GPU or reboot"),
        (
            {"remapped_rows": {"pending": False, "failed": True}},
            "a memory row failed: have this GPU replaced",
        ),
        ({"uncorrected_errors": 3}, "uncorrectable memory errors since the driver was loaded: 3"),
        ({"sram_threshold_exceeded": True}, "SRAM errors are beyond the threshold"),
        ({"pcie": {"generation": 3, "generation_max": 5}}, "generation 3 under load, 5 is possible"),
        ({"throttle_reasons": ["hardware_slowdown"]}, "slows the clocks down (heat or power brake)"),
        ({"throttle_reasons": ["hardware_slowdown", "hardware_thermal"]}, "for heat: check cooling"),
        ({"throttle_reasons": ["hardware_power_brake"]}, "for power: check the power supply"),
        ({"fabric": {"state": "in_progress", "status": None}}, "is in progress: check nvidia-fabricmanager"),
        ({"fabric": {"state": "not_started", "status": None}}, "is not started: check nvidia-fabricmanager"),
        ({"fabric": {"state": "completed", "status": 999}}, "failed with NVML code 999"),
    ],
)
def test_each_sign_degrades_in_its_own_words(signs, words):
    health = nvml_health.judge({**WELL, **signs})
    assert health["state"] == "degraded"
    assert len(health["reasons"]) == 1
    assert words in health["reasons"][0]


@pytest.mark.parametrize(
    "idle",
    [
        {"performance_state": 8, "gpu_percent": 0},
        {"performance_state": 0, "gpu_percent": 0},
        {"performance_state": 8, "gpu_percent": 50},
        {"performance_state": None, "gpu_percent": 50},
        {"performance_state": 0, "gpu_percent": None},
    ],
)
def test_a_slow_link_of_an_idle_gpu_saves_power_and_is_well(idle):
    assert nvml_health.judge({**WELL, "pcie": {"generation": 1, "generation_max": 5}, **idle})["state"] == "ok"


def test_a_narrow_link_is_well_because_sound_boards_and_idle_gpus_have_one():
    assert nvml_health.judge({**WELL, "pcie": {**WELL["pcie"], "width": 8}}) == {"state": "ok", "reasons": []}


@pytest.mark.parametrize(
    ("signs", "codes", "expected"),
    [
        ({}, [], False),
        ({}, [16], True),
        ({}, [3], False),
        ({"retired_pages_pending": True}, [], True),
        ({"remapped_rows": {"pending": True, "failed": False}}, [], True),
        ({"remapped_rows": {"pending": False, "failed": True}}, [], False),
        ({"uncorrected_errors": 3}, [], False),
        ({"uncorrected_errors": 3, "retired_pages_pending": True}, [], True),
    ],
)
def test_a_gpu_that_needs_a_reset_is_told_from_other_degraded_ones(signs, codes, expected):
    health = nvml_health.judge({**WELL, **signs}, [NvmlFailure.of(code) for code in codes])
    assert nvml_health.needs_reset(health["reasons"]) is expected


def test_a_gpu_that_gives_no_handle_before_a_reset_needs_one():
    assert nvml_health.needs_reset(nvml_health.unreachable(NvmlFailure.of(16))["reasons"])
    assert not nvml_health.needs_reset(nvml_health.unreachable(NvmlFailure.of(4))["reasons"])


def test_all_reasons_are_given():
    health = nvml_health.judge({**WELL, "uncorrected_errors": 1, "retired_pages_pending": True})
    assert len(health["reasons"]) == 2


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_failed_call_tells_a_lost_gpu_and_one_that_needs_a_reset(code):
    health = nvml_health.judge(WELL, [NvmlFailure.of(3), NvmlFailure.of(code)])
    assert health["state"] == {15: "lost", 16: "degraded"}.get(code, "ok")
    if code == 15:
        assert "fallen off the bus" in health["reasons"][0]
    if code == 16:
        assert "needs a reset" in health["reasons"][0]


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_gpu_without_a_handle_says_why(code):
    health = nvml_health.unreachable(NvmlFailure.of(code))
    assert health["state"] == ("degraded" if code in (4, 16) else "lost")
    words = {4: "become root", 15: "fallen off the bus", 16: "needs a reset"}.get(code, CODES[code])
    assert words in health["reasons"][0]
