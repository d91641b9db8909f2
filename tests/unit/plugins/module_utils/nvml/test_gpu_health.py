# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import gpu_health as nvml_health
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import CODES, NvmlFailure

HEALTHY = {
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
    "fabric": {"state": "completed", "status": 0, "bandwidth_degraded": False, "routes_unhealthy": False},
    "switch_links": None,
}
UNSUPPORTED = dict.fromkeys(HEALTHY)


def test_a_gpu_without_problems_is_ok():
    assert nvml_health.judge(HEALTHY) == {"state": "ok", "reasons": []}


def test_unsupported_values_do_not_degrade_a_gpu():
    assert nvml_health.judge(UNSUPPORTED) == {"state": "ok", "reasons": []}
    assert nvml_health.judge({}) == {"state": "ok", "reasons": []}


@pytest.mark.parametrize(
    ("indicators", "words"),
    [
        ({"uuid_failure": "Unknown Error"}, "cannot read the UUID: Unknown Error. Check the kernel log"),
        ({"recovery_action": "gpu_reset"}, "requests a reset of this GPU"),
        ({"recovery_action": "node_reboot"}, "requests a reboot of the host"),
        ({"recovery_action": "drain_p2p"}, "requests that all peer-to-peer work stop"),
        ({"recovery_action": "drain_and_reset"}, "a drain and a reset of this GPU"),
        ({"recovery_action": "recover_imex_domain"}, "IMEX domain"),
        ({"recovery_action": "bus_reset"}, "a bus reset of this GPU"),
        ({"recovery_action": "system_reboot"}, "a reboot of the whole system"),
        ({"recovery_action": "unknown_9"}, "recovery action 9, which is unknown to this version"),
        ({"retired_pages_pending": True}, "are pending retirement. Reset the GPU or reboot"),
        ({"remapped_rows": {"pending": True, "failed": False}}, "remapping of a memory row is pending. Reset the GPU"),
        (
            {"remapped_rows": {"pending": False, "failed": True}},
            "a memory row failed. Replace the GPU",
        ),
        ({"uncorrected_errors": 3}, "uncorrectable memory errors since the driver was loaded: 3"),
        ({"sram_threshold_exceeded": True}, "SRAM errors exceed the threshold"),
        ({"pcie": {"generation": 3, "generation_max": 5}}, "generation 3 under load instead of 5"),
        ({"throttle_reasons": ["hardware_slowdown"]}, "reduces the clocks. Check cooling and power supply"),
        ({"throttle_reasons": ["hardware_slowdown", "hardware_thermal"]}, "because of heat. Check the cooling"),
        ({"throttle_reasons": ["hardware_power_brake"]}, "because of the power brake. Check the power supply"),
        ({"fabric": {"state": "in_progress", "status": None}}, "is in progress. Check nvidia-fabricmanager"),
        ({"fabric": {"state": "not_started", "status": None}}, "is not started. Check nvidia-fabricmanager"),
        ({"fabric": {"state": "completed", "status": 999}}, "failed with NVML code 999"),
        ({"fabric": {"state": "completed", "bandwidth_degraded": True}}, "bandwidth of the NVLink fabric is degraded"),
        ({"fabric": {"state": "completed", "routes_unhealthy": True}}, "routes of the NVLink fabric are unhealthy"),
        ({"switch_links": {"down": 2, "count": 18}}, "2 of 18 NVLinks are down"),
    ],
)
def test_each_indicator_degrades_the_gpu_with_its_own_reason(indicators, words):
    health = nvml_health.judge({**HEALTHY, **indicators})
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
def test_a_slow_link_of_an_idle_gpu_is_ok(idle):
    assert nvml_health.judge({**HEALTHY, "pcie": {"generation": 1, "generation_max": 5}, **idle})["state"] == "ok"


def test_a_narrow_link_is_ok_because_healthy_boards_and_idle_gpus_can_have_one():
    assert nvml_health.judge({**HEALTHY, "pcie": {**HEALTHY["pcie"], "width": 8}}) == {"state": "ok", "reasons": []}


@pytest.mark.parametrize(
    ("indicators", "codes", "expected"),
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
def test_needs_reset_is_true_only_for_reasons_that_require_a_reset(indicators, codes, expected):
    health = nvml_health.judge({**HEALTHY, **indicators}, [NvmlFailure.of(code) for code in codes])
    assert nvml_health.needs_reset(health["reasons"]) is expected


def test_a_gpu_without_a_handle_needs_a_reset_only_if_nvml_requires_one():
    assert nvml_health.needs_reset(nvml_health.unreachable(NvmlFailure.of(16))["reasons"])
    assert not nvml_health.needs_reset(nvml_health.unreachable(NvmlFailure.of(4))["reasons"])


def test_all_reasons_are_returned():
    health = nvml_health.judge({**HEALTHY, "uncorrected_errors": 1, "retired_pages_pending": True})
    assert len(health["reasons"]) == 2


@pytest.mark.parametrize("code", sorted(CODES))
def test_the_code_of_a_failed_call_identifies_lost_gpus_and_required_resets(code):
    health = nvml_health.judge(HEALTHY, [NvmlFailure.of(3), NvmlFailure.of(code)])
    assert health["state"] == {15: "lost", 16: "degraded"}.get(code, "ok")
    if code == 15:
        assert "fallen off the bus" in health["reasons"][0]
    if code == 16:
        assert "needs a reset" in health["reasons"][0]


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_gpu_without_a_handle_has_a_reason(code):
    health = nvml_health.unreachable(NvmlFailure.of(code))
    assert health["state"] == ("degraded" if code in (4, 16) else "lost")
    words = {4: "Set become: true", 15: "fallen off the bus", 16: "needs a reset"}.get(code, CODES[code])
    assert words in health["reasons"][0]
