# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks and roles read facts from ansible_facts, because users may disable the injection of facts as variables."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TREE = Path(__file__).resolve().parents[3]
FACTS = (
    "nvidia_gpu_state",
    "nvidia_gpu_state_reason",
    "nvidia_gpus",
    "nvidia_pci_devices",
    "nvidia_nvswitches",
    "nvidia_topology",
)
# A fact name in a condition or template, except ansible_facts.NAME, keys and file names.
BARE = re.compile(rf"(?<![\w.'\"/`-])(?:{'|'.join(FACTS)})\b(?!['\"`:/])")


def yaml_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return (
        "\n".join(re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)) if path.suffix == ".md" else text
    )


FILES = [
    path
    for pattern in ("README.md", "docs/*.md", "playbooks/**/*.yml", "roles/**/*.yml", "roles/**/*.md")
    for path in sorted(TREE.glob(pattern))
]


def test_no_file_uses_an_injected_fact() -> None:
    assert len(FILES) > 100
    found = [(path.name, hit.group()) for path in FILES for hit in BARE.finditer(yaml_of(path))]
    assert found == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("that: nvidia_gpu_state == 'ready'", 1),
        ("loop: '{{ nvidia_gpus | list }}'", 1),
        ("that: ansible_facts.nvidia_gpu_state == 'ready'", 0),
        ("that: ansible_facts['nvidia_gpus']", 0),
    ],
)
def test_the_pattern_matches_only_injected_facts(text: str, count: int) -> None:
    assert len(BARE.findall(text)) == count


def test_the_driver_is_verified_without_injected_facts(tmp_path: Path) -> None:
    (verify,) = yaml.safe_load((TREE / "roles/nvidia_driver/tasks/verify.yml").read_text(encoding="utf-8"))
    tasks = verify["block"]
    names = ("Verify | Query the GPUs", "Verify | Verify that NVML responds or a reboot is required")
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [task for task in tasks if task["name"] in names]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    values = {
        "ansible_python_interpreter": sys.executable,
        "nvidia_driver_activate": True,
        "gpufleet_host": {"reboot_reasons": []},
    }
    argv = ["ansible-playbook", "-i", "localhost,", "-c", "local", "-e", json.dumps(values), str(tmp_path / "play.yml")]
    environment = {**os.environ, "ANSIBLE_INJECT_FACT_VARS": "false", "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local")}
    environment["ANSIBLE_REMOTE_TEMP"] = str(tmp_path / "remote")
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    output = done.stdout + done.stderr
    assert len(play["tasks"]) == 2
    # The result depends on the hardware of the test machine.
    assert done.returncode == 0 or "The driver is installed, but NVML does not respond (" in output, output
    assert "undefined" not in output
