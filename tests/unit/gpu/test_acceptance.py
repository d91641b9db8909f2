# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of the acceptance test on real GPUs: what they compare, and which errors they find."""

from __future__ import annotations

import copy
import sys
import types
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather_subset_option
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import gpu_fields

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "gpu"))

from acceptance import checks, command, report, smi

XML = (Path(__file__).parent / "files" / "h200.xml").read_text(encoding="utf-8")
UUID = "GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61"
OTHER = "GPU-00000000-0000-4000-8000-000000000001"

# The facts of that host.
NO_ERRORS = dict.fromkeys(
    ("corrected", "dram_corrected", "sram_corrected", "uncorrected", "dram_uncorrected", "sram_uncorrected"), 0
)
H200 = {
    "index": 0,
    "minor": 0,
    "uuid": UUID,
    "name": "NVIDIA H200",
    "pci_bus_id": "0000:00:06.0",
    "pci_device_id": "0x2335",
    "pci_subsystem_vendor_id": "0x10de",
    "pci_subsystem_device_id": "0x18bf",
    "architecture": "hopper",
    "brand": "nvidia",
    "serial": "1650000000042",
    "part_number": "692-2G520-0282-001",
    "board_id": 6,
    "multi_gpu_board": False,
    "vbios_version": "96.00.A5.00.1A",
    "inforom_image_version": "G520.0282.02.02",
    "inforom_oem_version": "2.1",
    "inforom_ecc_version": "7.16",
    "inforom_power_version": None,
    "gsp_firmware_version": "580.159.04",
    "virtualization_mode": "passthrough",
    "display_attached": True,
    "display_active": False,
    "recovery_action": "none",
    "persistence_mode": True,
    "compute_mode": "default",
    "accounting_mode": False,
    "mig": {"enabled": False, "pending": False, "devices": []},
    "memory_total_mib": 143771,
    "memory_reserved_mib": 615,
    "memory_used_mib": 0,
    "memory_free_mib": 143155,
    "bar1_total_mib": 262144,
    "bar1_used_mib": 1,
    "bar1_free_mib": 262142,
    "pcie": {
        "generation": 5,
        "generation_max": 5,
        "generation_max_gpu": 5,
        "width": 16,
        "width_max": 16,
        "replay_count": 0,
    },
    "ecc": {
        "enabled": True,
        "pending": True,
        "default": True,
        "volatile": dict(NO_ERRORS),
        "aggregate": dict(NO_ERRORS),
        "sram_threshold_exceeded": False,
    },
    "retired_pages": {"single_bit": None, "double_bit": None, "pending": None},
    "remapped_rows": {
        "correctable": 0,
        "uncorrectable": 0,
        "pending": False,
        "failed": False,
        "banks": {"max": 3072, "high": 0, "partial": 0, "low": 0, "none": 0},
    },
    "power": {
        "draw_w": 77.37,
        "limit_w": 700.0,
        "enforced_limit_w": 700.0,
        "default_limit_w": 700.0,
        "min_limit_w": 200.0,
        "max_limit_w": 700.0,
    },
    "clocks": {
        "graphics_mhz": 345,
        "sm_mhz": 345,
        "memory_mhz": 3201,
        "video_mhz": 765,
        "max_graphics_mhz": 1980,
        "max_sm_mhz": 1980,
        "max_memory_mhz": 3201,
        "max_video_mhz": 1545,
        "application_graphics_mhz": 1980,
        "application_memory_mhz": 3201,
        "default_application_graphics_mhz": 1980,
        "default_application_memory_mhz": 3201,
    },
    "performance_state": 0,
    "throttle_reasons": ["idle"],
    "temperature": {
        "gpu_c": 36,
        "memory_c": 39,
        "margin_c": 51,
        "shutdown_margin_c": -8,
        "slowdown_margin_c": -2,
        "gpu_max_margin_c": 0,
        "memory_max_margin_c": 0,
        "shutdown_c": 95,
    },
    "fan_speed_percent": None,
    "utilization": dict.fromkeys(
        ("gpu_percent", "memory_percent", "encoder_percent", "decoder_percent", "jpeg_percent", "ofa_percent"), 0
    ),
    "fabric": {"state": None, "cluster_uuid": None, "clique_id": None},
}


