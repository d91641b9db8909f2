# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module calls of one plan, their order and arguments, and the result of the task."""

from __future__ import annotations

import json
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.hosts.plugins.action import gpu_host_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_report as site_report
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_text, registry
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import host_program, host_python
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import remove_package
from ansible_collections.gpufleet.hosts.tests.unit.plugins.site_samples import (
    FACTS,
    PERSISTENCED,
    VERSION,
    bare,
    converged,
    file,
    offered,
    prediction,
    running,
)

OBSERVE = "gpufleet.hosts.gpu_host_info"
QUERY = "gpufleet.hosts.package_transaction"
GPU_FACTS = "gpufleet.hosts.nvidia_gpu_facts"
PLAN = "gpufleet.hosts.gpu_host_plan"
PARTS = list(registry.PARTS)
DRIVER, PERSISTENCE, ENGINE = "nvidia_driver", "nvidia_persistenced", "container_engine"
TOOLKIT, VOLUME, PROOF, VERIFY = "nvidia_container_toolkit", "driver_volume", "container_proof", "verify"
# The container toolkit is out of scope of most tests.
SCOPE = {"inventory_hostname": "gpu1", "nvidia_container_toolkit_source": "none"}


def busy(there: dict) -> dict:
    """Describe the host while another process installs packages."""
    return {**there, "package_state": {**there["package_state"], "busy": True}}


class Host:
    """A host that returns prepared observations and records the module calls."""

    def __init__(self):
        self.observations: list = []
        self.facts: dict = {"changed": False, "ansible_facts": FACTS}
        self.calls: list[tuple[str, dict]] = []
        self.facts_variables: dict = {}
        self.rehearsal: dict = {"changed": False, "removals": []}

    def execute(self, module_name, module_args, task_vars):
        # Options with the containers of a template or with objects cannot be sent.
        self.calls.append((module_name, json.loads(json.dumps(module_args))))
        if module_name == QUERY and module_args.get("rehearse_removals"):
            return self.rehearsal
        if module_name == QUERY:
            return {"changed": False, "versions": offered(module_args), "streams": {}}
        assert module_name == OBSERVE
        result = self.observations.pop(0)
        if isinstance(result, Exception):
            raise result
        return result if "failed" in result or "unreachable" in result else {"changed": False, "host": result}

    def facts_action(self, name, task, **_objects):
        def read(task_vars):
            self.calls.append((task.action, task.args))
            self.facts_variables = task_vars
            return self.facts

        assert name == GPU_FACTS
        return SimpleNamespace(run=read)

    def run(self, *observations, check_mode=False, variables=None, parts=None, transport="ssh", **arguments):
        self.observations = list(observations)
        task = MagicMock(
            args={"parts": PARTS if parts is None else parts, **arguments},
            async_val=0,
            action=PLAN,
            check_mode=check_mode,
        )
        task.copy = lambda: SimpleNamespace(args=task.args, action=task.action)
        templar = SimpleNamespace(template=lambda value: "4567" if value == "{{ timeout }}" else value)
        connection = MagicMock(transport=transport)
        action = gpu_host_plan.ActionModule(task, connection, MagicMock(), MagicMock(), templar, None)
        action._execute_module = self.execute
        action._shared_loader_obj = SimpleNamespace(action_loader=SimpleNamespace(get=self.facts_action))
        result = action.run(task_vars={**SCOPE, **(variables or {})})
        assert self.observations == [], "an observation is missing"
        return result

    @property
    def modules(self):
        return [name for name, _arguments in self.calls]

    def arguments(self, module):
        return [arguments for name, arguments in self.calls if name == module]


@pytest.fixture
def host(monkeypatch):
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    return Host()


# --- the module calls ---------------------------------------------------------------------------------------------


def test_converged_host_needs_one_observation_and_the_state_of_its_gpus(host):
    there = converged()
    result = host.run(there, requires_root=True)
    assert host.modules == [OBSERVE, GPU_FACTS]
    assert (result["changed"], result["acting"], result["warnings"]) == (False, [], [])
    assert "_ansible_no_log" not in result
    assert result["host"] == there
    assert result["ansible_facts"] == FACTS
    assert list(result["plan"]) == PARTS
    assert result["plan"][VERIFY] == {"applies": True}
    assert sorted(result["reports"]) == ["nvidia_driver_report", "nvidia_persistenced_report"]
    assert result["reports"]["nvidia_persistenced_report"]["state"] == "ready"
    assert [(part["part"], part["changes"]) for part in result["changes"]] == [(name, []) for name in PARTS]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "auto_silent"),
        ({"ansible_python_interpreter": "auto"}, "auto_silent"),
        ({"ansible_python_interpreter": "/usr/bin/python3.12"}, "/usr/bin/python3.12"),
    ],
)
def test_the_discovery_of_python_warns_for_no_host(host, monkeypatch, variables, expected):
    monkeypatch.delenv("ANSIBLE_PYTHON_INTERPRETER", raising=False)
    monkeypatch.setattr(gpu_host_plan.C.config, "get_config_value", config_value)
    given = []
    monkeypatch.setattr(host, "execute", lambda **call: given.append(call["task_vars"]) or {"host": converged()})
    host.run(parts=[], variables=variables)
    assert {entry["ansible_python_interpreter"] for entry in given} == {expected}


def config_value(name, variables):
    """Return the value as Ansible does without a configuration file."""
    assert name == "INTERPRETER_PYTHON"
    return variables.get("ansible_python_interpreter", "auto")


