# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver is verified even if a user disables the injection of facts as variables. Molecule tests other roles."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import yaml

from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run

TREE = Path(__file__).resolve().parents[3]


def test_the_driver_is_verified_without_injected_facts(tmp_path: Path) -> None:
    (verify,) = yaml.safe_load((TREE / "roles/nvidia_driver/tasks/verify.yml").read_text(encoding="utf-8"))
    tasks = verify["block"]
    names = ("Verify | Query the GPUs", "Verify | Verify that NVML responds or a reboot is required")
    # Without libraries, NVML does not respond on any test machine.
    next(task for task in tasks if task["name"] == names[0])["gpufleet.hosts.nvidia_gpu_facts"] = {
        "driver_root": str(tmp_path)
    }
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [task for task in tasks if task["name"] in names]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    values = {
        "ansible_python_interpreter": sys.executable,
        "nvidia_driver_activate": True,
        "gpufleet_host": {"reboot_reasons": []},
    }
    argv = ["ansible-playbook", "-i", "localhost,", "-c", "local", "-e", json.dumps(values), str(tmp_path / "play.yml")]
    environment = {**os.environ, "ANSIBLE_INJECT_FACT_VARS": "false"}
    done = ansible_run.run(argv, env=environment)
    output = done.stdout + done.stderr
    assert len(play["tasks"]) == 2
    assert done.returncode == 2, output
    assert re.search(r"The driver is installed, but NVML does not respond \(\w+\): \w+", output), output
