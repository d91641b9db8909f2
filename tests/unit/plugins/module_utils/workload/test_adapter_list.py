# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The adapters of module gpu_workload: what they read, stop and start."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import UnavailableEngine
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload import (
    adapter_list,
    adapter_options,
    containers_with_gpus_of_any_vendor,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_protocol import WorkloadError
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.docker_and_podman_adapter import ContainerWorkload
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_begin_end_and_owner import WorkloadDrain
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_record import (
    WorkloadRecord,
    WorkloadRecords,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins import gpu_hosts
from ansible_collections.gpufleet.hosts.tests.unit.plugins.neuron_trees import TRN2, NeuronTree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.process_tree import ProcessTree


class Programs:
    """Programs with prepared answers by the start of their command line, without the time limit."""

    def __init__(self, answers):
        self.answers, self.calls, self.environments = answers, [], []

    def __call__(self, argv, environment=None, stdin=None):
        argv = argv[3:] if argv[0] == "timeout" else argv
        line = " ".join(argv)
        self.calls.append(line)
        self.environments.append(environment)
        return next((answer for start, answer in self.answers.items() if line.startswith(start)), (0, "", ""))


def build(name, options, answers):
    programs = Programs(answers)
    return adapter_list.build(name, options, adapter_list.WorkloadTools(programs)), programs


def test_every_adapter_has_options_and_a_builder():
    assert set(adapter_options.OPTIONS) == set(adapter_list._BUILDERS)


def shown_state(active, load="loaded"):
    return (0, f"LoadState={load}\nActiveState={active}\n", "")


def test_systemd_stops_and_starts_only_the_units_that_run():
    answers = {
        "systemctl show --property=LoadState,ActiveState a.service": shown_state("active"),
        "systemctl show --property=LoadState,ActiveState b.timer": shown_state("inactive"),
        "systemctl show --property=LoadState,ActiveState c.service": shown_state("deactivating"),
        "systemctl show --property=LoadState,ActiveState d.service": shown_state("failed"),
    }
    units, programs = build("systemd", {"units": ["a", "b.timer", "c.service", "d.service"]}, answers)
    view = units.view()
    assert view.work == ("unit a.service (active)", "unit c.service (deactivating)")
    assert (view.stoppable, view.closed) == (("a.service",), False)
    units.stop(view.stoppable)
    assert units.start(("a.service",)) == []
    changes = [call for call in programs.calls if " show " not in call]
    assert changes == ["systemctl stop --no-block -- a.service", "systemctl start -- a.service"]
    assert units.gaps


@pytest.mark.parametrize(
    ("units", "answer", "message"),
    [
        (["*"], None, "Patterns are not supported"),
        (["-x"], None, "-x names no unit"),
        ([], None, "An empty list"),
        (["a.service"], shown_state("inactive", "not-found"), "no unit a.service"),
        (["a.service"], (1, "", "System has not been booted with systemd"), "not been booted"),
    ],
)
def test_systemd_names_what_is_wrong(units, answer, message):
    with pytest.raises(WorkloadError, match=message):
        build("systemd", {"units": units}, {"systemctl show": answer})[0].view()


def test_systemd_reports_a_unit_that_does_not_start():
    answers = {"systemctl show": shown_state("inactive"), "systemctl start": (1, "", "Job failed\nSee x")}
    units, _programs = build("systemd", {"units": ["a.service"]}, answers)
    with pytest.raises(WorkloadError, match=r"start a.service failed: Job failed See x"):
        units.start(("a.service",))


def test_a_stopped_unit_that_was_removed_meanwhile_does_not_keep_the_others_stopped():
    show = "systemctl show --property=LoadState,ActiveState"
    answers = {f"{show} a.service": shown_state("inactive", "not-found"), f"{show} b.service": shown_state("inactive")}
    units, programs = build("systemd", {"units": ["b.service"]}, answers)
    assert units.start(("a.service", "b.service")) == [
        "Unit a.service was stopped and no longer exists, so it was not started."
    ]
    assert programs.calls[-1] == "systemctl start -- b.service"
    assert "no longer exists" in units.start(("a.service",))[0]
    assert programs.calls[-1].startswith(show)


def test_systemd_does_not_wait_forever_for_a_unit_that_has_no_time_limit():
    run = []

    def late(argv, **_options):
        if argv[0] != "timeout":
            return shown_state("inactive")
        run.append(argv[:3])
        return (124, "", "")

    units = adapter_list.build("systemd", {"units": ["a.service"]}, adapter_list.WorkloadTools(late))
    with pytest.raises(WorkloadError, match=r"start a.service did not end within 600 seconds"):
        units.start(("a.service",))
    assert run == [["timeout", "--kill-after=5", "600"]]


NODE = """NodeName=n1 Arch=x86_64
   State={state} ThreadsPerCore=1
   Reason={reason} [root@2026-11-28T14:00:00]
"""


def slurm(state="IDLE+DRAIN", reason="bad disk", jobs=""):
    answers = {"squeue": (0, jobs, ""), "scontrol show": (0, NODE.format(state=state, reason=reason), "")}
    return build("slurm", {"node": "n1"}, answers)


def test_slurm_shows_the_reason_of_somebody_else_on_one_harmless_line():
    view = slurm(reason="bad\x1b[2J disk\x07")[0].view()
    assert (view.closed, view.reason, view.author) == (True, "bad\\x1b[2J disk\\x07", "root")


@pytest.mark.parametrize(
    ("state", "jobs", "work"),
    [
        ("MIXED+DRAIN", "7 alice RUNNING\n", ("job 7 of alice (RUNNING)",)),
        # squeue no longer shows a job whose epilog runs.
        ("IDLE+COMPLETING+DRAIN", "", ("a job that ends",)),
        ("ALLOCATED+DRAIN", "", ("a job that ends",)),
        ("IDLE+DRAIN", "", ()),
        ("DOWN*+DRAIN", "", ()),
    ],
)
def test_slurm_waits_also_for_jobs_that_end(state, jobs, work):
    assert slurm(state, jobs=jobs)[0].view().work == work


def test_a_reason_is_one_argument_of_scontrol():
    adapter, programs = slurm()
    adapter.close("gpufleet: $(reboot); x")
    assert programs.calls == ["scontrol update NodeName=n1 State=DRAIN Reason=gpufleet: $(reboot); x"]


def test_the_programs_of_slurm_can_be_in_a_directory_of_their_own():
    adapter, programs = build("slurm", {"node": "n1", "programs": "/opt/slurm/bin"}, {})
    adapter.close("gpufleet: x")
    assert programs.calls == ["/opt/slurm/bin/scontrol update NodeName=n1 State=DRAIN Reason=gpufleet: x"]


COMMAND = {"view": ["/opt/view", "x y"], "close": ["/opt/close"], "reopen": ["/opt/reopen"], "environment": {"A": 1}}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((0, "ignored\njob\n", ""), (False, "", ())),
        ((10, "gpufleet: x\njob\n", ""), (True, "gpufleet: x", ())),
        ((10, "", ""), (True, "", ())),
        ((75, "gpufleet: x\njob 1\n\njob\x1b2\n", ""), (True, "gpufleet: x", ("job 1", "job\\x1b2"))),
        ((75, "gpufleet: x\n", ""), (True, "gpufleet: x", ("work that the program does not name",))),
    ],
)
def test_command_reads_the_exit_status_and_the_lines(answer, expected):
    view = build("command", COMMAND, {"/opt/view": answer})[0].view()
    assert (view.closed, view.reason, view.work) == expected