class Program:
    """The program on the host, with its prepared answer. `given` are its options."""

    def __init__(self, monkeypatch):
        self.answer: dict | Exception | None = None
        self.given: dict = {}
        monkeypatch.setattr(host_python, "command_for_input", lambda *_arguments: "/usr/bin/python3")
        monkeypatch.setattr(host_python, "answer", self.run)
        monkeypatch.setattr(host_program, "make", self.make)

    def make(self, entry, given, _extra, *, installed_packages, bytecode):
        assert (entry, installed_packages, bytecode) == ("observe.program", True, False)
        self.given = json.loads(json.dumps(given))
        return b""

    def run(self, _action, _python, _program):
        if isinstance(self.answer, Exception):
            raise self.answer  # pylint: disable=raising-bad-type # pylint knows only the first value
        return self.answer


@pytest.fixture
def program(monkeypatch):
    return Program(monkeypatch)


def test_one_program_reads_the_host_and_its_gpus(host, program):
    there = converged()
    program.answer = {"host": there, "facts": {"changed": False, "ansible_facts": FACTS, "add_host": "evil"}}
    result = host.run()
    assert (host.modules, result["acting"]) == ([], [])
    assert (result["host"], result["ansible_facts"]) == (there, FACTS)
    assert program.given["options"]["driver_volume"] is not None
    assert (program.given["facts"]["gather_subset"], program.given["check_mode"]) == (["!all"], False)


def test_a_converged_host_is_planned_once(host, program, monkeypatch):
    planned = []
    plan = site_plan.plan
    monkeypatch.setattr(site_plan, "plan", lambda *given: planned.append(given) or plan(*given))
    program.answer = {"host": converged(), "facts": {"changed": False, "ansible_facts": FACTS}}
    assert host.run()["acting"] == []
    assert len(planned) == 1


FAILED = {PERSISTENCED: {**running(PERSISTENCED), "active_state": "failed"}}


@pytest.mark.parametrize("gpu", [{}, {"persistence_mode": False}])
@pytest.mark.parametrize(
    "there", [converged(), converged(services=FAILED), bare(), converged(driver={"loaded": None}), busy(bare())]
)
@pytest.mark.parametrize("check_mode", [False, True])
def test_facts_of_the_program_and_of_the_module_lead_to_the_same_plan(host, program, there, gpu, check_mode):
    facts = {"changed": False, "ansible_facts": {**FACTS, "nvidia_gpus": [{**FACTS["nvidia_gpus"][0], **gpu}]}}
    host.facts, results = facts, []
    for given in (facts, None):
        program.answer = {"host": there, "facts": given}
        results.append(host.run(check_mode=check_mode))
    assert results[0] == results[1]


@pytest.mark.parametrize("facts", [None, {"failed": True, "msg": "no pynvml", "nvml_binding_missing": True}, "text"])
def test_facts_that_the_program_lacks_are_read_by_their_module(host, program, facts):
    program.answer = {"host": converged(), "facts": facts}
    assert host.run()["ansible_facts"] == FACTS
    assert host.modules == [GPU_FACTS]


@pytest.mark.parametrize("answer", [None, {}, {"host": "text"}])
def test_the_modules_run_if_the_program_has_no_answer(host, program, answer):
    program.answer = answer
    assert host.run(converged())["ansible_facts"] == FACTS
    assert host.modules == [OBSERVE, GPU_FACTS]


def test_a_part_without_gpus_needs_no_facts(host, program):
    program.answer = {"host": converged()}
    host.run(parts=[ENGINE])
    assert (host.modules, program.given["facts"]) == ([], None)


def test_a_rejected_password_is_not_tried_again(host, program):
    program.answer = AnsibleError("sudo failed: a password is required")
    result = host.run()
    assert (result["failed"], result["msg"], host.modules) == (True, "sudo failed: a password is required", [])


def test_a_lost_connection_makes_the_host_unreachable(host, program):
    program.answer = AnsibleConnectionFailure("no route")
    with pytest.raises(AnsibleConnectionFailure):
        host.run()


def test_gpu_facts_use_the_observation(host):
    there = converged()
    host.run(there)
    assert host.arguments(GPU_FACTS) == [{"gather_subset": ["!all"]}]
    assert host.facts_variables["gpufleet_host"] == there
    assert host.facts_variables["inventory_hostname"] == "gpu1"


def test_bare_host_needs_one_observation_and_one_query(host):
    result = host.run(bare(), requires_root=True)
    assert host.modules == [OBSERVE, QUERY]
    assert result["acting"] == [DRIVER, PERSISTENCE, ENGINE, VOLUME]
    assert result["plan"][DRIVER]["version"] == VERSION
    assert "ansible_facts" not in result
    (question,) = host.arguments(QUERY)
    assert question["record"] == "nvidia_driver"
    shown = {part["part"]: part["changes"] for part in result["changes"]}
    assert any(VERSION in text for text in shown[DRIVER])
    assert shown[VERIFY] == []


def test_next_source_is_queried_if_the_first_has_no_suitable_version(host, monkeypatch):
    def offered(arguments):
        version = "580.95.05-1" if arguments["repositories"] else "535.309.01-1"
        return {name: [version] for name in arguments["query"]}

    monkeypatch.setitem(Host.execute.__globals__, "offered", offered)
    result = host.run(bare(), variables={"nvidia_driver_minimum_version": "535.400"})
    assert host.modules[:3] == [OBSERVE, QUERY, QUERY]
    assert (result["plan"][DRIVER]["source"], result["plan"][DRIVER]["version"]) == ("nvidia", "580.95.05")


def test_dockers_repository_is_queried_if_the_distribution_has_no_suitable_engine(host, monkeypatch):
    def offered(arguments):
        versions = {"docker.io": "20.10.24-1", "docker-ce": "5:28.5.1-1", "docker-ce-cli": "5:28.5.1-1"}
        return {name: [versions.get(name, VERSION)] for name in arguments["query"]}

    monkeypatch.setitem(Host.execute.__globals__, "offered", offered)
    result = host.run(bare(), variables={"container_engine_minimum_version": "25"})
    first, second = host.arguments(QUERY)
    # The first query is also that of the driver.
    assert {"docker.io", "libcuda1"} <= set(first["query"])
    assert (second["record"], second["query"]) == ("container_engine", ["docker-ce", "docker-ce-cli"])
    assert [repository["name"] for repository in second["repositories"]] == ["gpufleet-docker"]
    plan = result["plan"][ENGINE]
    assert (plan["source"], plan["version"]) == ("docker", "5:28.5.1-1")
    assert result["plan"][DRIVER]["version"] == VERSION


