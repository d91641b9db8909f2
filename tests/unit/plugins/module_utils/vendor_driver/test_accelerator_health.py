# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What playbook verify says about AMD GPUs."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import (
    accelerator_health,
    cdi_specification_check,
    vendor_differences,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins import amd_hosts
from ansible_collections.gpufleet.hosts.tests.unit.plugins.amd_trees import MI300X, AmdTree

ID = "e3a9c0ffee123456"
PATH = "/var/run/cdi/gpufleet-amd.json"


def converged(root, **gpu):
    tree = AmdTree(root)
    tree.gpu("0000:05:00.0", 128, MI300X, unique_id=ID, mode="SPX", **gpu)
    host = json.loads(json.dumps(amd_hosts.observed(tree.root)))
    host["files"][owned.ACCELERATOR_CDI_PROGRAMS["amd"]] = {"exists": True, "content": "x", "mode": "0644"}
    host["services"][vendor_differences.AMD.service] = {"load_state": "loaded", "unit_file_state": "enabled"}
    nodes = {"": [], **cdi_specification_check.expected(vendor_differences.observed(host, vendor_differences.AMD)[0])}
    host["accelerator_specs"] = [{"path": PATH, "kind": "gpufleet-amd/gpu", "ours": True, "digest": "", "nodes": nodes}]
    return host


def without_program(host):
    host["files"][owned.ACCELERATOR_CDI_PROGRAMS["amd"]]["exists"] = False
    host["accelerator_specs"] = []


def old(host):
    host["accelerator_specs"][0]["nodes"]["7"] = ["/dev/kfd", "/dev/dri/renderD135"]


def lost(host):
    host["accelerators"]["amd"]["record"]["texts"]["/sys/bus/pci/devices/0000:05:00.0/config"] = "\u00ff" * 4


def unloaded(host):
    record = host["accelerators"]["amd"]["record"]
    record["names"] = []
    record["texts"] = {}
    group = host["accelerators"]["amd"]
    group["devices"][0]["kernel_driver"] = None
    group["module"]["kernels"] = [host["kernel"]["running"]]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda host: None, []),
        (without_program, []),
        (lambda host: host.update(accelerator_specs=[]), [f"the CDI specification {PATH} does not exist"]),
        (old, [f"the CDI specification {PATH} is stale: it names 7, which no longer exists"]),
        (
            lambda host: host["services"]["gpufleet-amd-cdi.service"].update(unit_file_state="disabled"),
            ["gpufleet-amd-cdi.service is not enabled"],
        ),
        (lost, ["the AMD GPUs cannot be used (state error): KFD shows 1 GPU, but none is usable."]),
        (unloaded, ["the AMD GPUs cannot be used (state driver_not_loaded)"]),
        (lambda host: host["accelerators"].update(amd=None), []),
    ],
)
def test_each_problem_is_named_once_with_its_remedy(tmp_path, change, expected):
    host = converged(tmp_path / "root")
    change(host)
    found = accelerator_health.problems(host)
    assert len(found) == len(expected), found
    assert all(text.startswith(start) for text, start in zip(found, expected)), found


def test_an_engine_that_cannot_read_the_specification_is_a_note(tmp_path):
    host = converged(tmp_path / "root")
    assert accelerator_health.notes(host) == []
    host["engines"] = {"docker": {"version": "20.10.24", "info": {"cdi_spec_dirs": []}}}
    (note,) = accelerator_health.notes(host)
    assert note.startswith("Docker 20.10.24 has no CDI devices")