def test_command_passes_the_reason_and_the_environment_without_a_shell():
    command, programs = build("command", COMMAND, {})
    command.view()
    command.close("gpufleet: $(x)")
    command.reopen()
    assert programs.calls == ["/opt/view x y", "/opt/close", "/opt/reopen"]
    assert programs.environments == [{"A": "1"}, {"A": "1", "GPUFLEET_REASON": "gpufleet: $(x)"}, {"A": "1"}]


@pytest.mark.parametrize(
    ("answer", "message"),
    [((1, "", "no token"), "exit status 1 and not 0 or 10 or 75: no token"), ((124, "", ""), "within 60 seconds")],
)
def test_command_reports_a_program_that_fails(answer, message):
    with pytest.raises(WorkloadError, match=message):
        build("command", COMMAND, {"/opt/view": answer})[0].view()


class Engine:
    name = "docker"

    def __init__(self, states):
        self.states, self.calls = states, []

    def containers(self):
        return [{"Id": one, "State": {"Running": state == "running"}} for one, state in self.states.items()]

    def stop_container(self, identifier):
        self.calls.append(f"stop {identifier}")

    def start_container(self, identifier):
        if identifier == "broken":
            raise EngineError("port is in use")
        self.calls.append(f"start {identifier}")


def listed(engine):
    return [{"engine": "docker", "id": one, "name": f"name-{one}", "state": state} for one, state in engine.items()]