def test_engine_without_a_suitable_version_fails_after_the_queries(host, monkeypatch):
    monkeypatch.setitem(Host.execute.__globals__, "offered", lambda arguments: {n: ["1-1"] for n in arguments["query"]})
    result = host.run(bare(gpus=()), variables={"container_engine_version": "99.1"})
    assert host.modules == [OBSERVE, QUERY, QUERY]
    assert result["failed"]
    assert "container_engine_version=99.1, but Docker's repository" in result["msg"]


def test_check_mode_plans_the_same(host):
    checked, real = host.run(bare(), check_mode=True), Host().run(bare())
    # Check mode can only report what depends on the driver.
    assert (checked.pop("apply")["driver_volume"], real.pop("apply")["driver_volume"]) == ("reported", "planned")
    assert checked == real


def test_a_converged_host_returns_its_observation_as_text_on_request(host):
    there = converged()
    whole, short = host.run(there), host.run(there, short=True)
    assert (whole["converged"], short["converged"]) == (True, True)
    assert json.loads(short["host_text"]) == whole["host"]
    # Playbook site, its filters and the table need the rest.
    assert {*whole} - {*short} == {"host", "plan"}
    assert {name: short[name] for name in short if name != "host_text"} == {
        name: whole[name] for name in short if name in whole
    }


def test_a_host_with_something_to_do_returns_all(host):
    result = host.run(bare(), short=True)
    assert (result["converged"], "host_text" in result, result["host"]["uid"]) == (False, False, 0)


def test_host_without_gpu_is_only_observed(host):
    assert host.run(bare(gpus=()))["acting"] == [ENGINE]
    assert host.modules == [OBSERVE]


def test_without_parts_the_host_is_only_observed(host):
    there = converged()
    result = host.run(there, parts=[])
    assert host.modules == [OBSERVE]
    assert (result["host"], result["plan"], result["acting"]) == (there, {}, [])


def test_later_plan_neither_queries_nor_reads_gpus(host):
    assert host.run(bare(), parts=[DRIVER], first_plan=False)["acting"] == [DRIVER]
    assert host.run(converged(), first_plan=False)["acting"] == []
    assert host.modules == [OBSERVE, OBSERVE]


def test_mode_that_is_off_is_part_of_the_plan(host):
    gpus = [{**FACTS["nvidia_gpus"][0], "persistence_mode": False}]
    host.facts = {"ansible_facts": {**FACTS, "nvidia_gpus": gpus}}
    result = host.run(converged())
    assert result["acting"] == [PERSISTENCE]
    assert result["plan"][PERSISTENCE]["turn_on"] == ["0000:00:00.0 (A100)"]


def test_drift_of_the_daemon_needs_no_query(host):
    there = converged(services={PERSISTENCED: {**running(PERSISTENCED), "active_state": "failed"}})
    assert host.run(there)["acting"] == [PERSISTENCE]
    assert host.modules == [OBSERVE, GPU_FACTS]


@pytest.mark.parametrize("transport", ["local", "ssh"])
def test_controller_is_not_rebooted(host, transport):
    holder = {"pid": 1, "command": "train", "devices": [], "open": True, "container": None, "container_name": None}
    there = converged(driver={"loaded": "535.261.03"}, holders=[holder])
    there["reboot_reasons"] = [{"id": "library_differs", "text": "the library differs", "driver": True}]
    result = host.run(
        there, parts=[DRIVER], transport=transport, variables={"nvidia_driver_reboot_policy": "when_required"}
    )
    assert result["plan"][DRIVER]["reboot"]["go"] == (transport == "ssh")


# --- the adoption of a prepared image -----------------------------------------------------------------------------

NVME = {"site_adopt": True, "dlami_docker_on_nvme": "yes"}


def dlami(**image) -> dict:
    """Describe a converged host with a Deep Learning AMI and local NVMe disks."""
    there = converged()
    there["files"][owned.ADOPTION_REPORT] = file(None)
    there["image"] |= {"kind": "dlami", "evidence": ["/opt/dlami"], "nvme": "/opt/dlami/nvme", **image}
    return there


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"data-root": "/opt/dlami/nvme/docker"}),
        ({"mtu": 9000}, {"data-root": "/opt/dlami/nvme/docker", "mtu": 9000}),
        ('{"mtu": 9000}', {"data-root": "/opt/dlami/nvme/docker", "mtu": 9000}),
        ({"data-root": "/data"}, {"data-root": "/data"}),
    ],
)
@pytest.mark.parametrize("adopt", [True, False], ids=["first plan", "plan of the role"])
def test_default_options_of_dockerd_are_merged_with_those_of_the_user(host, given, expected, adopt):
    variables = {**NVME, "container_engine_docker_options": given}
    result = host.run(dlami(), parts=[ENGINE], variables=variables, adopt=adopt)
    assert result["plan"][ENGINE]["options"] == {**expected, "live-restore": True}


@pytest.mark.parametrize("kind", ["dlami", None])
@pytest.mark.parametrize("adopt", [True, False], ids=["first plan", "plan of the role"])
def test_docker_does_not_move_to_disks_that_are_not_mounted(host, kind, adopt):
    result = host.run(dlami(kind=kind, nvme=None), parts=[ENGINE], variables=NVME, adopt=adopt)
    refuses_image = adopt and not kind
    assert result["failed"]
    assert ("no disk is mounted at /opt/dlami/nvme" in result["msg"]) is not refuses_image, result["msg"]