def compared(facts=None, before=XML, after=XML):
    return smi.compare(H200 if facts is None else facts, smi.Report(before).gpus[0], smi.Report(after).gpus[0])


def changed(path, value):
    facts = copy.deepcopy(H200)
    *places, key = path.split(".")
    place = facts
    for name in places:
        place = place[name]
    place[key] = value
    return facts


def test_the_facts_of_a_real_host_agree_with_its_nvidia_smi():
    comparison = compared()
    assert comparison.differences == []
    assert len(comparison.equal) > 60
    assert len(comparison.near) > 25


def test_every_default_fact_is_compared_or_listed_as_not_printed():
    facts = set(
        smi.flattened(gpu_fields.blank(gather_subset_option.choose_subsets(gather_subset_option.DEFAULT_SUBSETS)))
    )
    mapped = {field.key for field in smi.FIELDS}
    assert facts - mapped - set(smi.UNPRINTED) == set(), "neither compared nor listed as not printed"
    assert mapped - facts == set(), "compared, but no fact"
    assert mapped & set(smi.UNPRINTED) == set()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("serial", "42"),
        ("serial", None),
        ("memory_total_mib", 143769),
        ("memory_free_mib", 143100),
        ("pci_bus_id", "0000:00:07.0"),
        ("persistence_mode", False),
        ("persistence_mode", None),
        ("mig.enabled", True),
        ("ecc.volatile.corrected", 1),
        ("power.limit_w", 650.0),
        ("power.draw_w", 20.0),
        ("clocks.max_sm_mhz", 1975),
        ("temperature.gpu_c", 60),
        ("temperature.shutdown_margin_c", 8),
        ("throttle_reasons", ["idle", "hardware_slowdown"]),
        ("throttle_reasons", []),
        ("fan_speed_percent", 0),
        ("retired_pages.pending", False),
        ("recovery_action", None),
        ("fabric.state", "completed"),
    ],
)
def test_a_wrong_fact_is_found(path, value):
    facts = changed(path, value)
    assert [difference.key for difference in compared(facts).differences] == [path]


def test_a_missing_fact_is_found():
    facts = copy.deepcopy(H200)
    del facts["temperature"]["gpu_c"]
    assert [str(one) for one in compared(facts).differences] == [
        "temperature.gpu_c: the fact is 'missing', nvidia-smi prints 37"
    ]


def test_a_changing_value_may_lie_between_the_two_reports():
    hot = XML.replace("<gpu_temp>37 C", "<gpu_temp>70 C")
    assert compared(changed("temperature.gpu_c", 55), XML, hot).differences == []
    assert compared(changed("temperature.gpu_c", 90), XML, hot).differences != []


def test_a_fixed_value_that_changes_is_found():
    other = XML.replace("<current_ecc>Enabled", "<current_ecc>Disabled")
    assert [one.key for one in compared(H200, XML, other).differences] == ["ecc.enabled"]


def test_a_value_that_the_driver_does_not_print_is_not_compared():
    old = XML.replace("<gpu_recovery_action>None</gpu_recovery_action>", "")
    assert compared(changed("recovery_action", "anything"), old, old).differences == []


def test_an_unexpected_unit_is_an_error():
    strange = XML.replace("<total>143771 MiB</total>", "<total>140 GiB</total>")
    with pytest.raises(ValueError, match="prints fb_memory_usage/total as '140 GiB', not as a number of MiB"):
        compared(H200, strange, strange)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("<persistence_mode>Enabled", "<persistence_mode>Disabled", "persistence_mode: was 'Enabled', is 'Disabled'"),
        ("<pending_mig>Disabled", "<pending_mig>Enabled", "mig_mode/pending_mig: was 'Disabled', is 'Enabled'"),
        ("<compute_mode>Default", "<compute_mode>Prohibited", "compute_mode: was 'Default', is 'Prohibited'"),
        ("<pending_ecc>Enabled", "<pending_ecc>Disabled", "ecc_mode/pending_ecc: was 'Enabled', is 'Disabled'"),
        ("<requested_power_limit>700.00 W", "<requested_power_limit>650.00 W", "requested_power_limit: was '700.00 W'"),
        ("<accounting_mode>Disabled", "<accounting_mode>Enabled", "accounting_mode: was 'Disabled', is 'Enabled'"),
    ],
)
def test_a_changed_setting_is_named(old, new, told):
    assert old in XML
    before, after = smi.settings(smi.Report(XML)), smi.settings(smi.Report(XML.replace(old, new)))
    (change,) = smi.changed_settings(before, after)
    assert change.startswith(UUID)
    assert told in change


