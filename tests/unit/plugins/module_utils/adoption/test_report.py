# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of playbook dlami."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.adoption import allowed_on_image, report
from ansible_collections.gpufleet.hosts.plugins.module_utils.adoption.report import AdoptionPart
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.registry import PARTS
from ansible_collections.gpufleet.hosts.tests.unit.plugins.site_samples import converged, file

UNCHANGED = {part: AdoptionPart([], ["satisfies nvidia_driver_source"]) for part in PARTS}
ALL = allowed_on_image.Adoption("dlami", list(PARTS), "")


def host(**found):
    there = converged()
    there["files"][owned.ADOPTION_REPORT] = file(None)
    there["image"] |= {"kind": "dlami", "evidence": ["/opt/dlami"], "instance_type": "p5.48xlarge", **found}
    return there


def parts(result):
    return {part["part"]: part for part in result["parts"]}


def written(there, result):
    """Return the host with the report on it."""
    return {**there, "files": {**there["files"], owned.ADOPTION_REPORT: file(report.text(result))}}


def test_what_satisfies_the_request_is_adopted_with_its_version_and_the_reason():
    there = host(cuda=["12.8", "13.2"], efa="1.47.0")
    there["installed_packages"]["datacenter-gpu-manager-4-core"] = "1:4.6.0-1 amd64"
    result = report.build(there, ALL, UNCHANGED, [])
    found = parts(result)
    assert {name: (entry["state"], entry["version"]) for name, entry in found.items()} == {
        "nvidia_driver": ("adopted", there["accelerators"]["nvidia"]["driver"]["loaded"]),
        "nvidia_persistenced": ("adopted", "535.261.03-1"),
        "container_engine": ("adopted", "docker 20.10.24+dfsg1-1"),
        "nvidia_container_toolkit": ("left_alone", None),
        "driver_volume": ("adopted", there["accelerators"]["nvidia"]["driver"]["loaded"]),
        "container_proof": ("adopted", None),
        "docker_options": ("adopted", "/etc/docker/daemon.json"),
        "docker_data_root": ("adopted", "/var/lib/docker"),
        "nvidia_runtime": ("left_alone", None),
        "cdi_specification": ("left_alone", None),
        "cuda": ("adopted", "12.8, 13.2"),
        "dcgm": ("adopted", "1:4.6.0-1"),
        "efa": ("adopted", "1.47.0"),
    }
    assert found["nvidia_driver"]["reason"] == "satisfies nvidia_driver_source"
    assert (result["instance"]["model"], result["instance"]["count"]) == ("H100", 8)


def test_a_completed_part_names_what_is_not_held():
    plans = {
        **UNCHANGED,
        "nvidia_driver": AdoptionPart(["load nvidia_uvm"], ["kept", "the driver's packages are not held"]),
    }
    entry = parts(report.build(host(), ALL, plans, []))["nvidia_driver"]
    assert (entry["state"], entry["reason"]) == ("completed", "load nvidia_uvm; the driver's packages are not held")


@pytest.mark.parametrize(
    ("changes", "state", "reason"),
    [
        (["hold docker.io at its version"], "adopted", "satisfies nvidia_driver_source; hold docker.io at its version"),
        (["start docker.service", "hold docker.io"], "completed", "start docker.service; hold docker.io"),
    ],
)
def test_a_hold_alone_is_no_completion(changes, state, reason):
    plans = {**UNCHANGED, "container_engine": AdoptionPart(changes, ["satisfies nvidia_driver_source"])}
    entry = parts(report.build(host(), ALL, plans, []))["container_engine"]
    assert (entry["state"], entry["reason"]) == (state, reason)


def test_holds_and_what_keeps_the_driver_are_no_completion():
    there = host()
    there["installed_packages"] = {**there["installed_packages"], "nvidia-container-toolkit": "1.20.0-1 amd64"}
    changes = [f"write {owned.DRIVER_UNATTENDED_UPGRADES}", "hold libcuda1"]
    plans = {**UNCHANGED, "nvidia_driver": AdoptionPart(changes, [])}
    found = parts(report.build(there, ALL, plans, ["nvidia-container-toolkit"]))
    assert (found["nvidia_driver"]["state"], found["nvidia_container_toolkit"]["state"]) == ("adopted", "adopted")
    assert found["nvidia_container_toolkit"]["reason"].endswith("hold nvidia-container-toolkit")