def test_site_without_its_mode_ignores_the_variables_of_dlami(host):
    result = host.run(dlami(), parts=[ENGINE], variables={**NVME, "site_adopt": False, "dlami_docker_on_nvme": "x"})
    assert result["plan"][ENGINE]["options"] == {"live-restore": True}


@pytest.mark.parametrize("name", ["site_adopt", "dlami_docker_on_nvme"])
def test_a_mode_that_is_neither_true_nor_false_is_refused_before_any_module_call(host, name):
    result = host.run(variables={**NVME, name: "maybe"}, adopt=True)
    assert (result["errors"], host.calls) == ([f"{name} is maybe, but must be true or false."], [])


def test_a_host_whose_adoption_is_not_recorded_has_not_converged(host):
    there = dlami()
    first = host.run(there, parts=[], adopt=True)
    assert first["converged"] is False
    there["files"][owned.ADOPTION_REPORT] = file(first["adoption"]["text"])
    assert host.run(there, parts=[], adopt=True, short=True)["converged"] is True


def test_an_engine_without_the_default_options_is_refused(host):
    result = host.run(dlami(), variables={**NVME, "container_engine_name": "podman"}, adopt=True)
    assert result["msg"].startswith("dlami_docker_on_nvme is true, but container_engine_name is podman. Remove")
    assert host.modules == [OBSERVE]
    # The user did not select the engine.
    assert "failed" not in host.run(dlami(), parts=[DRIVER], variables=NVME, adopt=True)


@pytest.mark.parametrize("value", ["15m", -1, "-1", 1.5, True, None])
def test_a_timeout_that_is_no_number_of_seconds_is_refused_before_any_module_call(host, value):
    result = host.run(adopt=True, cloud_init_timeout=value)
    assert (result["failed"], host.calls) == (True, [])
    text = f"dlami_cloud_init_timeout is {value}, but must be a whole number of seconds, 0 or more."
    assert result["msg"] == text


@pytest.mark.parametrize("value", [0, 900, "900", " 60 "])
def test_a_number_of_seconds_is_accepted(host, value):
    assert "failed" not in host.run(dlami(), parts=[ENGINE], adopt=True, cloud_init_timeout=value)


def outdated() -> dict:
    """Describe an idle host whose driver was upgraded while it was loaded."""
    return converged(driver={"loaded": "535.261.03"}, modules_loaded=["nvidia", "nvidia_uvm"])


def with_power_limit(limit: float) -> dict:
    """Return facts of a GPU whose default power limit is 400 W."""
    gpu = {**FACTS["nvidia_gpus"][0], "power": {"limit_w": limit, "default_limit_w": 400.0}}
    return {"changed": False, "ansible_facts": {**FACTS, "nvidia_gpus": [gpu]}}


def test_the_settings_of_the_gpus_are_read_before_a_reload(host):
    host.facts = with_power_limit(400.0)
    result = host.run(outdated(), parts=[DRIVER])
    assert host.modules == [OBSERVE, GPU_FACTS]
    assert host.arguments(GPU_FACTS) == [{"gather_subset": ["!all", "identity", "power", "clocks"]}]
    assert "failed" not in result
    # These facts are stale after the reload.
    assert "ansible_facts" not in result


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_reload_that_loses_a_setting_fails_before_any_change(host, check_mode):
    host.facts = with_power_limit(300.0)
    result = host.run(outdated(), parts=[DRIVER], check_mode=check_mode)
    assert "power limit 300 W" in result["msg"]
    allowed = {"nvidia_driver_reload_loses_settings": True}
    assert "failed" not in host.run(outdated(), parts=[DRIVER], variables=allowed, check_mode=check_mode)


def test_settings_that_cannot_be_read_do_not_fail_the_plan(host):
    host.facts = {"failed": True, "msg": "no pynvml"}
    result = host.run(outdated(), parts=[DRIVER])
    (driver,) = result["changes"]
    assert any("cannot be read now" in reason and "no pynvml" in reason for reason in driver["reasons"])


def test_later_plans_of_a_run_do_not_read_the_settings(host):
    host.run(outdated(), parts=[DRIVER], first_plan=False)
    assert host.modules == [OBSERVE]


def booting(there: dict, state: str = "running") -> dict:
    """Describe the host while cloud-init runs."""
    return {**there, "image": {**there["image"], "cloud_init": {"state": state, "errors": []}}}


@pytest.mark.parametrize(
    ("more", "variable"),
    [
        ({}, "site_cloud_init_timeout"),
        ({"adopt": "false"}, "site_cloud_init_timeout"),
        ({"adopt": "y"}, "dlami_cloud_init_timeout"),
        ({"adopt": True}, "dlami_cloud_init_timeout"),
    ],
)
def test_a_host_on_which_cloud_init_does_not_finish_fails_before_any_other_call(host, more, variable):
    there = booting(dlami() if more else bare())
    result = host.run(there, cloud_init_timeout=900, requires_root=True, **more)
    assert (result["failed"], host.modules) == (True, [OBSERVE])
    assert host.arguments(OBSERVE)[0]["cloud_init_timeout"] == 900
    assert "900 seconds. Nothing was changed. See what it waits for with 'cloud-init status --long'" in result["msg"]
    assert f"raise {variable}" in result["msg"]


@pytest.mark.parametrize("state", ["absent", "done", "parent"])
def test_other_hosts_get_no_further_call_because_of_cloud_init(host, state):
    result = host.run(booting(converged(), state), cloud_init_timeout=900, requires_root=True)
    assert host.modules == [OBSERVE, GPU_FACTS]
    assert (result["acting"], result["notes"]) == ([], [])


