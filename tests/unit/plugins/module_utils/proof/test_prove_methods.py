# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a container saw, and the conclusion of the proof, with engines that answer from the test."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import method_results, prove_methods
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.access_methods import AccessMethod, Offer
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.program_in_container import MARK
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.proof_containers import StartError
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.proof_image import ImageError
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import MIG_UUIDS, UUIDS

GPUS_METHOD, CDI_METHOD = (
    AccessMethod("docker", "device_requests", gpus=True),
    AccessMethod("docker", "cdi", cdi_devices=("n/g=all",)),
)
PASSED = {"passed": True, "error": None, "codes": [None], "missing": False}
BUSY = {"passed": False, "error": "cuCtxCreate: CUDA_ERROR_OUT_OF_MEMORY (2)", "codes": [2], "missing": False}
BROKEN = {"passed": False, "error": "cuInit: CUDA_ERROR_UNKNOWN (999)", "codes": [999], "missing": False}
ABSENT = {"passed": False, "error": "cuInit: CUDA_ERROR_NO_DEVICE (100).", "codes": [100], "missing": False}
MISSING = {"passed": False, "error": "libcuda.so.1 has no function cuInit", "codes": [None], "missing": True}
NO_LIBRARY = {"passed": False, "error": "libcuda.so.1 could not be loaded", "codes": [None], "missing": True}


def answer(*uuids: str, cuda=None, error=None, mig=()) -> str:
    """Return the output of the program. The first GPU has the MIG devices."""
    gpus = [{"uuid": uuid, "index": index, "minor": index, "mig": None} for index, uuid in enumerate(uuids)]
    if mig:
        gpus[0]["mig"] = [{"uuid": uuid, "index": index, "gi": 1, "ci": 0} for index, uuid in enumerate(mig)]
    found = {"gpus": gpus, "error": error, **({"cuda": cuda} if cuda else {})}
    return f"a line of the hook\n{MARK}{json.dumps(found)}\n"


SMI = f"GPU 0: NVIDIA A100 (UUID: {UUIDS[0]})\nGPU 1: NVIDIA A100 (UUID: {UUIDS[1]})\n"
SMI_MIG = f"GPU 0: A100 (UUID: {UUIDS[0]})\n  MIG 1g.5gb     Device  0: (UUID: {MIG_UUIDS[0]})\n"


@pytest.mark.parametrize(
    ("status", "output", "expected"),
    [
        (0, answer(*UUIDS[:2]), UUIDS[:2]),
        (0, answer(*UUIDS[:2], mig=MIG_UUIDS), sorted([*MIG_UUIDS, UUIDS[1]])),
        (0, SMI, UUIDS[:2]),
        (0, SMI_MIG, MIG_UUIDS[:1]),
        # nvidia-smi prints GPUs before it fails.
        (15, SMI, []),
        (127, "sh: nvidia-smi: not found", []),
    ],
)
def test_uuids_of_the_output(status, output, expected):
    assert method_results.read(status, output).uuids() == expected


def test_output_without_gpus_is_quoted():
    error = method_results.read(127, "sh: exec: line 4:\n nvidia-smi: not found").error
    assert error == "the program ended with exit status 127: sh: exec: line 4: nvidia-smi: not found"
    assert method_results.read(137, "").error.endswith("exit status 137: no output")


def evaluated(output: str, host_cuda=None, expected: str = "") -> method_results.MethodResult:
    seen, wanted = method_results.read(0, output), method_results.read(0, expected or answer(*UUIDS[:2]))
    return method_results.evaluate(GPUS_METHOD, wanted, seen, lambda: host_cuda)


@pytest.mark.parametrize(
    ("output", "host_cuda", "cuda"),
    [
        (answer(*reversed(UUIDS[:2]), cuda=PASSED), None, "passed"),
        (answer(*UUIDS[:2], cuda=MISSING), MISSING, "not probed: the host has no usable libcuda"),
        (answer(*UUIDS[:2], cuda=BUSY), None, "not probed: other programs use the GPUs"),
        (answer(*UUIDS[:2], cuda=ABSENT), ABSENT, "not probed: CUDA finds no device on the host, either"),
        (SMI, None, "not probed: the image has no Python"),
    ],
)
def test_method_is_proved(output, host_cuda, cuda):
    found = evaluated(output, host_cuda)
    assert (found.problem, found.devices) == (None, UUIDS[:2])
    assert found.check.startswith(cuda)


