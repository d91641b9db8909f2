# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a GPU node of Slurm: what is written, what stays, and what must be drained or restarted."""

from __future__ import annotations

import dataclasses
import os

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import node_files_plan

GRES, CGROUP = "/etc/slurm/gres.conf", "/etc/slurm/cgroup.conf"
SLURM_CONF = "TaskPlugin=task/affinity,task/cgroup\nGresTypes=gpu\n"
PRESENT, ABSENT = node_files_plan.SlurmRequest(), node_files_plan.SlurmRequest(present=False)


def gpus(count=2, model="NVIDIA H100 80GB HBM3"):
    return [
        schema.device(
            "nvidia",
            model=model,
            pci_address=f"0000:{number:02x}:00.0",
            stable_id=f"GPU-{number}",
            nodes=[{"path": f"/dev/nvidia{number}", "role": "device", "gid": 0}],
        )
        for number in range(count)
    ]


def host(devices=None, gres=None, cgroup=None, slurm=SLURM_CONF, **values):
    texts = {"gres.conf": gres, "cgroup.conf": cgroup, "slurm.conf": slurm}
    devices = gpus() if devices is None else devices
    return node_files_plan.SlurmHost("n1", "/etc/slurm", texts, devices, **values)


def carried_out(before, plan):
    """Return the host after a plan."""
    texts = dict(before.texts)
    for path, text in plan.writes.items():
        if path != owned.SLURMD_DROP_IN:
            texts[os.path.basename(path)] = text
    return dataclasses.replace(before, texts=texts, drop_in=plan.writes.get(owned.SLURMD_DROP_IN, before.drop_in))


def test_a_new_node_gets_all_files_and_a_line_for_the_controller():
    plan = node_files_plan.plan(host(hardware="NodeName=n1 CPUs=4 RealMemory=1000"), PRESENT)
    assert set(plan.writes) == {GRES, CGROUP, owned.SLURMD_DROP_IN}
    assert "NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia[0-1] Flags=nvidia_gpu_env\n" in plan.writes[GRES]
    assert "\nConstrainDevices=yes\n" in plan.writes[CGROUP]
    assert plan.node_line == "NodeName=n1 CPUs=4 RealMemory=1000 Gres=gpu:h100:2"
    assert (plan.gres_changes, plan.restart, plan.daemon_reload, plan.problems) == (True, False, True, [])


def test_slurmd_waits_for_exactly_the_device_nodes_of_gres_conf():
    text = node_files_plan.plan(host(), PRESENT).writes[owned.SLURMD_DROP_IN]
    assert "for f in /dev/nvidia0 /dev/nvidia1; do" in text
    assert "ExecStartPre=-/usr/bin/nvidia-modprobe -u -c 0 -c 1\n" in text
    assert "After=nvidia-persistenced.service" in text
    neuron = schema.device(
        "neuron", model="Trainium2", stable_id="n", nodes=[{"path": "/dev/neuron0", "role": "device", "gid": 0}]
    )
    text = node_files_plan.plan(host([neuron]), PRESENT).writes[owned.SLURMD_DROP_IN]
    assert "for f in /dev/neuron0; do" in text
    assert "nvidia-modprobe" not in text


@pytest.mark.parametrize("request_", [PRESENT, node_files_plan.SlurmRequest(constrain_devices=False), ABSENT])
@pytest.mark.parametrize("gres", [None, "", "Name=nic Count=1\n", "NodeName=n2 Name=gpu File=/dev/nvidia0\n"])
def test_the_second_run_changes_nothing_and_removal_leaves_the_rest(request_, gres):
    first = host(gres=gres, cgroup="ConstrainCores=yes\n", active=True, invocation="i1")
    second = carried_out(first, node_files_plan.plan(first, request_))
    plan = node_files_plan.plan(second, request_)
    assert (plan.writes, plan.changes, plan.gres_changes, plan.restart) == ({}, [], False, False)
    removed = carried_out(second, node_files_plan.plan(second, ABSENT))
    assert removed.texts["gres.conf"] in (gres, gres or None)
    assert removed.texts["cgroup.conf"] == "ConstrainCores=yes\n"
    assert removed.drop_in is None


@pytest.mark.parametrize(
    ("values", "changes", "restart"),
    [
        ({}, True, False),
        ({"active": True, "invocation": "i1"}, True, True),
    ],
)
def test_a_running_slurmd_restarts_and_a_stopped_one_does_not(values, changes, restart):
    plan = node_files_plan.plan(host(**values), PRESENT)
    assert (plan.gres_changes, plan.restart) == (changes, restart)