def test_a_plan_alone_does_not_wait_for_cloud_init_and_says_so(host):
    result = host.run(booting(converged()), requires_root=True)
    assert "cloud_init_timeout" not in host.arguments(OBSERVE)[0]
    assert "failed" not in result
    assert ["site_cloud_init_timeout" in note for note in result["notes"]] == [True]


def test_a_limit_of_site_that_is_no_number_is_refused_before_any_module_call(host):
    result = host.run(cloud_init_timeout="15m")
    assert (result["failed"], host.calls) == (True, [])
    assert result["msg"].startswith("site_cloud_init_timeout is 15m, but must be a whole number of seconds")


def test_options_that_are_no_dictionary_are_refused_before_any_module_call(host):
    result = host.run(variables={**NVME, "container_engine_docker_options": "mtu"}, adopt=True)
    assert (host.calls, len(result["errors"])) == ([], 1)
    assert result["msg"].startswith("container_engine_docker_options is mtu, but must be a dictionary.")


def test_a_plan_after_the_changes_reports_what_was_held(host):
    there = dlami(efa="1.47.0")
    there["installed_packages"] = {**there["installed_packages"], "efa": "1.47.0-1 amd64"}
    first = host.run(there, adopt=True)
    assert (first["adoption"]["hold"], first["adoption"]["install"]) == (["efa"], [])
    for held, is_named in ((["efa"], True), ([], False)):
        result = host.run(there, adopt=True, first_plan=False, changes_before=first["changes"], held_before=held)
        entry = result["adoption"]["report"]["parts"][-1]
        assert (entry["part"], "hold efa" in entry["reason"]) == ("efa", is_named)


# --- the options of the observation -------------------------------------------------------------------------------

OBSERVED = [
    ([], {}, {}),
    ([ENGINE], {}, {}),
    (PARTS, {}, {"driver_volume": {"engine": ["auto"], "expected_engines": ["docker"]}}),
    ([VOLUME], {}, {"driver_volume": {"engine": ["auto"], "expected_engines": []}}),
    (PARTS, {"container_engine_name": "none"}, {"driver_volume": {"engine": ["none"], "expected_engines": []}}),
    ([ENGINE], {"container_engine_users": ["alice", "bob"]}, {"users": ["alice", "bob"]}),
    ([ENGINE], {"container_engine_users": ["alice"], "container_engine_state": "absent"}, {}),
    ([ENGINE], {"container_engine_users": ["alice"], "container_engine_name": "podman"}, {}),
    ([DRIVER], {"container_engine_users": ["alice"]}, {}),
    (
        [DRIVER],
        {"nvidia_driver_extra_packages": "nvtop, nvidia-smi", "nvidia_driver_kernel_packages": ["headers-mine"]},
        {"packages": ["nvtop", "nvidia-smi", "headers-mine"]},
    ),
    (
        [ENGINE],
        {"observe_services": "chrony.service, sshd.service", "observe_files": ["/etc/issue"]},
        {"services": ["chrony.service", "sshd.service"], "files": ["/etc/issue"]},
    ),
]


@pytest.mark.parametrize(("parts", "variables", "expected"), OBSERVED)
def test_observation_depends_on_parts_and_variables(host, parts, variables, expected):
    there = converged(driver_volume=prediction())
    host.run(there, parts=parts, variables=variables)
    (given,) = host.arguments(OBSERVE)
    # A plan also depends on what other parts own, whichever parts are selected.
    places = given.pop("_declared")
    assert owned.DRIVER_RECORD in places["files"]
    assert "docker.service" in places["services"]
    assert owned.GAUDI_HOOK in places["vendors"]["gaudi"]["files"]
    assert given == {"services": [], "files": [], "package_lock_timeout": 0, **expected}


# --- a running package manager ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "parts", "timeout"),
    [
        ({}, PARTS, 600),
        ({"nvidia_driver_lock_timeout": "{{ timeout }}"}, PARTS, 4567),
        ({"nvidia_driver_lock_timeout": 7}, [ENGINE], 300),
    ],
    ids=["default", "variable", "role without a variable"],
)
def test_plan_waits_for_a_running_package_manager(host, variables, parts, timeout):
    # While apt installs Docker, its packages look missing.
    there = converged()
    remove_package(there, "docker.io")
    result = host.run(busy(there), converged(), parts=parts, variables=variables)
    assert [options["package_lock_timeout"] for options in host.arguments(OBSERVE)] == [0, timeout]
    assert (result.get("failed"), result["acting"]) == (None, [])
    assert QUERY not in host.modules


def test_second_observation_has_the_same_options(host):
    variables = {"observe_services": ["chrony.service"], "observe_files": ["/etc/issue"]}
    host.run(busy(bare(gpus=())), bare(gpus=()), variables=variables)
    first, second = host.arguments(OBSERVE)
    assert {**first, "package_lock_timeout": 600} == second


def test_problem_of_an_unfinished_installation_is_not_final(host):
    variables = {"nvidia_driver_source": "preinstalled"}
    assert "failed" in Host().run(bare(), parts=[DRIVER], variables=variables)
    assert "failed" not in host.run(busy(bare()), converged(), parts=[DRIVER], variables=variables)


def test_package_manager_that_does_not_finish_is_an_error(host):
    result = host.run(busy(bare()), busy(bare()))
    assert host.modules == [OBSERVE, OBSERVE]
    assert result["failed"]
    assert "still holds dpkg's lock after 600 seconds. Nothing was changed." in result["msg"]


@pytest.mark.parametrize(
    ("there", "arguments"),
    [
        (bare(gpus=()), {"check_mode": True}),
        (bare(gpus=()), {"first_plan": False}),
        (converged(), {}),
        (bare(), {"parts": []}),
    ],
    ids=["check mode", "later plan", "nothing to do", "no parts"],
)
def test_plan_does_not_wait_without_need(host, there, arguments):
    result = host.run(busy(there), **arguments)
    assert (result.get("failed"), host.modules.count(OBSERVE)) == (None, 1)


