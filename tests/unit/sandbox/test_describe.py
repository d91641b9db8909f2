# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Descriptions of hosts: their state, and the messages for invalid ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from ansible_collections.gpufleet.hosts.tests.unit.sandbox.gpusim_module import gpusim
from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import SIMULATOR, describe


def state_of(description: dict, host: str = "host") -> dict:
    """Return the state as a dictionary."""
    return gpusim.parse_state(describe.render(description, host)[1])


def test_the_same_host_gets_the_same_gpus():
    description = {"gpus": [{"model": "H100-SXM5-80GB", "count": 8}]}
    assert describe.render(description, "a") == describe.render(description, "a")
    assert state_of(description, "a")["gpu.0.uuid"] != state_of(description, "b")["gpu.0.uuid"]


@pytest.mark.parametrize("model", sorted(describe.models()))
def test_every_model_can_be_described(model):
    rendered, text = describe.render({"gpus": [{"model": model, "count": 2}]}, "host")
    state = gpusim.parse_state(text)
    assert state["gpu.count"] == "2"
    for key in ("uuid", "name", "minor", "memory.total", "power.limit", "clock.max.sm", "compute_capability"):
        assert state[f"gpu.1.{key}"], key
    addresses = [function["address"] for function in rendered["pci"] if function["files"]["vendor"] == "0x10de"]
    assert state["gpu.0.pci.bus_id"] in addresses
    used, reserved, total = (int(state[f"gpu.0.memory.{key}"]) for key in ("used", "reserved", "total"))
    assert used + reserved < total


@pytest.mark.parametrize("model", [name for name, model in describe.models().items() if "mig" in model])
def test_every_mig_profile_fits_up_to_its_maximum(model):
    for profile, shape in describe.models()[model]["mig"].items():
        layout = [profile] * shape[5]
        state = state_of({"gpus": [{"model": model, "mig": layout}]})
        assert sum(key.endswith(".gi") for key in state) == shape[5], profile
        with pytest.raises(describe.DescriptionError, match="does not fit"):
            state_of({"gpus": [{"model": model, "mig": [*layout, profile]}]})


def test_gpus_are_numbered_in_pci_order():
    state = state_of(
        {
            "gpus": [
                {"model": "T4", "pci": "0000:af:00.0", "minor": 0},
                {"model": "L4", "pci": "0000:3b:00.0", "minor": 1},
            ]
        }
    )
    assert [state[f"gpu.{gpu}.name"] for gpu in range(2)] == ["NVIDIA L4", "Tesla T4"]
    assert [state[f"gpu.{gpu}.minor"] for gpu in range(2)] == ["1", "0"]


def test_nvswitches_and_other_functions_are_on_the_pci_bus():
    rendered, _text = describe.render(
        {
            "gpus": [{"model": "A100-SXM4-40GB", "count": 8}],
            "nvswitches": 6,
            "pci": [
                {"address": "0000:d8:00.0", "vendor": 0x1D0F, "device": 0x7064, "class": 0x088000, "driver": "neuron"}
            ],
        },
        "host",
    )
    classes = [function["files"]["class"] for function in rendered["pci"] if function["files"]["vendor"] == "0x10de"]
    assert (classes.count("0x030200"), classes.count("0x068000")) == (8, 6)
    neuron = next(function for function in rendered["pci"] if function["files"]["vendor"] == "0x1d0f")
    assert neuron["driver"] == "neuron"
    assert neuron["files"]["modalias"] == "pci:v00001D0Fd00007064sv00001D0Fsd00000000bc08sc80i00"


def test_a_card_with_display_outputs_has_an_audio_function():
    rendered, _text = describe.render({"gpus": [{"model": "RTX-4090"}]}, "host")
    assert [(f["address"], f["files"]["class"]) for f in rendered["pci"] if f["files"]["vendor"] == "0x10de"] == [
        ("0000:07:00.0", "0x030000"),
        ("0000:07:00.1", "0x040300"),
    ]