@pytest.mark.parametrize(
    ("output", "host_cuda", "texts"),
    [
        (
            answer(UUIDS[0], cuda=PASSED),
            None,
            [
                "A container of 'docker run --gpus all' does not see the same GPUs as the host.",
                f"Expected: {UUIDS[0]}, {UUIDS[1]}. Seen: {UUIDS[0]}.",
                "Check the journal of docker.service",
            ],
        ),
        (answer(*UUIDS[:3], cuda=PASSED), None, ["does not see the same GPUs", f"Seen: {', '.join(UUIDS[:3])}."]),
        (
            answer(error="nvmlInit_v2: Unknown Error (999)"),
            None,
            ["fails: nvmlInit_v2: Unknown Error (999).", "Seen: no GPU"],
        ),
        (answer(*UUIDS[:2], cuda=ABSENT), PASSED, ["cannot compute: cuInit: CUDA_ERROR_NO_DEVICE (100)."]),
        # The host can compute, the container cannot.
        (answer(*UUIDS[:2], cuda=NO_LIBRARY), PASSED, ["cannot compute: libcuda.so.1 could not be loaded."]),
        (answer(*UUIDS[:2], cuda=BROKEN), BROKEN, ["CUDA also fails on the host: cuInit: CUDA_ERROR_UNKNOWN (999)."]),
    ],
)
def test_failed_method_says_what_was_seen_and_what_to_look_at(output, host_cuda, texts):
    problem = evaluated(output, host_cuda).problem
    assert [text for text in texts if text not in problem] == []


def test_gpu_in_mig_mode_without_devices_is_not_expected():
    expected = answer(*UUIDS[:2], mig=())
    empty = json.loads(expected.split(MARK)[1])
    empty["gpus"][0]["mig"] = []
    assert evaluated(SMI, expected=f"{MARK}{json.dumps(empty)}").problem is None


class FakeEngine:
    """An engine whose containers print the given outputs."""

    def __init__(self, name: str = "docker", outputs=(), images=()):
        self.name, self.outputs, self.images = name, list(outputs), set(images)
        self.events: list[str] = []

    def has_image(self, name):
        return name in self.images

    def load(self, path):
        self.events.append(f"load {path}")
        self.images.add(BUILT.name)

    def run(self, method, image, argv):
        self.events.append(f"run {method.isolation} {image} {argv[0]}")
        output = self.outputs.pop(0)
        if isinstance(output, Exception):
            raise output
        return 0, output

    def remove_containers(self):
        self.events.append("clean")

    def remove_images(self, keep=None):
        self.events.append(f"keep {keep}")


BUILT = prove_methods.ProofImage("localhost/x:1", ("/usr/bin/python3", "-c"), "/tmp/image.tar")
BOTH = answer(*UUIDS[:2], cuda=PASSED)


def proved(
    engines, *, image="", isolations=(), methods=(GPUS_METHOD, CDI_METHOD), obstacles=None, host_output=BOTH, build=None
):
    def fail():
        raise build

    host = prove_methods.ProofHost(
        run_program=lambda *options: (0, host_output),
        build=fail if build else lambda: BUILT,
        offer=lambda client, units: Offer(tuple(methods), obstacles or {}),
        program="text",
    )
    return prove_methods.prove(engines, host, image, isolations)


def test_every_method_gets_a_container_in_one_image():
    one, two = FakeEngine("docker", [BOTH, BOTH]), FakeEngine("podman", [BOTH, BOTH])
    result = proved([one, two])
    assert result.problems == []
    assert one.events == [
        "clean",
        "load /tmp/image.tar",
        "keep localhost/x:1",
        "run device_requests localhost/x:1 /usr/bin/python3",
        "run cdi localhost/x:1 /usr/bin/python3",
    ]
    assert [method["passed"] for method in result.methods()] == [True] * 4
    assert result.methods()[0]["command"] == "docker run --gpus all"