# --- failures -----------------------------------------------------------------------------------------------------

INVALID = [
    ({"nvidia_driver_branch": 58}, ["nvidia_driver_branch is 58, which is not valid. Use the form 580."]),
    ({"nvidia_driver_module_options": {"nvidia": 1}}, ["nvidia_driver_module_options.nvidia is 1, but must be"]),
    ({"nvidia_persistenced_timeout": 0}, ["nvidia_persistenced_timeout is 0, but must be 1 or more."]),
    ({"container_engine_name": "crio"}, ["container_engine_name is crio, but must be one of"]),
    ({"observe_services": {"a": 1}}, ["observe_services is {'a': 1}, but must be a list."]),
    ({"nvidia_driver_brnch": "580"}, ["nvidia_driver_brnch is not a variable of role nvidia_driver. Did you mean"]),
    (
        {"nvidia_driver_state": "there", "container_engine_nmae": "docker", "container_engine_source": "snap"},
        ["container_engine_nmae", "nvidia_driver_state is there", "container_engine_source is snap"],
    ),
]


@pytest.mark.parametrize(("variables", "words"), INVALID, ids=[" ".join(row[0]) for row in INVALID])
def test_wrong_variables_fail_before_any_module_call(host, variables, words):
    result = host.run(variables=variables)
    assert host.calls == []
    assert result["failed"]
    assert len(result["errors"]) == len(words)
    assert all(word in error for word, error in zip(words, result["errors"]))
    assert result["msg"] == " ".join(result["errors"])


def test_variables_of_other_parts_are_not_checked(host):
    result = host.run(converged(), parts=[ENGINE], variables={"nvidia_driver_branch": 58})
    assert "failed" not in result


def test_unknown_name_that_resembles_no_variable_is_a_warning(host):
    result = host.run(converged(), variables={"nvidia_driver_owner": "me", "unrelated": 1})
    (warning,) = result["warnings"]
    assert warning.startswith("nvidia_driver_owner is not a variable of role nvidia_driver and has no effect.")


@pytest.mark.parametrize(
    ("arguments", "word"), [({"parts": ["gpu"]}, "gpu"), ({"part": []}, "part"), ({"first_plan": "x"}, "first_plan")]
)
def test_wrong_options_fail_before_any_module_call(host, arguments, word):
    result = host.run(**arguments)
    assert (result["failed"], host.calls) == (True, [])
    assert result["msg"].startswith("gpu_host_plan: ")
    assert word in result["msg"]


def test_conflicts_stop_the_plan_before_the_query(host):
    result = host.run(bare(uid=1000), requires_root=True)
    assert host.modules == [OBSERVE]
    assert (result["failed"], result["errors"], result["msg"]) == (True, [needs_root(1000)], needs_root(1000))
    assert "plan" not in result


def test_root_is_required_only_on_request(host):
    there = converged(uid=1000)
    assert "failed" not in host.run(there)
    assert host.run(there, requires_root=True)["msg"] == needs_root(1000)
    # A host that fails anyway is not asked for the state of its GPUs.
    assert host.modules == [OBSERVE, GPU_FACTS, OBSERVE]


def test_conflict_of_one_part_prevents_the_query_for_another(host):
    result = host.run(bare(), variables={"container_engine_source": "preinstalled"})
    assert host.modules == [OBSERVE]
    assert "docker is not installed on this host" in result["msg"]


FAILURES = [
    ({"failed": True, "msg": "No space left on device"}, "No space left on device", False),
    ({"failed": True, "msg": "MODULE FAILURE", "module_stderr": "Killed\n"}, "MODULE FAILURE Killed", False),
    (
        {"failed": True, "msg": "MODULE FAILURE", "module_stderr": "SyntaxError: future feature annotations"},
        "MODULE FAILURE SyntaxError: future feature annotations",
        True,
    ),
    (
        {"failed": True, "msg": "ansible-core requires a minimum of Python version 3.8. Current version: 3.6.8"},
        "Current version: 3.6.8",
        True,
    ),
    (AnsibleError("The module interpreter '/usr/bin/python3' was not found."), "was not found.", True),
    (AnsibleError("no module"), "no module", False),
]


@pytest.mark.parametrize(("answer", "text", "is_old_python"), FAILURES)
def test_failure_of_the_observation_is_reported(host, answer, text, is_old_python):
    result = host.run(answer)
    assert (result["failed"], host.modules) == (True, [OBSERVE])
    assert result["msg"].endswith(text)
    assert result["msg"].startswith("This host needs Python 3.9 or newer.") == is_old_python


@pytest.mark.parametrize(
    "answer",
    [AnsibleConnectionFailure("timed out"), {"unreachable": True, "msg": "timed out"}],
    ids=["raised", "result"],
)
def test_unreachable_host_is_unreachable(host, answer):
    with pytest.raises(AnsibleConnectionFailure, match="timed out"):
        host.run(answer)


def test_failure_of_the_query_is_reported(host, monkeypatch):
    def execute(module_name, module_args, task_vars):
        is_query = module_name == QUERY
        host.calls.append((module_name, module_args))
        return {"failed": True, "msg": "apt is broken"} if is_query else {"host": bare()}

    monkeypatch.setattr(host, "execute", execute)
    result = host.run()
    assert (result["failed"], result["msg"], result["errors"]) == (True, "apt is broken", ["apt is broken"])
    assert host.modules == [OBSERVE, QUERY]


def test_failure_of_the_gpu_facts_is_reported(host):
    host.facts = {"failed": True, "msg": "NVML does not respond"}
    assert host.run(converged()) == {"failed": True, "msg": "NVML does not respond"}


# --- passwords ----------------------------------------------------------------------------------------------------

LOGIN = {
    "nvidia_driver_mirror": "https://mirror.example/cuda",
    "nvidia_driver_repository_username": "me",
    "nvidia_driver_repository_password": "s3cret",
}


