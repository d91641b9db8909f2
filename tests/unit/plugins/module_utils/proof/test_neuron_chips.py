# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof for AWS Neuron's chips: the containers of each engine, and what they must see."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import gather_all_vendors
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.neuron.vendor import NeuronVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import (
    neuron_chips,
    program_in_container,
    prove_methods,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.proof.test_prove_methods import (
    NO_BUILD,
    FakeEngine,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.neuron_trees import INF2, TRN2, NeuronTree

CDI = ("/etc/cdi",)
CDI_DEVICES = " ".join(f"--device gpufleet-neuron/gpu={number}" for number in range(3))
HOOK = {"neuron": "/opt/aws/neuron/bin/oci_neuron_hook_wrapper.sh"}


def answer(*numbers, error=None, shift=0):
    """Return what the program prints for chips with these numbers."""
    found = [
        {"path": f"/dev/neuron{number}", "device": os.makedev(510, number + shift), "error": error}
        for number in numbers
    ]
    return f"a line of the hook\n{program_in_container.MARK}{json.dumps(found)}\n"


def vendor(tmp_path, generation=INF2, count=3, **first):
    tree = NeuronTree(tmp_path)
    tree.bus(generation, count)
    for number in range(count):
        tree.chip(generation, **(first if number == 0 else {}))
    return NeuronVendor(lambda: gather_all_vendors.gather(dict, root=str(tmp_path), vendors=["neuron"]), str(tmp_path))


def specification(tmp_path, count):
    devices = [
        {"name": str(number), "containerEdits": {"deviceNodes": [{"path": f"/dev/neuron{number}"}]}}
        for number in range(count)
    ]
    path = tmp_path / "etc/cdi/gpufleet-neuron.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "gpufleet-neuron/gpu", "devices": devices}))


def proved(found, outputs, host_output="", *, engine="docker", state=None, build=None):
    """Run the proof with an engine whose containers print the outputs."""

    def image():
        if build:
            raise build
        return prove_methods.ProofImage("localhost/x:1", ("/usr/bin/python3", "-c", "text"), "/tmp/image.tar")

    client = FakeEngine(engine, outputs)
    client.argv = []
    run = client.run
    client.run = lambda method, image, argv: (client.argv.append(argv), run(method, image, argv))[1]
    subject = neuron_chips.ProofChips(found, lambda *options: (0, host_output or answer(0, 1, 2)))
    state = state or EngineState(engine, "20.10.24")
    host = prove_methods.ProofHost(
        lambda *options: (1, ""), image, lambda _client, units: neuron_chips.offered(found, state, units), ""
    )
    return prove_methods.prove([client], host, "", (), subject), client


@pytest.mark.parametrize(
    ("state", "commands"),
    [
        (
            EngineState("docker", "20.10.24"),
            ["docker run --device /dev/neuron0 --device /dev/neuron1 --device /dev/neuron2"],
        ),
        (
            EngineState("docker", "28.3.3", cdi_dirs=CDI, runtimes=HOOK),
            [
                f"docker run {CDI_DEVICES}",
                "docker run --device /dev/neuron0 --device /dev/neuron1 --device /dev/neuron2",
                "docker run --runtime neuron --env AWS_NEURON_VISIBLE_DEVICES=0,1,2",
            ],
        ),
        (
            EngineState("podman", "4.3.1", cdi_dirs=CDI, runtimes=HOOK),
            [
                f"podman run {CDI_DEVICES}",
                "podman run --device /dev/neuron0 --device /dev/neuron1 --device /dev/neuron2",
            ],
        ),
        (
            EngineState("containerd", "1.6.20", cdi_dirs=CDI),
            ["ctr run --device /dev/neuron0 --device /dev/neuron1 --device /dev/neuron2"],
        ),
    ],
    ids=["old docker", "docker with CDI and the hook", "podman", "old containerd"],
)
def test_every_way_of_an_engine_is_proved(tmp_path, state, commands):
    specification(tmp_path, 3)
    result, client = proved(vendor(tmp_path), [answer(0, 1, 2)] * 3, engine=state.name, state=state)
    assert result.problems == []
    assert [method["command"] for method in result.methods()] == commands
    assert {(len(method["devices"]), method["check"], method["passed"]) for method in result.methods()} == {
        (3, "passed", True)
    }
    assert {argv[-2:] for argv in client.argv} == {("--nodes", "neuron")}


@pytest.mark.parametrize(
    ("output", "texts"),
    [
        (
            answer(0, 1),
            ["sees 2 of 3 AWS Neuron chips. Expected: /dev/neuron0, /dev/neuron1, /dev/neuron2. Seen: /dev/neuron0"],
        ),
        (answer(), ["sees 0 of 3 AWS Neuron chips.", "Seen: none."]),
        (answer(0, 1, 2, 3), ["sees 4 of 3 AWS Neuron chips."]),
        # The same number of other chips.
        (answer(1, 2, 3), ["sees 3 of 3 AWS Neuron chips.", "Seen: /dev/neuron1, /dev/neuron2, /dev/neuron3."]),
        (answer(0, 1, 2, shift=1), ["has another device as /dev/neuron0."]),
        (
            answer(0, 1, 2, error="Operation not permitted"),
            ["sees the chips but cannot open /dev/neuron0, /dev/neuron1, /dev/neuron2: Operation not permitted."],
        ),
        (answer(0, 1, 2, error="Permission denied"), ["run 'setsebool -P container_use_devices on'."]),
        ("python3: not found", ["fails: the program ended with exit status 0: python3: not found."]),
        (prove_methods.StartError("no such device"), ["does not start: no such device. Expected: /dev/neuron0"]),
    ],
)
def test_a_container_that_does_not_see_the_chips_fails(tmp_path, output, texts):
    result, _client = proved(vendor(tmp_path), [output])
    (problem,) = result.problems
    assert [text for text in texts if text not in problem] == []
    assert result.methods()[0]["passed"] is False


def test_a_simulated_host_has_nodes_that_nobody_can_open(tmp_path):
    output = answer(0, 1, 2, error="No such device or address")
    result, _client = proved(vendor(tmp_path), [output], output)
    assert (result.problems, result.methods()[0]["passed"]) == ([], True)
    assert result.methods()[0]["check"] == "not probed: /dev/neuron0 cannot be opened on the host, either"


def test_a_lost_chip_is_not_expected(tmp_path):
    found = vendor(tmp_path, reset="2\n")
    result, _client = proved(found, [answer(1, 2)])
    assert result.problems == []
    assert result.methods()[0]["command"] == "docker run --device /dev/neuron1 --device /dev/neuron2"


def test_sixteen_chips_are_given_in_their_order(tmp_path):
    numbers = answer(*range(16))
    result, _client = proved(vendor(tmp_path, TRN2, 16), [numbers], numbers)
    assert result.problems == []
    assert result.methods()[0]["command"].split()[2:] == [
        word for number in range(16) for word in ("--device", f"/dev/neuron{number}")
    ]


def test_a_host_without_usable_chips_starts_no_container(tmp_path):
    found = NeuronVendor(lambda: gather_all_vendors.gather(dict, root=str(tmp_path), vendors=["neuron"]), str(tmp_path))
    result, client = proved(found, [])
    (problem,) = result.problems
    assert "no usable AWS Neuron chip (state no_hardware)" in problem
    assert client.events == []


def test_an_image_that_cannot_be_built_names_no_variable_of_nvidia(tmp_path):
    result, _client = proved(vendor(tmp_path), [], build=NO_BUILD)
    assert result.problems == [
        f"No image for the proof in a container of docker: {NO_BUILD}. To verify without containers, set "
        "verify_container to false."
    ]


def test_the_program_lists_nodes_by_name_and_opens_them(tmp_path):
    for name in ("neuron0", "neuron10", "neuron_x", "nvme0"):
        os.mkfifo(tmp_path / name)
    found = program_in_container.nodes("neuron", str(tmp_path))
    assert [one["path"] for one in found] == [str(tmp_path / "neuron0"), str(tmp_path / "neuron10")]
    # Nobody reads the pipe, so it cannot be opened for writing. Reading would succeed.
    assert {one["error"] for one in found} == {"No such device or address"}
