# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from typing import ClassVar

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import last_proof_record
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.access_methods import AccessMethod
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.method_results import MethodResult, ProofResult
from ansible_collections.gpufleet.hosts.plugins.modules import gpu_container_proof

KEY = {"boot": "b1", "docker": "29.1.0"}
METHOD = AccessMethod("docker", "device_requests", gpus=True)
GOOD, BAD = (
    MethodResult(METHOD, ["GPU-1"], "passed"),
    MethodResult(METHOD, [], "not probed", "A container sees other GPUs."),
)


class Engines:
    """Engines of which only these answer. `events`: what happened to their containers and images."""

    names = ("docker",)
    installed = ("docker", "podman", "containerd")
    events: ClassVar[list[str]] = []

    def __init__(self, run):
        pass

    def obstacle(self, name):
        return None if name in self.names else f"{name} does not answer"

    def is_installed(self, name):
        return name in self.installed

    def client(self, name):
        class Client:
            def remove_containers(self):
                Engines.events.append(f"{name}: containers")

            def remove_images(self, keep=None):
                Engines.events.append(f"{name}: images")

        Client.name = name
        return Client()

    def offer(self, client, units):
        raise AssertionError("the test proves nothing")


class Ended(Exception):
    """The result of the module."""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the module with options. The proof has a given result, and records which engines it gets."""
    path = tmp_path / "record.json"
    monkeypatch.setattr(gpu_container_proof.owned, "CONTAINER_PROOF_RECORD", str(path))
    on_host = gpu_container_proof.engines_on_host
    for name in ("record_text", "write_record"):
        original = getattr(on_host, name)
        monkeypatch.setattr(on_host, name, lambda *text, original=original: original(*text, path=str(path)))
    monkeypatch.setattr(on_host, "locked", lambda original=on_host.locked: original(str(tmp_path / "lock")))
    monkeypatch.setattr(on_host, "ProofEngines", Engines)
    monkeypatch.setattr(Engines, "events", [])
    monkeypatch.setattr(gpu_container_proof, "is_root", lambda: True)
    monkeypatch.setattr(gpu_container_proof, "remove_abandoned", lambda: None)

    def start(check_mode=False, result=None, **options):
        proved = []

        def prove(clients, host, image, isolations, subject=None):
            proved.append([client.name for client in clients])
            assert (subject is None) is (options.get("accelerator", "nvidia") == "nvidia")
            # An interrupted proof leaves its key.
            if options.get("key"):
                assert last_proof_record.read(path.read_text()).passed is None
            return result or ProofResult([GOOD])

        class Module:
            def __init__(self, argument_spec, supports_check_mode):
                self.params = {name: options.get(name, spec.get("default")) for name, spec in argument_spec.items()}
                self.check_mode = check_mode

            def exit_json(self, **found):
                raise Ended({**found, "failed": False})

            def fail_json(self, **found):
                raise Ended({"changed": False, **found, "failed": True})

            def warn(self, text):
                Engines.events.append(f"warning: {text}")

        monkeypatch.setattr(gpu_container_proof, "AnsibleModule", Module)
        monkeypatch.setattr(gpu_container_proof.prove_methods, "prove", prove)
        with pytest.raises(Ended) as ended:
            gpu_container_proof.main()
        return {**ended.value.args[0], "proved": proved}

    start.path = path
    return start


def test_second_run_starts_nothing(run):
    first = run(key=KEY, engines=["docker"])
    assert (first["changed"], first["proved"]) == (True, [["docker"]])
    assert first["reason"] == "no proof has run yet"
    again = run(key=KEY, engines=["docker"])
    assert (again["changed"], again["proved"], again["methods"]) == (False, [], first["methods"])
    assert again["methods"][0]["command"] == "docker run --gpus all"
    later = run(key={**KEY, "boot": "b2"}, engines=["docker"])
    assert (later["changed"], later["reason"]) == (True, "the host was booted")


def test_failed_proof_is_recorded_and_repeated(run):
    result = ProofResult([BAD], {}, [BAD.problem])
    found = run(key=KEY, result=result)
    assert (found["failed"], found["msg"], found["problems"]) == (True, BAD.problem, [BAD.problem])
    assert last_proof_record.read(run.path.read_text()).problems == [BAD.problem]
    assert run(key=KEY)["reason"] == "the last proof failed"


@pytest.mark.parametrize(("state", "changed"), [("present", True), ("absent", False)])
def test_check_mode_starts_and_writes_nothing(run, state, changed):
    found = run(check_mode=True, key=KEY, state=state)
    assert (found["changed"], found["proved"], run.path.exists(), Engines.events) == (changed, [], False, [])


def test_proof_without_a_key_leaves_nothing(run):
    found = run()
    assert (found["changed"], run.path.exists(), Engines.events) == (False, False, ["docker: images"])


def test_neuron_chips_are_proved_without_a_record(run, monkeypatch):
    monkeypatch.setattr(
        gpu_container_proof.neuron_chips, "ProofChips", lambda vendor, run_program: (vendor.name, run_program)
    )
    found = run(accelerator="neuron")
    assert (found["failed"], found["changed"], found["proved"]) == (False, False, [["docker"]])
    assert (run.path.exists(), Engines.events) == (False, ["docker: images"])


@pytest.mark.parametrize("option", [{"key": KEY}, {"image": "site/tools:1"}])
def test_options_of_nvidia_are_refused_for_other_accelerators(run, option):
    found = run(accelerator="neuron", **option)
    assert (found["failed"], found["proved"]) == (True, [])
    assert found["msg"] == f"Option {next(iter(option))} requires accelerator=nvidia. Remove it."


@pytest.mark.parametrize(
    ("accelerator", "isolations", "refused"),
    [
        ("neuron", ["cdi", "devices", "runtime"], None),
        (
            "neuron",
            ["cdi", "volume"],
            "isolations=volume does not exist for accelerator=neuron. Use cdi, devices, runtime.",
        ),
        ("nvidia", ["cdi", "device_requests", "runtime", "volume"], None),
        (
            "nvidia",
            ["devices"],
            "isolations=devices does not exist for accelerator=nvidia. Use device_requests, runtime, cdi, volume.",
        ),
    ],
)
def test_each_accelerator_has_its_isolations(run, monkeypatch, accelerator, isolations, refused):
    monkeypatch.setattr(gpu_container_proof.neuron_chips, "ProofChips", lambda vendor, run_program: vendor.name)
    found = run(accelerator=accelerator, isolations=isolations)
    assert found.get("msg") == refused
    assert found["proved"] == ([] if refused else [["docker"]])


def test_absent_removes_record_containers_and_images(run):
    run(key=KEY)
    assert run(state="absent", check_mode=True)["changed"] is True
    assert run(state="absent")["changed"] is True
    assert (run.path.exists(), Engines.events) == (False, ["docker: containers", "docker: images"])
    assert run(state="absent")["changed"] is False


def test_absent_keeps_the_record_while_an_engine_may_have_the_image(run, monkeypatch):
    monkeypatch.setattr(Engines, "names", ("docker", "podman"))
    run(key={**KEY, "podman": "5.4.2"})
    monkeypatch.setattr(Engines, "names", ("podman",))
    found = run(state="absent")
    assert found["failed"] is True
    assert found["msg"] == (
        "The image of the proof cannot be removed from docker: docker does not answer. Start docker and try again. To "
        f"leave the image localhost/gpufleet-container-proof in docker, delete {run.path}."
    )
    assert (run.path.exists(), Engines.events) == (True, [])
    monkeypatch.setattr(Engines, "names", ("docker", "podman"))
    assert run(state="absent")["changed"] is True
    assert "docker: images" in Engines.events


@pytest.mark.parametrize(
    ("answering", "installed", "text"),
    [
        # The proof did not use Podman.
        (("docker",), ("docker", "podman"), None),
        # The engine was removed, and its images with it.
        ((), ("podman",), None),
        # A damaged record does not say which engines the proof used.
        (("docker",), ("docker", "podman"), "{"),
        ((), (), "{"),
    ],
)
def test_absent_ignores_an_engine_without_the_image(run, monkeypatch, answering, installed, text):
    run(key=KEY)
    monkeypatch.setattr(Engines, "names", answering)
    monkeypatch.setattr(Engines, "installed", installed)
    if text is not None:
        run.path.write_text(text, encoding="utf-8")
    failed = bool(text and installed)
    assert (run(state="absent")["failed"], run.path.exists()) == (failed, failed)


@pytest.mark.parametrize(
    ("names", "requested", "expected"),
    [
        (("docker", "podman", "containerd"), [], ["docker", "podman"]),
        (("containerd",), [], ["containerd"]),
        (("docker", "podman"), ["podman"], ["podman"]),
    ],
)
def test_engines_that_are_proved(run, monkeypatch, names, requested, expected):
    monkeypatch.setattr(Engines, "names", names)
    assert run(engines=requested, key=KEY)["proved"] == [expected]


@pytest.mark.parametrize(
    ("answering", "requested", "message"),
    [
        (("docker",), ["podman"], "in a container of podman: podman does not answer"),
        ((), ["docker", "podman"], "in a container of docker: docker does not answer"),
        (("podman",), ["docker", "podman"], "in a container of docker: docker does not answer"),
        ((), [], "no engine answers (docker: docker does not answer; podman:"),
    ],
)
def test_engine_that_does_not_answer_is_an_error(run, monkeypatch, answering, requested, message):
    monkeypatch.setattr(Engines, "names", answering)
    assert message in run(engines=requested, key=KEY)["msg"]


def test_broken_podman_beside_another_engine_is_a_warning(run):
    found = run(engines=["docker", "podman"], key={**KEY, "podman": "5.4.2"})
    assert (found["failed"], found["proved"]) == (False, [["docker"]])
    assert Engines.events == ["warning: The proof in a container of podman was skipped: podman does not answer."]


def test_containerd_without_its_client_is_a_warning(run, monkeypatch):
    monkeypatch.setattr(Engines, "names", ())
    monkeypatch.setattr(Engines, "installed", ())
    found = run(engines=["containerd"], key=KEY)
    assert (found["failed"], found["methods"], found["proved"]) == (False, [], [])
    assert Engines.events == ["warning: The proof in a container was skipped: containerd does not answer."]
    assert json.loads(run.path.read_text())["passed"] is True