@pytest.mark.parametrize("there", [bare(), converged()], ids=["bare", "converged"])
def test_plan_with_passwords_is_hidden(host, there):
    result = host.run(there, variables=LOGIN)
    assert (result["has_secrets"], result["_ansible_no_log"]) == (True, True)


def test_failure_shows_no_password(host):
    variables = {**LOGIN, "container_engine_source": "preinstalled"}
    result = host.run(bare(), variables=variables)
    assert result["failed"]
    assert "s3cret" not in json.dumps(result)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nvidia_driver_state", ""),
        ("nvidia_driver_state", "present "),
        ("nvidia_driver_activate", None),
        ("nvidia_driver_lock_timeout", ""),
        ("container_engine_restart_policy", ""),
    ],
)
def test_an_empty_value_is_refused_because_the_roles_would_read_it(host, name, value):
    result = host.run(variables={name: value})
    assert result["failed"]
    assert result["errors"] == [
        f"{name} is {value!r}. Set one of its values, or remove the variable to use the default."
    ]
    assert host.modules == []


def test_the_discovered_python_is_kept_for_later_tasks(host, monkeypatch):
    execute = host.execute
    found = {"ansible_facts": {"discovered_interpreter_python": "/usr/bin/python3.12"}, "warnings": ["Platform linux"]}
    monkeypatch.setattr(host, "execute", lambda *given, **more: {**execute(*given, **more), **found})
    result = host.run(converged())
    assert result["ansible_facts"] == {**FACTS, "discovered_interpreter_python": "/usr/bin/python3.12"}
    assert result["warnings"] == ["Platform linux"]
    assert host.facts_variables["ansible_facts"]["discovered_interpreter_python"] == "/usr/bin/python3.12"


def test_a_failed_plan_names_the_line_that_hides_a_package(host, monkeypatch):
    """Advice for a missing package would not help."""
    execute = host.execute
    hidden = {"docker-ce": "The repositories have docker-ce, but dnf hides it because of exclude=docker*."}

    def answer(module_name, module_args, **more):
        if module_name != QUERY:
            return execute(module_name, module_args, **more)
        return {"changed": False, "versions": {name: [] for name in module_args["query"]}, "hidden": hidden}

    monkeypatch.setattr(host, "execute", answer)
    result = host.run(bare(gpus=()), variables={"container_engine_version": "28.5"})
    assert result["failed"]
    assert hidden["docker-ce"] in result["msg"]


@pytest.mark.parametrize(
    ("arguments", "is_checking"),
    [
        # Playbooks plan and site, and a role alone.
        ({"requires_root": True}, True),
        ({"requires_root": True, "cloud_init_timeout": 900}, False),
        ({}, False),
    ],
)
def test_only_a_run_that_changes_the_host_keeps_package_lists(host, monkeypatch, arguments, is_checking):
    """Module package_transaction keeps them outside check mode."""
    seen = []
    execute = gpu_host_plan.ActionModule._run_module

    def run(action, module, options):
        seen.extend([action._task.check_mode] if module == QUERY and options.get("query") else [])
        return execute(action, module, options)

    monkeypatch.setattr(gpu_host_plan.ActionModule, "_run_module", run)
    result = host.run(bare(), **arguments)
    assert not result.get("failed")
    assert seen == [is_checking]


def test_a_failed_plan_has_the_warnings_of_the_query(host, monkeypatch):
    """A repository that could not be read may be why no engine was found."""
    execute = host.execute
    monkeypatch.setattr(host, "execute", lambda *given, **more: {**execute(*given, **more), "warnings": ["dead"]})
    result = host.run(bare(gpus=()), variables={"container_engine_version": "99.1"})
    assert result["failed"]
    assert result["warnings"] == ["dead"]


# --- removals -----------------------------------------------------------------------------------------------------

ABSENT = {f"{role}_state": "absent" for role in ("nvidia_container_toolkit", "nvidia_driver", "container_engine")}
RECORDS = {
    path: file(json.dumps({"packages": [name], "requested": [name]}))
    for path, name in (
        (owned.DRIVER_RECORD, "libcuda1"),
        (owned.PERSISTENCED_RECORD, "nvidia-persistenced"),
        (owned.ENGINE_RECORD, "docker.io"),
        (owned.CONTAINER_TOOLKIT_RECORD, "nvidia-container-toolkit"),
    )
}


def removable():
    """Describe a converged host on which nothing uses the engine or the GPUs, with the records of the roles."""
    there = converged()
    there["files"] = {**there["files"], **RECORDS}
    return {**there, "holders": [], "gpu_users": []}


def test_all_removals_are_rehearsed_once_before_the_first_change(host):
    assert not host.run(removable(), variables=ABSENT).get("failed")
    (asked,) = host.arguments(QUERY)
    records = [(one["record"], one["together_with"]) for one in asked["rehearse_removals"]]
    # In the order of playbooks/tasks/apply_parts_in_order.yml.
    assert records == [
        ("nvidia_container_toolkit", []),
        ("nvidia_driver", ["nvidia_persistenced"]),
        ("container_engine", []),
    ]


def test_a_removal_that_would_fail_stops_the_run_before_any_change(host):
    host.rehearsal = {"failed": True, "msg": "Removing libcuda1 would break other installed packages: my-app."}
    result = host.run(removable(), variables=ABSENT)
    assert result["failed"]
    assert result["msg"] == "Removing libcuda1 would break other installed packages: my-app. Nothing was changed."


def test_a_host_without_records_rehearses_nothing(host):
    host.run(bare(), variables=ABSENT)
    assert QUERY not in host.modules


# --- repositories that cannot be reached ----------------------------------------------------------------------------