def test_a_restart_that_a_killed_run_did_not_do_is_done():
    first = host(active=True, invocation="i1")
    second = carried_out(first, node_files_plan.plan(first, PRESENT))
    killed = dataclasses.replace(second, marker="i1")
    assert node_files_plan.plan(killed, PRESENT).changes == ["restart slurmd.service"]
    assert node_files_plan.plan(dataclasses.replace(killed, invocation="i2"), PRESENT).changes == []


def test_a_change_of_the_drop_in_alone_needs_neither_drain_nor_restart():
    first = host(active=True, invocation="i1")
    second = dataclasses.replace(carried_out(first, node_files_plan.plan(first, PRESENT)), drop_in="old")
    plan = node_files_plan.plan(second, PRESENT)
    assert (list(plan.writes), plan.gres_changes, plan.restart, plan.daemon_reload) == (
        [owned.SLURMD_DROP_IN],
        False,
        False,
        True,
    )


@pytest.mark.parametrize(
    ("values", "request_", "message"),
    [
        ({"gres": "Name=gpu File=/dev/nvidia0\n"}, PRESENT, "already describes GPUs of node n1 (line 1)"),
        ({"gres": "\nNodeName=n[1-4] Name=gpu File=/dev/nvidia0\n"}, PRESENT, "(line 2)"),
        ({"gres": "NodeName=n3 AutoDetect=nvml\nNodeName=n[1-2] AutoDetect=nvml\n"}, PRESENT, "for node n1 (line 2)"),
        (
            {"gres": "NodeName=n1 AutoDetect=nvml\n", "detects": ("nvml",)},
            node_files_plan.SlurmRequest(detect="nvml"),
            "sets AutoDetect=nvml",
        ),
        ({"cgroup": "ConstrainDevices=no\n"}, PRESENT, "sets ConstrainDevices=no"),
        ({"detects": ("rsmi",)}, node_files_plan.SlurmRequest(detect="nvml"), "gpu_nvml.so is not installed"),
    ],
)
def test_what_the_user_must_decide_is_named_and_nothing_changes(values, request_, message):
    plan = node_files_plan.plan(host(**values), request_)
    assert any(message in problem for problem in plan.problems)
    assert (plan.writes, plan.changes, plan.gres_changes) == ({}, [], False)


def intel():
    nodes = [{"path": "/dev/dri/renderD128", "role": "render", "gid": 0}]
    return schema.device("intel", model="Max 1550", pci_address="0000:90:00.0", stable_id="i", nodes=nodes)


H100 = "NVIDIA H100 80GB HBM3"
# Values that cannot be used on the host, the variable that the message names, and the way out.
UNUSABLE = {
    "model that no device has": (
        {},
        {"types": {"Tesla T5": "small"}},
        "types names 'Tesla T5'",
        f"has the models '{H100}'",
    ),
    "one model of two": (
        {"devices": [*gpus(1), *gpus(1, "NVIDIA L4")]},
        {"types": {H100: "big", "L4": "small"}},
        "types names 'L4'",
        "'NVIDIA L4'. Correct",
    ),
    "model and generation": (
        {"devices": [{**one, "generation": "hopper"} for one in gpus()]},
        {"types": {"Tesla T5": "small"}},
        f"this host has the models '{H100}' and the generations 'hopper'. Correct",
        "set the types of all devices",
    ),
    "plugin of another vendor": (
        {"devices": [*gpus(1), intel()], "detects": ("nvml",)},
        {"detect": "nvml"},
        "detect=nvml detects only devices of nvidia",
        "also has devices of intel. Set gpu_slurm_node_detect to off",
    ),
    "type that no detected device has": (
        {"detects": ("nvml",)},
        {"detect": "nvml", "types": {H100: "big"}},
        f"types has big for '{H100}'",
        "part of the model's name",
    ),
    "directory": ({"has_directory": False}, {}, "/etc/slurm does not exist", "set gpu_slurm_node_directory"),
    "programs": ({"lacks_client": "/opt/s/scontrol"}, {}, "/opt/s/scontrol does not exist", "gpu_slurm_node_programs"),
}


@pytest.mark.parametrize(("values", "wanted", "message", "way_out"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_value_that_cannot_be_used_is_an_error_before_any_change(values, wanted, message, way_out):
    plan = node_files_plan.plan(host(**values), node_files_plan.SlurmRequest(**wanted))
    (problem,) = plan.problems
    assert message in problem
    assert way_out in problem
    assert (plan.writes, plan.changes) == ({}, [])


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        # Variables of a fleet also name the models of other hosts.
        ({}, {"types": {H100: "big", "Tesla T4": "small"}}),
        ({"devices": []}, {"types": {"Tesla T4": "small"}}),
        ({"detects": ("nvml",)}, {"detect": "nvml", "types": {H100: "h100_80gb"}}),
        ({"detects": ("newer",), "devices": [*gpus(1), intel()]}, {"detect": "newer"}),
        ({"has_directory": False, "slurm": None, "configless": True}, {}),
        ({"has_directory": False, "devices": []}, {}),
        ({"has_directory": False, "lacks_client": "/opt/s/scontrol"}, {"present": False, "types": {"x": "y"}}),
    ],
)
def test_values_that_fit_this_host_or_others_are_accepted(values, wanted):
    assert node_files_plan.plan(host(**values), node_files_plan.SlurmRequest(**wanted)).problems == []