def test_a_daemon_in_a_package_of_the_driver_has_the_version_of_the_driver():
    there = host()
    there["installed_packages"] = {
        name: version for name, version in there["installed_packages"].items() if name != "nvidia-persistenced"
    }
    entry = parts(report.build(there, ALL, UNCHANGED, []))["nvidia_persistenced"]
    assert (entry["state"], entry["version"]) == ("adopted", there["accelerators"]["nvidia"]["driver"]["loaded"])


@pytest.mark.parametrize(
    ("part", "change", "completed"),
    [
        ("nvidia_container_toolkit", "change runtimes.nvidia in /etc/docker/daemon.json", {"nvidia_runtime"}),
        ("nvidia_container_toolkit", "enable nvidia-cdi-refresh.path", {"cdi_specification"}),
        ("nvidia_container_toolkit", "refresh the CDI specification /var/run/cdi/nvidia.yaml", {"cdi_specification"}),
        ("container_engine", "change live-restore in /etc/docker/daemon.json", {"docker_options"}),
        ("container_engine", "change data-root in /etc/docker/daemon.json", {"docker_options", "docker_data_root"}),
        ("container_engine", "start docker.service", set()),
    ],
)
def test_what_a_part_configures_is_named_apart(part, change, completed):
    found = parts(report.build(host(), ALL, {**UNCHANGED, part: AdoptionPart([change], [])}, []))
    assert {name for name, entry in found.items() if entry["state"] == "completed"} == (completed or {part})
    assert {found[name]["reason"] for name in completed} <= {change}


@pytest.mark.parametrize(
    ("runtimes", "engine"),
    [({"nvidia": {"path": "x"}}, "docker"), (1, None), ("nvidia", None), (["nvidia"], None), (None, None)],
)
def test_runtimes_of_another_type_have_no_runtime_nvidia(runtimes, engine):
    there = host()
    there["docker_daemon_json"] |= {"content": {"runtimes": runtimes}}
    assert parts(report.build(there, ALL, UNCHANGED, []))["nvidia_runtime"]["version"] == engine


def test_a_later_run_keeps_what_the_first_run_completed():
    there = host()
    plans = {**UNCHANGED, "nvidia_persistenced": AdoptionPart(["start nvidia-persistenced.service"], [])}
    first = report.build(there, ALL, plans, ["efa"])
    assert not report.is_written(there, first)
    again = written(there, first)
    second = report.build(again, ALL, UNCHANGED, [])
    assert second == first
    assert report.is_written(again, second)


def test_another_version_ends_a_completion():
    there = host()
    plans = {**UNCHANGED, "nvidia_persistenced": AdoptionPart(["start nvidia-persistenced.service"], [])}
    again = written(there, report.build(there, ALL, plans, []))
    again["installed_packages"] = {**there["installed_packages"], "nvidia-persistenced": "600-1 amd64"}
    entry = parts(report.build(again, ALL, UNCHANGED, []))["nvidia_persistenced"]
    assert (entry["state"], entry["version"]) == ("adopted", "600-1")


def selecting(*names):
    """Return the adoption and the plans of a run with tags."""
    return allowed_on_image.Adoption("dlami", list(names), ""), {name: UNCHANGED[name] for name in names}


def test_a_run_with_tags_changes_no_entry_of_the_other_parts():
    there = host(efa="1.47.0")
    plans = {
        **UNCHANGED,
        "nvidia_persistenced": AdoptionPart(["start nvidia-persistenced.service"], []),
        "container_engine": AdoptionPart(["change live-restore in /etc/docker/daemon.json"], []),
    }
    first = report.build(there, ALL, plans, ["efa"])
    assert {"completed", "adopted", "left_alone"} == {part["state"] for part in first["parts"]}
    again = written(there, first)
    for names in (["container_engine"], ["nvidia_driver", "verify"], []):
        assert report.build(again, *selecting(*names), []) == first
    assert report.build(again, ALL, UNCHANGED, []) == first


def test_a_run_with_tags_reports_the_version_that_it_observed():
    there = host()
    again = written(there, report.build(there, ALL, UNCHANGED, []))
    again["accelerators"]["nvidia"]["driver"] = {**again["accelerators"]["nvidia"]["driver"], "loaded": "595.71.05"}
    entry = parts(report.build(again, *selecting("container_engine"), []))["nvidia_driver"]
    assert (entry["version"], entry["reason"]) == ("595.71.05", "not selected by the tags")