# Every part that can have a repository of its own has one, on a host without GPU software.
REPOSITORIES = {
    "nvidia_driver_source": "nvidia",
    "container_engine_source": "docker",
    "nvidia_container_toolkit_source": "nvidia",
}
DRIVERS, DOCKERS, TOOLKITS = "gpufleet-nvidia-cuda", "gpufleet-docker", "gpufleet-nvidia-container-toolkit"


def version_of(package: str) -> str:
    if package.startswith("docker"):
        return "5:28.5.1-1"
    return "1.19.1-1" if "container" in package else "580.95.05-1"


@pytest.fixture
def reachable(host, monkeypatch):
    """Return a function that makes the queries of these repositories fail, as module package_transaction does."""

    def limit(*unreachable):
        def execute(module_name, module_args, task_vars):
            if module_name != QUERY or module_args.get("rehearse_removals"):
                return Host.execute(host, module_name, module_args, task_vars)
            host.calls.append((module_name, module_args))
            found = [repository["name"] for repository in module_args.get("repositories") or []]
            for name in unreachable:
                if name in found or name == "archive":
                    return {"failed": True, "msg": f"{module_args['record']}: {name} does not answer."}
            versions = {name: [version_of(name)] for name in module_args["query"]}
            return {"changed": False, "streams": {}, "versions": versions}

        monkeypatch.setattr(host, "execute", execute)

    return limit


@pytest.mark.parametrize(
    ("unreachable", "errors", "shown"),
    [
        ([TOOLKITS], [f"{TOOLKIT}: {TOOLKITS} does not answer."], [DRIVER, PERSISTENCE, ENGINE]),
        ([DOCKERS], [f"{ENGINE}: {DOCKERS} does not answer."], [DRIVER, PERSISTENCE, TOOLKIT]),
        ([DRIVERS], [f"{DRIVER}: {DRIVERS} does not answer."], [ENGINE, TOOLKIT]),
        (
            [DRIVERS, DOCKERS],
            [f"{DRIVER}: {DRIVERS} does not answer.", f"{ENGINE}: {DOCKERS} does not answer."],
            [TOOLKIT],
        ),
        (
            [DRIVERS, DOCKERS, TOOLKITS],
            [
                f"{DRIVER}: {DRIVERS} does not answer.",
                f"{ENGINE}: {DOCKERS} does not answer.",
                f"{TOOLKIT}: {TOOLKITS} does not answer.",
            ],
            [],
        ),
    ],
    ids=["toolkit", "engine", "driver", "driver and engine", "all"],
)
def test_an_unreachable_repository_hides_only_the_parts_that_need_it(host, reachable, unreachable, errors, shown):
    reachable(*unreachable)
    result = host.run(bare(), variables=REPOSITORIES, requires_root=True)
    assert (result["failed"], result["errors"], result["msg"]) == (True, errors, " ".join(errors))
    # Nothing that playbook site acts on.
    assert not {"plan", "acting"} & {*result}
    changes = {part["part"]: part["changes"] for part in result["changes"]}
    assert [part for part in (DRIVER, PERSISTENCE, ENGINE, TOOLKIT) if changes.get(part)] == shown
    # A part that could not be planned is not reported as converged.
    failed = {error.partition(":")[0] for error in errors}
    assert not failed & {*changes}
    text = " ".join(" ".join(line.text for line in plan_text.render(site_report.report({"gpu1": result}))).split())
    assert [text.count(error) for error in errors] == [1] * len(errors)
    assert all(changes[part][0].split(",")[0] in text for part in shown)


def test_the_versions_of_the_other_parts_are_known(host, reachable):
    reachable(TOOLKITS)
    changes = {part["part"]: part["changes"] for part in host.run(bare(), variables=REPOSITORIES)["changes"]}
    assert any("580.95.05" in text for text in changes[DRIVER])


def test_reachable_repositories_are_asked_once(host, reachable):
    reachable()
    assert "failed" not in host.run(bare(), variables=REPOSITORIES)
    assert host.modules == [OBSERVE, QUERY]


def test_parts_that_ask_the_same_repositories_are_not_asked_again(host, reachable):
    # Debian's archive only: one failure, after one time limit.
    reachable("archive")
    result = host.run(bare())
    assert host.modules == [OBSERVE, QUERY]
    assert result["errors"] == ["nvidia_driver: archive does not answer."]
    assert [part["part"] for part in result["changes"] if part["changes"]] == [ENGINE]


def test_a_conflict_of_one_part_shows_the_other_parts(host):
    result = host.run(bare(), variables={"nvidia_container_toolkit_source": "preinstalled"})
    assert (result["failed"], len(result["errors"]), host.modules) == (True, 1, [OBSERVE])
    # The driver's part still has a query, and the proof depends on the toolkit.
    assert [part["part"] for part in result["changes"] if part["changes"]] == [ENGINE]
    assert not {DRIVER, PERSISTENCE, TOOLKIT, PROOF} & {part["part"] for part in result["changes"]}


def test_a_refused_removal_shows_the_parts_that_are_not_removed(host):
    host.rehearsal = {"failed": True, "msg": "Removing libcuda1 would break other installed packages: my-app."}
    there = removable()
    there["files"][owned.DAEMON_JSON] = file("{}")
    result = host.run(there, variables={"nvidia_driver_state": "absent"})
    assert result["failed"]
    shown = {part["part"]: part["changes"] for part in result["changes"]}
    assert DRIVER not in shown
    assert any("live-restore" in text or owned.DAEMON_JSON in text for text in shown[ENGINE])


def test_collected_errors_do_not_fail_the_task(host):
    result = host.run(variables={"nvidia_driver_branch": "58"}, collect_errors=True)
    (error,) = result["errors"]
    assert error.startswith("nvidia_driver_branch is 58")
    assert (result["failed"], result["changed"]) == (False, False)
    assert site_report.report({"gpu1": result})[0]["state"] == "failed"