def test_compute_instances_share_a_gpu_instance():
    state = state_of({"gpus": [{"model": "A100-SXM4-40GB", "mig": ["1c.3g.20gb", "2c.3g.20gb", "3g.20gb"]}]})
    ids = [
        [state[f"gpu.0.mig.{mig}.{key}"] for key in ("gi", "ci", "ci_slices", "gi_cap", "ci_cap")] for mig in range(3)
    ]
    assert ids == [["1", "0", "1", "12", "13"], ["1", "1", "2", "12", "14"], ["2", "0", "3", "21", "22"]]


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ({"gpu": []}, "host here: unknown key gpu; known are accelerators, check_nodes, cpus,"),
        (
            {"gpus": [{"model": "A1000"}]},
            "host here, gpus[0]: unknown model 'A1000'; known are A100-PCIE-40GB, A100-SXM4",
        ),
        ({"gpus": [{}]}, "unknown model None"),
        ({"gpus": ["T4"]}, "host here, gpus[0]: expected a mapping, found 'T4'"),
        ({"gpus": [{"model": "T4", "count": 0}]}, "count must be a number from 1 to 64, found 0"),
        ({"gpus": [{"model": "T4", "count": 2, "uuid": "GPU-1"}]}, "uuid of 2 GPUs must be a list"),
        ({"gpus": [{"model": "T4", "count": 2, "uuid": ["GPU-1", "GPU-1"]}]}, "two GPUs have the same uuid: GPU-1"),
        ({"gpus": [{"model": "T4", "pci": "3b:00.0"}]}, "pci must look like 0000:3b:00.0, found '3b:00.0'"),
        ({"gpus": [{"model": "T4", "mig": True}]}, "T4 has no MIG"),
        ({"gpus": [{"model": "A30", "mig": ["1g.5gb"]}]}, "unknown MIG profile '1g.5gb'; known are 1g.6gb, 1g.6gb+me"),
        ({"gpus": [{"model": "A30", "mig": {"mode": False, "devices": ["1g.6gb"]}}]}, "but mig.mode is off"),
        ({"gpus": [{"model": "A100-SXM4-40GB", "mig": ["4g.20gb", "4g.20gb"]}]}, "4g.20gb, 4g.20gb does not fit"),
        ({"gpus": [{"model": "A100-SXM4-40GB", "mig": ["4c.3g.20gb"]}]}, "wants more compute slices than 3g.20gb has"),
        ({"gpus": [{"model": "T4", "health": "ill"}]}, "unknown health 'ill'; known are ecc_errors,"),
        ({"gpus": [{"model": "T4"}], "faults": [{"call": "nvmlInit"}]}, "faults[0]: say what the call does"),
        ({"gpus": [{"model": "T4"}], "faults": [{"return": "LOST"}]}, "unknown return code 'LOST'; known are SUCCESS,"),
        ({"gpus": [{"model": "T4"}], "faults": [{"gpu": 1, "return": 1}]}, "there is no GPU 1, the host has 1"),
        ({"gpus": [{"model": "T4"}], "faults": [{"call": "init", "return": 1}]}, "found 'init'"),
        ({"gpus": [{"model": "T4"}], "faults": {}}, "`faults` must be a list"),
        ({"gpus": [{"model": "T4"}], "nvswitches": 7}, "nvswitches must be a number from 0 to 6, found 7"),
        ({"gpus": [{"model": "H200", "count": 2}], "fabric": "done"}, "unknown fabric state 'done'; known are"),
        ({"pci": [{"address": "0000:01:00.0"}]}, "pci[0]: vendor, device, class missing"),
        ({"set": ["a=b"]}, "`set` must be a mapping"),
        ({"driver": {"versoin": "1"}}, "driver: unknown key versoin"),
    ],
)
def test_an_invalid_description_is_refused(description, words):
    with pytest.raises(describe.DescriptionError, match=re.escape(words)):
        describe.render(description, "here")


def test_the_command_writes_a_host(tmp_path):
    (tmp_path / "host.yml").write_text("gpus: [{model: T4}]\n")
    command = [
        sys.executable,
        str(SIMULATOR / "describe.py"),
        "sim-t4",
        str(tmp_path / "host.yml"),
        str(tmp_path / "out"),
    ]
    subprocess.run(command, check=True)
    assert json.loads((tmp_path / "out" / "host.json").read_text())["host"] == "sim-t4"
    (tmp_path / "host.yml").write_text("gpus: [{model: T5}]\n")
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "host.yml: host sim-t4, gpus[0]: unknown model 'T5'" in done.stderr
