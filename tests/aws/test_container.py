# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbook aws_container against a local API: on which hosts it acts, and when it terminates the instance.

The instance is this machine. Module gpu_container, Docker, and the playbooks dlami and verify are replaced.
"""

from __future__ import annotations

import os
import shutil
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.tests.aws.local_api import (
    NEURON_DLAMI,
    ROOT,
    UBUNTU_DLAMI,
    Api,
    Result,
    ansible,
    with_credentials,
)

REGION = "us-east-1"
PARAMETER = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
NEURON_PARAMETER = "/aws/service/neuron/dlami/base/ubuntu-24.04/latest/image_id"
COMMAND = "gpufleet.hosts.aws_terminate -e aws_instance_region=us-east-1 -e aws_instance_name=gpu-test"
VARIABLES = {
    "aws_instance_region": REGION,
    "aws_instance_name": "gpu-test",
    "aws_instance_type": "g6.xlarge",
    "aws_instance_key_name": "me",
    "aws_container_image": "registry.example/cuda",
    "ansible_connection": "local",
    "ansible_become": "false",
    "ansible_python_interpreter": sys.executable,
}
# A host and a group of the user, whose names begin as a group of earlier versions did.
INVENTORY = """\
all:
  children:
    aws_instances: {hosts: {other: {}}}
    aws_instances_of_mine: {hosts: {aws_instances_2: {}}}
"""
PLAY = """\
- hosts: "{{ gpufleet_target | gpufleet.hosts._site_target(groups, ansible_play_hosts_all) }}"
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
"""
MODULE = """\
from ansible.module_utils.basic import AnsibleModule

options = {name: {"type": "raw"} for name in ("name", "image", "command", "engine", "gpus")}
AnsibleModule(argument_spec=options).exit_json(changed=True)
"""

Run = t.Callable[..., Result]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the collection and an inventory. All tests use it, so that they share a process of Ansible."""
    directory = tmp_path_factory.mktemp("container")
    collection = directory / "ansible_collections" / "gpufleet" / "hosts"
    modules, playbooks = collection / "plugins" / "modules", collection / "playbooks"
    for path in (modules, playbooks, directory / "bin"):
        path.mkdir(parents=True)
    for name in ("meta", "galaxy.yml", "plugins/filter", "plugins/module_utils", "plugins/plugin_utils"):
        (collection / name).symlink_to(ROOT / name)
    for source in (ROOT / "playbooks").glob("aws_*.yml"):
        shutil.copy(source, playbooks)
    for name in ("dlami", "verify"):
        (playbooks / f"{name}.yml").write_text(PLAY)
    (modules / "gpu_container.py").write_text(MODULE)
    (directory / "inventory.yml").write_text(INVENTORY)
    return directory


@pytest.fixture
def run(api: Api, directory: Path) -> Run:
    """Run aws_container. `gpus`: the number of GPUs in the container. `chips`: that of AWS Neuron chips."""
    api.put_public_parameter(REGION, PARAMETER, api.images[REGION, UBUNTU_DLAMI])
    api.put_public_parameter(REGION, NEURON_PARAMETER, api.images[REGION, NEURON_DLAMI])
    docker = directory / "bin" / "docker"

    def start(gpus: int = 1, chips: int | None = None, **more: str) -> Result:
        if chips is None:
            docker.write_text(f"#!/bin/sh\nseq -f 'GPU %.0f: NVIDIA L4' {gpus}\n")
        else:
            docker.write_text(
                f'#!/bin/sh\n[ "$3 $4" = "ls /dev" ] || exit 1\necho null\nseq -f neuron%.0f 0 {chips - 1}\n'
            )
        docker.chmod(0o755)
        variables = [word for name, value in {**VARIABLES, **more}.items() for word in ("-e", f"{name}={value}")]
        return ansible(
            "ansible-playbook",
            "-i",
            str(directory / "inventory.yml"),
            "gpufleet.hosts.aws_container",
            *variables,
            **with_credentials(api.url),
            ANSIBLE_COLLECTIONS_PATH=str(directory),
            PATH=f"{docker.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        )

    return start


def _states(api: Api) -> list[str]:
    return [instance["State"]["Name"] for instance in api.instances(REGION)]


def test_an_instance_of_this_run_is_terminated_and_no_other_host_is_used(run: Run, api: Api) -> None:
    done = run()
    assert done.rc == 0, done.text
    assert _states(api) == ["terminated"]
    recap = done.text.partition("PLAY RECAP")[2]
    assert ("localhost" in recap, "other" in recap, "aws_instances" in recap) == (True, False, False)


def test_an_instance_of_an_earlier_run_is_kept(run: Run, api: Api) -> None:
    kept = run(aws_container_keep="true")
    assert (kept.rc, _states(api)) == (0, ["running"]), kept.text
    assert "in us-east-1 is kept because of aws_container_keep. It costs money until you terminate it:" in kept.text
    assert kept.text.count(COMMAND) == 2

    again = run()
    assert (again.rc, _states(api)) == (0, ["running"]), again.text
    assert "(gpu-test) in us-east-1 is kept because it existed before this run. It costs money" in again.text


def test_an_instance_with_a_failed_task_is_kept(run: Run, api: Api) -> None:
    failed = run(gpus=0)
    assert (failed.rc, _states(api)) == (2, ["running"]), failed.text
    assert "The container sees 0 GPUs, but g6.xlarge has 1." in failed.text


def test_the_chips_of_an_inf2_instance_are_counted(run: Run, api: Api) -> None:
    done = run(chips=6, aws_instance_type="inf2.24xlarge")
    assert done.rc == 0, done.text
    assert _states(api) == ["terminated"]
    failed = run(chips=1, aws_instance_type="inf2.24xlarge", aws_instance_name="second")
    assert failed.rc == 2, failed.text
    assert "The container sees 1 chips, but inf2.24xlarge has 6." in failed.text