@pytest.mark.parametrize("stops", [False, True])
def test_containers_are_stopped_only_if_the_user_allows_it(stops):
    states = {"a": "running", "b": "exited", "c": "paused", "d": "created"}
    view = ContainerWorkload(Engine(states), lambda: listed(states), stops=stops).view()
    assert view.work == ("container name-a (running)", "container name-c (paused)")
    assert view.stoppable == (("a", "c") if stops else ())


def test_containers_start_again_unless_they_run_or_are_gone():
    engine = Engine({"a": "exited", "b": "running"})
    missing = ContainerWorkload(engine, list, stops=True).start(("a", "b", "gone"))
    assert engine.calls == ["start a"]
    assert ["gone" in sentence for sentence in missing] == [True]


@pytest.mark.parametrize("engine", ["docker", "podman"])
@pytest.mark.parametrize("verb", ["end", "abort"])
def test_a_drain_does_not_end_while_the_engine_of_its_stopped_containers_is_not_running(tmp_path, engine, verb):
    records = WorkloadRecords(str(tmp_path))
    records.write(WorkloadRecord("fleet", engine, "update", 0, 60, stopped=("abcdef",)))
    adapter = ContainerWorkload(UnavailableEngine(engine, f"{engine} is not running"), list, stops=True)
    with pytest.raises(WorkloadError, match=f"abcdef cannot be started again: {engine} is not running"):
        getattr(WorkloadDrain(adapter, records, "fleet"), verb)()
    assert records.read().stopped == ("abcdef",)


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_a_drain_that_stopped_nothing_ends_without_its_engine(tmp_path, engine):
    records = WorkloadRecords(str(tmp_path))
    records.write(WorkloadRecord("fleet", engine, "update", 0, 60))
    adapter = ContainerWorkload(UnavailableEngine(engine, "not running"), list, stops=True)
    WorkloadDrain(adapter, records, "fleet").end()
    assert records.read() is None


def test_a_container_that_does_not_start_is_named():
    engine = Engine({"broken": "exited"})
    with pytest.raises(WorkloadError, match="broken: port is in use"):
        ContainerWorkload(engine, list, stops=True).start(("broken",))


def test_an_engine_that_is_not_running_has_no_work():
    def containers():
        raise AssertionError("a query would start the engine")

    view = ContainerWorkload(UnavailableEngine("docker", "not running"), containers, stops=True).view()
    assert (view.work, view.closed) == ((), False)


def test_containers_with_accelerators_of_another_vendor_are_work(tmp_path):
    tree = NeuronTree(tmp_path)
    tree.host(TRN2, 2)
    ProcessTree(tmp_path)
    made = [gpu_hosts.container(name) for name in ("train", "web")]
    made[0]["HostConfig"]["Devices"] = [{"PathOnHost": "/dev/neuron1", "PathInContainer": "/dev/neuron1"}]
    engine = gpu_hosts.Engine(gpu_hosts.docker("28.3.3"), made)

    def run(_argv, **_options):
        raise AssertionError("the GPUs of NVIDIA were read")

    found = containers_with_gpus_of_any_vendor.lister(engine, run, None, str(tmp_path))()
    assert [one["name"] for one in found] == ["train"]