@pytest.mark.parametrize("request_", [PRESENT, ABSENT])
def test_devices_do_not_change_under_jobs_that_nobody_can_see(request_):
    """slurmd runs, and the controller does not answer, so the node cannot be drained."""
    gres = "# BEGIN gpufleet n1 (x)\nNodeName=n1 Name=gpu Type=t4 File=/dev/nvidia9\n# END gpufleet n1\n"
    silent = host(gres=gres, unanswered="The controller does not answer.", active=True, invocation="i1")
    plan = node_files_plan.plan(silent, request_)
    assert "cannot be drained. The controller does not answer." in plan.problems[0]
    assert (plan.writes, plan.restart) == ({}, False)
    # Without slurmd, no job can run.
    assert node_files_plan.plan(dataclasses.replace(silent, active=False), request_).problems == []


# The words that Slurm accepts: SchedMD/slurm (284c3b95), src/common/parse_value.c. It uses the last of several lines.
@pytest.mark.parametrize(
    ("text", "is_on"),
    [
        *((f"ConstrainDevices={word}", True) for word in ("yes # ours", "YES", "true", "True", "1", "up", '"yes"')),
        *((f"ConstrainDevices={word}", False) for word in ("no", "false", "0", "down", "on", "y", "enabled", "11")),
        ("ConstrainDevices=no\nConstrainDevices=yes", True),
        ("ConstrainDevices=yes\nConstrainDevices=no", False),
    ],
)
def test_a_setting_that_exists_is_not_written_twice(text, is_on):
    plan = node_files_plan.plan(host(cgroup=f"{text}\n"), PRESENT)
    assert CGROUP not in plan.writes
    assert (plan.problems == []) is is_on


def test_two_blocks_of_ours_become_one():
    first = carried_out(host(gres="Name=nic\n"), node_files_plan.plan(host(gres="Name=nic\n"), PRESENT))
    block = first.texts["gres.conf"].removeprefix("Name=nic\n")
    twice = dataclasses.replace(first, texts={**first.texts, "gres.conf": f"{block}Name=nic\n{block}Name=x\n{block}"})
    plan = node_files_plan.plan(twice, PRESENT)
    assert (plan.writes, plan.gres_changes) == ({GRES: f"{block}Name=nic\nName=x\n"}, True)
    assert node_files_plan.plan(carried_out(twice, plan), PRESENT).writes == {}


def test_detection_by_a_plugin_and_against_one_for_all_nodes():
    plan = node_files_plan.plan(host(detects=("nvml",)), node_files_plan.SlurmRequest(detect="nvml"))
    assert plan.gres_lines == ["NodeName=n1 AutoDetect=nvml"]
    assert plan.node_gres == "gpu:h100:2"
    plan = node_files_plan.plan(host(gres="AutoDetect=nvml\n"), PRESENT)
    assert plan.gres_lines[0].startswith("NodeName=n1 AutoDetect=off Name=gpu")


@pytest.mark.parametrize("text", ["AutoDetect=off\n", "NodeName=n1 AutoDetect=off\n", "NodeName=n2 AutoDetect=nvml\n"])
def test_detection_that_is_off_or_of_another_node_does_not_matter(text):
    plan = node_files_plan.plan(host(gres=text), PRESENT)
    assert (plan.problems, plan.writes[GRES].startswith(text)) == ([], True)


def test_files_that_are_included_are_named():
    plan = node_files_plan.plan(host(gres="Include /etc/slurm/gpus.conf\n"), PRESENT)
    assert "includes other files" in plan.notes[0]
    assert plan.writes[GRES].startswith("Include /etc/slurm/gpus.conf\n# BEGIN gpufleet")


def test_a_node_without_files_of_its_own_is_told_what_the_controller_needs():
    plan = node_files_plan.plan(host(slurm=None, configless=True), PRESENT)
    assert list(plan.writes) == [owned.SLURMD_DROP_IN]
    assert "Add these lines to gres.conf there: NodeName=n1 Name=gpu" in plan.notes[0]


def test_a_host_without_accelerators_gets_no_file():
    plan = node_files_plan.plan(host([], hardware="NodeName=n1 CPUs=4"), PRESENT)
    assert (plan.writes, plan.node_line, plan.node_gres) == ({}, "NodeName=n1 CPUs=4", "")