def test_failed_method_does_not_hide_the_others():
    engine = FakeEngine(outputs=[StartError("could not select device driver"), answer(UUIDS[0])])
    result = proved([engine])
    first, second = result.problems
    assert "docker run --gpus all' does not start: could not select device driver." in first
    assert "docker run --device n/g=all' does not see the same GPUs" in second


NO_BUILD = ImageError("/usr/bin/python3 cannot be copied into an image: /usr/lib/x: No such file")


@pytest.mark.parametrize(
    ("engine", "image", "expected"),
    [
        (
            "docker",
            "site/tools:1",
            "no engine has the image site/tools:1, and the proof uses no registry. Load the image with 'docker pull' "
            "or 'docker load', or remove the variable to build one on the host. To run",
        ),
        (
            "podman",
            "",
            f"{NO_BUILD}. Load an image that has sh with 'podman load' and set nvidia_container_toolkit_proof_image to "
            "its name. To run",
        ),
        # The proof uses no other image in containerd.
        ("containerd", "", f"{NO_BUILD}. To run"),
        ("containerd", "site/tools:1", f"{NO_BUILD}. To run"),
    ],
)
def test_missing_image_is_an_error_that_names_the_ways_out(engine, image, expected):
    found = FakeEngine(engine)
    (problem,) = proved([found], image=image, build=NO_BUILD).problems
    assert problem == (
        f"No image for the proof in a container of {engine}: {expected} without the proof, use --skip-tags "
        "container_proof."
    )
    assert found.events == ["clean"]


def test_image_of_the_user_runs_with_sh():
    engine = FakeEngine(outputs=[SMI, SMI], images=["site/tools:1"])
    assert proved([engine], image="site/tools:1").problems == []
    assert engine.events == ["clean", "run device_requests site/tools:1 sh", "run cdi site/tools:1 sh"]


def test_engine_without_the_image_of_the_user_gets_the_built_one():
    """On Enterprise Linux, Podman is often installed beside Docker, and nobody loads images into it."""
    one, two = FakeEngine("docker", [SMI], ["site/tools:1"]), FakeEngine("podman", [BOTH])
    assert proved([one, two], image="site/tools:1", methods=[CDI_METHOD]).problems == []
    assert one.events == ["clean", "run cdi site/tools:1 sh"]
    assert two.events[-1] == "run cdi localhost/x:1 /usr/bin/python3"


def test_image_that_no_engine_has_is_one_error():
    one, two = FakeEngine("docker"), FakeEngine("podman")
    (problem,) = proved([one, two], image="site/tools:1").problems
    assert "in a container of docker and podman: no engine has the image site/tools:1" in problem


def test_image_that_cannot_be_built_for_one_engine_can_be_loaded_there():
    one, two = FakeEngine("docker", [SMI], ["site/tools:1"]), FakeEngine("podman")
    (problem,) = proved([one, two], image="site/tools:1", methods=[CDI_METHOD], build=NO_BUILD).problems
    assert f"of podman: {NO_BUILD}. Load site/tools:1 with 'podman pull' or 'podman load'. To run" in problem


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            {"host_output": answer(error="nvmlInit_v2: Driver Not Loaded (9)")},
            "on the host, nvmlInit_v2: Driver Not Loaded",
        ),
        ({"host_output": answer()}, "on the host, NVML shows no GPU"),
        (
            {"methods": (), "obstacles": {"cdi": "no specification"}},
            "No container can get the GPUs of this host: docker cdi: no",
        ),
        (
            {"methods": (GPUS_METHOD,), "obstacles": {"cdi": "CDI is disabled"}, "isolations": ["cdi"]},
            "Isolation cdi is required but not available: CDI is disabled.",
        ),
    ],
)
def test_host_that_cannot_prove_its_gpus_is_an_error(more, text):
    (problem,) = proved([FakeEngine(outputs=[BOTH])], **more).problems
    assert text in problem