def test_equal_settings_and_changing_values_are_no_change():
    before = smi.settings(smi.Report(XML))
    after = smi.settings(smi.Report(XML.replace("<gpu_temp>37 C", "<gpu_temp>70 C")))
    assert smi.changed_settings(before, after) == []
    assert len(before[UUID]) > 25
    assert smi.changed_settings(before, {}) == [f"{UUID} is gone"]


def passing(uuid):
    return {"uuid": uuid, "passed": True, "result": "PASS"}


def inside(uuids, minors):
    """Return the report of a correct container."""
    own = {str(minor): "given" if uuid in uuids else "EPERM" for uuid, minor in minors.items()}
    return {
        "given": {str(minor): "opens" if uuid in uuids else "ENOENT" for uuid, minor in minors.items()},
        "nvml": {"uuids": list(uuids), "error": None},
        "nvml_without_environment": {"uuids": list(uuids), "error": None},
        "smi": {"uuids": list(uuids), "error": None},
        "nvml_afterwards": {"uuids": list(uuids), "error": None},
        "own": own,
        "own_elsewhere": {key: "opens" if word == "given" else "mknod EPERM" for key, word in own.items()},
        "cuda": {"gpus": [passing(uuid) for uuid in uuids], "error": None if uuids else "no GPU"},
    }


MINORS = {UUID: 0, OTHER: 1}


@pytest.mark.parametrize("uuids", [[UUID], [OTHER], [UUID, OTHER], []])
def test_a_correct_container_has_no_problem(uuids):
    assert checks.judge_inside(inside(uuids, MINORS), uuids, MINORS) == []


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("nvml", {"uuids": [UUID, OTHER]}, "nvml shows"),
        ("nvml", {"error": "exit 1"}, "nvml shows [], expected"),
        ("nvml_without_environment", {"uuids": []}, "nvml_without_environment shows [], expected"),
        ("smi", {"uuids": []}, "smi shows [], expected"),
        ("nvml_afterwards", {"uuids": [UUID, OTHER]}, "nvml_afterwards shows"),
        ("given", {"0": "EPERM", "1": "ENOENT"}, "/dev/nvidia0 was given and cannot be opened: EPERM"),
        ("given", {"0": "opens", "1": "EPERM"}, "/dev/nvidia1 was not given and is there: EPERM"),
        ("own", {"0": "given", "1": "opens"}, "GPU 1 was not given, and a node that the container made itself: opens"),
        ("own_elsewhere", {"0": "opens", "1": "ENXIO"}, "made itself: EPERM, ENXIO"),
        ("cuda", {"gpus": []}, "CUDA shows [], expected"),
        ("cuda", {"gpus": [passing(UUID), passing(OTHER)]}, "CUDA shows"),
        ("cuda", {"gpus": [{"uuid": UUID, "passed": False, "result": "broken"}]}, f"CUDA on {UUID}: broken"),
        ("cuda", {"error": "cuInit failed"}, "CUDA: cuInit failed"),
    ],
)
def test_a_problem_in_a_container_is_found(place, value, words):
    seen = {**inside([UUID], MINORS), place: value}
    problems = checks.judge_inside(seen, [UUID], MINORS)
    assert any(words in problem for problem in problems), problems


def test_a_gpu_in_a_container_without_gpus_is_found():
    problems = checks.judge_inside(inside([UUID], MINORS), [], MINORS)
    assert any("CUDA shows" in problem for problem in problems)
    assert any("/dev/nvidia0 was not given and is there" in problem for problem in problems)


