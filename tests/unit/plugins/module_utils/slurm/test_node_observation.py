# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of Slurm is read, and its files are written."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import (
    file_writing_order,
    node_files_plan,
    node_observation,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.node_drain_and_resume import SlurmError
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.slurm.test_node_files_plan import (
    ABSENT,
    PRESENT,
    SLURM_CONF,
    gpus,
)


@pytest.mark.parametrize("name", ["gpu-[1-2]", "a,b", "DEFAULT x"])
def test_a_name_of_several_nodes_stops_also_before_slurm_is_installed(tmp_path, name):
    with pytest.raises(SlurmError, match="not the name of one Slurm node"):
        node_observation.observe(Programs(), gpus(), node=name, directory="/etc/slurm", root=str(tmp_path))


class Programs:
    def __init__(self, **answers):
        self.answers = answers

    def __call__(self, argv, **_options):
        argv = argv[3:] if argv[0] == "timeout" else argv
        return self.answers.get(argv[0], (127, "", f"{argv[0]} is not installed"))


def test_a_host_is_read_and_its_files_are_written(tmp_path):
    (tmp_path / "etc/slurm").mkdir(parents=True)
    (tmp_path / "etc/slurm/slurm.conf").write_text(SLURM_CONF)
    shared = tmp_path / "shared.conf"
    shared.write_text("Name=nic\n")
    shared.chmod(0o640)
    (tmp_path / "etc/slurm/gres.conf").symlink_to(shared)
    plugin = tmp_path / "usr/lib/x86_64-linux-gnu/slurm-wlm/gpu_nvml.so"
    plugin.parent.mkdir(parents=True)
    plugin.touch()
    (plugin.parent / "gpu_generic.so").touch()
    run = Programs(
        systemctl=(0, "ActiveState=active\nInvocationID=i1\nNeedDaemonReload=no\n", ""),
        slurmd=(0, "NodeName=other CPUs=4 Gres=gpu:x:1\nUpTime=0-01:00:00\n", ""),
        scontrol=(1, "", "Node n1 not found"),
    )

    unknown = Programs(**{**run.answers, "scontrol": (1, "", "Unable to contact slurm controller (host not found)")})
    silent = node_observation.observe(unknown, gpus(), node="n1", directory="/etc/slurm", root=str(tmp_path))
    assert "Unable to contact" in silent.unanswered

    def read(**values):
        values = {"node": "n1", "directory": "/etc/slurm", **values}
        return node_observation.observe(run, gpus(), root=str(tmp_path), **values)

    first = read()
    assert (first.detects, first.active, first.node, first.unanswered) == (("nvml",), True, None, None)
    assert first.hardware == "NodeName=n1 CPUs=4"
    assert (first.has_directory, read(directory="/etc/slrum").has_directory) == (True, False)
    assert read(programs="/opt/slurm/bin").lacks_client == "/opt/slurm/bin/scontrol"
    plan = node_files_plan.plan(first, PRESENT)
    file_writing_order.write(plan, first, str(tmp_path))
    assert shared.read_text().startswith("Name=nic\n# BEGIN gpufleet n1")
    assert (shared.stat().st_mode & 0o777, (tmp_path / "etc/slurm/gres.conf").is_symlink()) == (0o640, True)
    second = read()
    assert node_files_plan.plan(second, PRESENT).changes == ["restart slurmd.service"]
    removal = node_files_plan.plan(second, ABSENT)
    file_writing_order.write(removal, second, str(tmp_path))
    assert shared.read_text() == "Name=nic\n"
    assert not (tmp_path / "etc/slurm/cgroup.conf").exists()
    assert not (tmp_path / "etc/systemd/system/slurmd.service.d").exists()
