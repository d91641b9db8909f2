# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page about the migration answers every question that the REST API of nvidia-docker 1.0 answered."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import probe_gpu_checks
from ansible_collections.gpufleet.hosts.plugins.modules import gpu_container, nvidia_cuda_probe, nvidia_gpu_facts
from ansible_collections.gpufleet.hosts.tests.pages import run as pages_run

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/migration.md").read_text(encoding="utf-8")
REST = pages_run.section(PAGE, "The REST API of nvidia-docker 1.0")
# The routes and the fields of their answers: NVIDIA/nvidia-docker at v1.0.1, src/nvidia-docker-plugin/remote_v1.go and
# src/nvml/nvml.go.
ROUTES = ("/docker/cli", "/docker/cli/json", "/gpu/info", "/gpu/info/json", "/gpu/status", "/gpu/status/json")
ROUTES += ("/mesos/cli",)
_INFO = "UUID Path Model Power CPUAffinity PCI.BusID PCI.BAR1 PCI.Bandwidth Clocks.Cores Clocks.Memory "
_INFO += "Topology[].BusID Topology[].Link Family Arch Cores Memory.ECC Memory.Global Memory.Shared Memory.Constant "
_INFO += "Memory.L2Cache Memory.Bandwidth"
_STATUS = "Power Temperature Utilization.GPU Utilization.Memory Utilization.Encoder Utilization.Decoder "
_STATUS += "Memory.GlobalUsed Memory.ECCErrors.L1Cache Memory.ECCErrors.L2Cache Memory.ECCErrors.Global Clocks.Cores "
_STATUS += "Clocks.Memory PCI.BAR1Used PCI.Throughput.RX PCI.Throughput.TX Processes[].PID Processes[].Name "
_STATUS += "Processes[].MemoryUsed"
FIELDS = {
    "/gpu/info": ["Version.Driver", "Version.CUDA", *(f"Devices[].{name}" for name in _INFO.split())],
    "/gpu/status": [f"Devices[].{name}" for name in _STATUS.split()],
    "/docker/cli": ["dev", "vol", "VolumeDriver", "Volumes", "Devices", "invalid device: X", "invalid volume: X"],
}


def rows(text: str) -> dict[str, str]:
    """Return the second cell of each row of the tables, by the first one without backticks."""
    cells = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {first.strip(" `"): rest[0] for first, *rest in cells}


def part(route: str) -> str:
    found = re.search(rf"^### {re.escape(route)}\n(.*?)(?=^##|\Z)", REST, re.MULTILINE | re.DOTALL)
    assert found, f"The page has no section {route}"
    return found.group(1)


def returned(tree: dict[str, Any], name: str) -> bool:
    """Return whether a module returns a value with this name, such as `gpus[].attributes`."""
    for key in name.replace("[]", "").split("."):
        if key not in tree:
            return False
        tree = tree[key].get("contains", {})
    return True


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_has_an_answer(route: str) -> None:
    answer = rows(REST).get(route, "")
    assert answer.strip(), f"{route} is not in the table"


@pytest.mark.parametrize("route", ["/gpu/info", "/gpu/status"])
def test_every_value_has_its_place_today(route: str) -> None:
    answers = rows(part(route))
    facts = yaml.safe_load(nvidia_gpu_facts.RETURN)["ansible_facts"]["contains"]
    probe = yaml.safe_load(nvidia_cuda_probe.RETURN)
    probe["gpus"]["contains"]["attributes"]["contains"] = {name: {} for name in probe_gpu_checks.ATTRIBUTES}
    for field in FIELDS[route]:
        names = re.findall(r"`([^`]+)`", answers[field])
        assert names, field
        assert [name for name in names if not returned(facts, name) and not returned(probe, name)] == [], field


def test_every_argument_and_error_of_docker_cli_has_its_place_today() -> None:
    text = part("/docker/cli")
    firsts = " ".join(rows(text))
    assert [word for word in FIELDS["/docker/cli"] if word not in firsts] == []
    options = gpu_container.argument_spec()
    named = {name for name in re.findall(r"`(\w+): [^`]*`", text) if name.islower()}
    assert named >= {"gpus", "isolation", "libraries"}
    assert named - set(options) == set()


def test_topology_is_translated_into_the_words_of_the_facts() -> None:
    topology = yaml.safe_load(nvidia_gpu_facts.RETURN)["ansible_facts"]["contains"]["nvidia_topology"]["contains"]
    words = re.findall(r"V\((\w+)\)", topology["pcie"]["description"])
    (row,) = (line for line in part("/gpu/info").splitlines() if "Topology[].Link" in line)
    assert [word for word in words if word != "self" and f"`{word}`" not in row] == []