def event(task, changed=False, status="ok", item=None, **result):
    return {"task": task, "item": item, "status": status, "result": {"changed": changed, **result}}


@pytest.mark.parametrize(
    ("events", "problems"),
    [
        ([event("Make", True), event("Make again")], []),
        ([event("Make", True), event("Make again", True)], ["Make again: says that it changes something"]),
        ([event("Make"), event("Make again")], ["Make: did not say that it changes something"]),
        ([event("Make", True)], ["Make again: there is no result"]),
    ],
)
def test_a_change_in_a_second_run_is_a_problem(events, problems):
    found = checks.changes(events, {"Make": True, "Make again": False})
    assert [text.replace(" says that it changed", " says that it changes") for text in found] == problems


def test_failures_quote_the_message_of_the_module():
    events = [event("Start", status="failed", item={"name": "one"}, msg="no such GPU"), event("Start", True)]
    assert checks.failures(events) == ["Start one: no such GPU"]


def test_an_exception_in_a_check_fails_the_check():
    def broken(_bench):
        yield checks.Result("first", True, "fine")
        raise KeyError("gone")

    told = []
    names = ["broken"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(checks.CHECKS, "broken", broken)
        results = checks.perform(None, names, told.append)
    assert [(result.check, result.passed) for result in results] == [("first", True), ("broken", False)]
    assert "KeyError" in results[1].problems[0]
    assert told == results


def test_required_checks_run_first():
    assert checks.chosen(["containers-cdi"]) == ["volume", "cdi", "containers-cdi"]
    assert checks.chosen([]) == list(checks.CHECKS)


def test_containers_cover_each_gpu_each_pair_all_and_none():
    bench = types.SimpleNamespace(uuids=["GPU-a", "GPU-b", "GPU-c"])
    wanted = checks.wanted_containers(bench, "cdi")
    assert [one.uuids for one in wanted] == [
        *(["GPU-a"], ["GPU-b"], ["GPU-c"]),
        *(["GPU-a", "GPU-b"], ["GPU-a", "GPU-c"], ["GPU-b", "GPU-c"]),
        ["GPU-a", "GPU-b", "GPU-c"],
        [],
    ]
    assert len({one.name for one in wanted}) == len(wanted)


def test_a_machine_without_gpus_gets_one_line_and_its_own_status(monkeypatch, capsys):
    monkeypatch.setattr(command, "has_gpus", lambda: False)
    assert command.main([]) == 77
    assert capsys.readouterr().out.splitlines() == [
        "gpu-acceptance: there is no NVIDIA GPU in this machine, so there is nothing to accept here"
    ]


ABOUT = {
    "date": "2026-11-21",
    "count": 2,
    "gpu": "NVIDIA H200",
    "gpus": "2 x NVIDIA H200",
    "driver": "580.159.04 (open modules)",
    "cuda": "13.0",
    "engine": "the bundle's podman version 4.3.1",
    "host": "Ubuntu 24.04.3 LTS",
    "ansible": "ansible [core 2.19.14]",
    "commit": "0123abc",
    "duration": "60 s",
    "toolkit": "1.20.0",
}


def test_the_page_lists_passed_and_failed_checks():
    results = [
        checks.Result("good", True, "a | b", (), 1.0),
        checks.Result("bad", False, "looked", ("GPU 1 is gone",), 2.0),
    ]
    text = report.page(ABOUT, results, {})
    assert "# Acceptance on 2 x NVIDIA H200, 2026-11-21" in text
    assert "1 of 2 checks FAILED: bad." in text
    assert "| good | pass | a \\| b | 1.0 |" in text
    assert "| bad | **fail** | looked; GPU 1 is gone | 2.0 |" in text
    assert "0123abc" in text
    assert report.stem(ABOUT) == "2026-11-21-2xh200"
    assert report.document(ABOUT, results, {})["passed"] is False
    assert report.document(ABOUT, results[:1], {})["passed"] is True
    assert report.document(ABOUT, [], {})["passed"] is False
