# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that Slurm has given to jobs are held, also while no process uses them."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import slurm_jobs
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Gpu, Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.plan_result import PlanError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.slurm_jobs import JobsUnknown
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.container import test_planner

# The fixture of the planner's tests.
case = test_planner.case
NODE = os.uname().nodename.partition(".")[0]
GRES_CONF = (
    "NodeName={node} Name=gpu Type=a100 File=/dev/nvidia[0-1]\nNodeName={node} Name=gpu Type=t4 File=/dev/nvidia2\n"
)
JOB = """JobId={job} JobName=wrap
   UserId=alice(1000) GroupId=alice(1000) MCS_label=N/A
   JobState=RUNNING Reason=None Dependency=(null)
     Nodes={node} CPU_IDs=0 Mem=0 GRES={gres}
"""
GPUS = [Gpu(index, f"GPU-{index}", nodes=frozenset({f"/dev/nvidia{index}"})) for index in range(3)]
INVENTORY = SimpleNamespace(units=[Unit(gpu.uuid, gpu, nodes=gpu.nodes) for gpu in GPUS])


class Slurm:
    """Slurm's commands. `gres` of a job, `node_gres` of this node."""

    def __init__(self, gres="gpu:t4:1(IDX:2)", node_gres="gpu:a100:2,gpu:t4:1", failure=None, node=NODE):
        self.gres, self.node_gres, self.failure, self.node, self.calls = gres, node_gres, failure, node, []

    def __call__(self, argv, **_options):
        self.calls.append(" ".join(argv))
        if self.failure:
            return self.failure
        if "job" in argv:
            return 0, JOB.format(job=7, node=self.node, gres=self.gres) if self.gres else "No jobs in the system", ""
        return 0, f"NodeName={self.node}\n   Gres={self.node_gres}\n   State=MIXED\n", ""


def slurmd(root, *arguments, gres_conf=GRES_CONF, node=NODE):
    process = root / "proc/4711"
    process.mkdir(parents=True)
    (process / "comm").write_text("slurmd\n")
    (process / "cmdline").write_bytes(b"\0".join([b"/usr/sbin/slurmd", b"-D", *(one.encode() for one in arguments)]))
    if gres_conf is not None:
        (root / "etc/slurm").mkdir(parents=True)
        (root / "etc/slurm/gres.conf").write_text(gres_conf.format(node=node))
    return str(root)


@pytest.mark.parametrize(
    ("slurm", "gres_conf", "expected"),
    [
        (Slurm(), GRES_CONF, ["GPU-2"]),
        (Slurm("gpu:a100:2(IDX:0-1)"), GRES_CONF, ["GPU-0", "GPU-1"]),
        # slurmd numbers the types in the order of the node's Gres.
        (Slurm("gpu:t4:1(IDX:0)", "gpu:t4:1,gpu:a100:2"), GRES_CONF, ["GPU-2"]),
        (Slurm(""), GRES_CONF, None),
        (Slurm("gpu:a100:1"), GRES_CONF, ["GPU-0", "GPU-1", "GPU-2"]),
        (Slurm(), "AutoDetect=nvml\n", ["GPU-0", "GPU-1", "GPU-2"]),
        (Slurm(), None, ["GPU-0", "GPU-1", "GPU-2"]),
        (Slurm("gpu:t4:1(IDX:5)"), GRES_CONF, ["GPU-0", "GPU-1", "GPU-2"]),
    ],
)
def test_a_job_holds_its_gpus_or_all_if_slurm_does_not_tell_which(tmp_path, slurm, gres_conf, expected):
    found = slurm_jobs.find(slurm, INVENTORY, slurmd(tmp_path, gres_conf=gres_conf))
    assert [sorted(one.uuids) for one in found] == ([] if expected is None else [expected])
    assert all(one.exclusive and str(one).startswith("slurm job 7 of user alice") for one in found)
    assert all("--kill-after=2 5 " in call for call in slurm.calls)


def test_a_mig_device_of_a_job_is_not_its_neighbor(tmp_path):
    gpu = Gpu(0, "GPU-0", nodes=frozenset({"/dev/nvidia0"}))
    caps = [
        frozenset({f"/dev/nvidia-caps/nvidia-cap{number}", f"/dev/nvidia-caps/nvidia-cap{number + 1}"})
        for number in (21, 30)
    ]
    units = [Unit(f"MIG-{number}", gpu, number, nodes=nodes) for number, nodes in enumerate(caps)]
    lines = [
        f"Name=gpu Type=m{number} MultipleFiles=/dev/nvidia0,{','.join(sorted(nodes))}"
        for number, nodes in enumerate(caps)
    ]
    inventory = SimpleNamespace(units=units)
    slurm = Slurm("gpu:m1:1(IDX:1)", "gpu:m0:1,gpu:m1:1")
    (found,) = slurm_jobs.find(slurm, inventory, slurmd(tmp_path, gres_conf="\n".join(lines)))
    assert found.uuids == {"MIG-1"}


def test_a_host_without_slurmd_or_gpus_is_not_asked(tmp_path):
    slurm = Slurm()
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/comm").write_text("slurmctld\n")
    assert slurm_jobs.find(slurm, INVENTORY, str(tmp_path)) == []
    assert slurm_jobs.find(slurm, SimpleNamespace(units=[]), slurmd(tmp_path / "other")) == []
    assert slurm.calls == []


@pytest.mark.parametrize("options", [("-N", "other"), ("-Nother",)])
def test_the_name_of_the_node_is_that_of_slurmd(tmp_path, options):
    slurm = Slurm(node="other")
    (found,) = slurm_jobs.find(slurm, INVENTORY, slurmd(tmp_path, *options, node="other"))
    assert found.uuids == {"GPU-2"}


def silent(_inventory):
    raise JobsUnknown("Slurm does not answer.")


def job_on_first_gpu(inventory):
    return [slurm_jobs.Holder("7", "slurm", frozenset({inventory.units[0].uuid}), exclusive=True, kind="job")]


def test_exclusive_fails_without_an_answer_and_a_shared_gpu_gets_a_warning(case):
    with pytest.raises(PlanError, match=r"Slurm does not answer\. A job may hold any GPU"):
        case.plan(gpus=1, exclusive=True, jobs=silent)
    plan = case.plan(gpus=1, jobs=silent)
    assert any("Slurm does not answer" in warning for warning in plan["gpu_assignment"]["warnings"])


def test_gpus_of_jobs_are_not_assigned(case):
    plan = case.plan(gpus=1, exclusive=True, jobs=job_on_first_gpu)
    assert plan["gpu_assignment"]["uuids"] == [test_planner.UUIDS[1]]
    assert case.plan(gpus=3, jobs=job_on_first_gpu)["gpu_assignment"]["uuids"] == list(test_planner.UUIDS[1:4])
    with pytest.raises(Exception, match="slurm job 7"):
        case.plan(gpus=4, exclusive=True, jobs=job_on_first_gpu)