def test_holds_of_this_run_are_reported_once():
    there = host()
    again = written(there, report.build(there, ALL, UNCHANGED, []))
    holding = {**UNCHANGED, "nvidia_driver": AdoptionPart(["hold nvidia-smi"], ["satisfies nvidia_driver_source"])}
    held = report.build(again, ALL, holding, [])
    assert parts(held)["nvidia_driver"]["reason"] == "satisfies nvidia_driver_source; hold nvidia-smi"
    assert report.build(written(again, held), ALL, UNCHANGED, []) == held


def test_a_first_run_with_tags_reports_the_other_parts_as_not_selected():
    there = host()
    found = parts(report.build(there, *selecting("container_engine"), []))
    assert found["container_engine"]["state"] == "adopted"
    entry = found["nvidia_driver"]
    assert (entry["state"], entry["version"]) == ("left_alone", there["accelerators"]["nvidia"]["driver"]["loaded"])
    assert entry["reason"] == found["nvidia_runtime"]["reason"] == "not selected by the tags"
    # The next run knows more.
    again = written(there, report.build(there, *selecting("container_engine"), []))
    assert parts(report.build(again, ALL, UNCHANGED, []))["nvidia_driver"]["state"] == "adopted"


def test_with_neuron_accelerators_only_the_engine_can_be_not_selected():
    adoption = allowed_on_image.Adoption("dlami", [], "the driver belongs to the image", ("container_engine",))
    found = parts(report.build(host(), adoption, {}, []))
    assert found["nvidia_driver"]["reason"] == "the driver belongs to the image"
    assert found["container_engine"]["reason"] == found["docker_options"]["reason"] == "not selected by the tags"


def test_packages_that_cannot_be_held_are_named_until_they_are_held():
    there = host(efa="1.47.0")
    names = ["efa", "nvidia-container-toolkit"]
    there["installed_packages"] = {**there["installed_packages"], **dict.fromkeys(names, "1.47.0-1 x86_64")}
    first = report.build(there, ALL, UNCHANGED, [], not_held=names)
    reasons = {name: entry["reason"] for name, entry in parts(first).items()}
    text = "not held: dnf has no python3-dnf-plugin-versionlock"
    assert sorted(name for name, reason in reasons.items() if text in reason) == ["efa", "nvidia_container_toolkit"]
    again = written(there, first)
    assert report.build(again, ALL, UNCHANGED, [], not_held=names) == first
    second = report.build(again, ALL, UNCHANGED, names)
    assert parts(second)["efa"]["reason"].endswith("; hold efa")
    assert parts(second)["nvidia_container_toolkit"]["reason"].endswith("; hold nvidia-container-toolkit")
    assert report.build(written(there, second), ALL, UNCHANGED, []) == second


WRONG_VERSION = json.dumps({"parts": [{"part": "nvidia_driver", "state": "adopted", "version": 1, "reason": ""}]})


@pytest.mark.parametrize("content", ["", "{", "[]", '{"parts": [{"part": "efa"}]}', '{"parts": 1}', WRONG_VERSION])
def test_a_damaged_report_is_replaced(content):
    there = host()
    there["files"][owned.ADOPTION_REPORT] = file(content)
    result = report.build(there, ALL, UNCHANGED, [])
    assert result == report.build(host(), ALL, UNCHANGED, [])
    assert not report.is_written(there, result)


def test_parts_that_belong_to_others_are_left_alone_with_the_reason():
    result = report.build(host(), allowed_on_image.Adoption("eks", [], "nodeadm owns it"), {}, [])
    found = parts(result)
    assert {entry["state"] for name, entry in found.items() if name in PARTS} == {"left_alone"}
    assert found["nvidia_driver"]["reason"] == "nodeadm owns it"


def test_the_table_names_each_part_and_wraps_long_reasons():
    plans = {**UNCHANGED, "container_engine": AdoptionPart([f"change {'option ' * 40}"], [])}
    lines = report.table(report.build(host(), ALL, plans, []))
    assert lines[0].split() == ["PART", "STATE", "VERSION", "REASON"]
    assert [line.split()[0] for line in lines if line[:1].strip()][1:4] == [
        "nvidia_driver",
        "nvidia_persistenced",
        "container_engine",
    ]
    assert all(len(line) < 180 for line in lines)
