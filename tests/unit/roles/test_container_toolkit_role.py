# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What role nvidia_container_toolkit runs on a host, with the role's own tasks and given observations."""

from __future__ import annotations

import copy
import re
import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import nvidia_docker_file, own_cdi_units
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import plan as toolkit_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import variables as toolkit_request
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import cdi_program
from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run, old_nvidia_docker, site_samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_toolkit_samples import recorded, registered, unit
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import ROOT, add_package
from ansible_collections.gpufleet.hosts.tests.unit.roles.test_package_lock import Roles

ROLE = "nvidia_container_toolkit"


def test_role_acts_only_where_it_is_needed(tmp_path: Path) -> None:
    missing, complete = site_samples.converged(), site_samples.converged()
    for name, version in unit().items():
        add_package(complete, name, version)
    no_gpu = site_samples.bare(gpus=())
    bare, installed, without = Roles(tmp_path).run(
        ROLE, [missing, complete], [registered(copy.deepcopy(complete))], [no_gpu]
    )
    # The observation after the packages is the second one.
    assert bare[0], bare[1]
    assert ["<run packages.yml>" in bare[1], "<run docker.yml>" in bare[1]] == [True, True]
    for good, results, timeouts in (installed, without):
        assert (good, len(timeouts)) == (True, 1), results
        assert "<run " not in results


def test_program_for_cdi_is_written_only_where_it_differs(tmp_path: Path) -> None:
    missing = site_samples.converged()
    missing["engines"]["docker"]["version"] = "28.3.3"
    request = toolkit_request.read({"source": "none", "isolations": ["cdi"]})
    planned = toolkit_plan.without_toolkit(missing, request, engines={}, cdi_program=cdi_program.digest)
    complete = copy.deepcopy(missing)
    contents = {owned.CDI_PROGRAM: cdi_program.digest(), **planned.own_cdi.files}
    complete["files"] |= {path: {"exists": True, "content": text} for path, text in contents.items()}
    complete["services"][own_cdi_units.UNIT] = {"load_state": "loaded", "unit_file_state": "enabled"}
    version = missing["accelerators"]["nvidia"]["driver"]["loaded"]
    spec = {"path": owned.CDI_REFRESHED, "driver_versions": [version], "uuids": [], "ours": True, "digest": ""}
    complete["cdi_specs"] = [spec]
    variables: dict[str, Any] = {f"{ROLE}_source": "none", f"{ROLE}_isolations": ["cdi"]}
    # Check mode: the tasks would change this machine.
    bare, converged = Roles(tmp_path).run(ROLE, [missing], [complete], dry=True, **variables)
    assert bare[0], bare[1]
    # The program, the unit, and the reload of systemd.
    assert bare[1].count("ok [true") >= 3, bare[1]
    assert (converged[0], converged[1].count("ok [true"), len(converged[2])) == (True, 0, 1), converged[1]


def test_program_nvidia_docker_is_written_and_removed_only_where_it_differs(tmp_path: Path) -> None:
    def with_program(content: str | None) -> dict[str, Any]:
        host = site_samples.converged()
        host["files"][owned.WRAPPER] = {"exists": content is not None, "content": content, "mode": "0755"}
        return host

    current = nvidia_docker_file.digest(site_samples.converged()["root_python"])
    hosts = [[with_program(content)] for content in (None, "0" * 64, current)]
    cases = [
        ({}, [0, 1, 1]),
        ({f"{ROLE}_wrapper": True}, [1, 1, 0]),
        ({f"{ROLE}_wrapper": True, f"{ROLE}_state": "absent"}, [0, 1, 1]),
    ]
    for number, (values, expected) in enumerate(cases):
        roles = Roles(tmp_path / str(number))
        for name in ("wrapper.yml", "absent.yml"):
            tasks = [{"ansible.builtin.debug": {"msg": f"<run {name}>"}}]
            (tmp_path / f"{number}/roles/{ROLE}/tasks/{name}").write_text(yaml.safe_dump(tasks))
        runs = roles.run(ROLE, *hosts, **{f"{ROLE}_source": "none"}, **values)
        assert [good for good, _results, _observations in runs] == [True] * 3, runs
        assert ["<run " in results for _good, results, _observations in runs] == [*map(bool, expected)]


def test_only_what_the_role_installed_is_removed(tmp_path: Path) -> None:
    theirs, ours = site_samples.converged(), site_samples.converged()
    for there in (theirs, ours):
        for name, version in unit().items():
            add_package(there, name, version)
    ours["files"].update(recorded(*unit()))
    kept, removed = Roles(tmp_path).run(ROLE, [theirs], [ours], nvidia_container_toolkit_state="absent")
    assert (kept[0], "<run absent.yml>" in kept[1]) == (True, False), kept[1]
    assert (removed[0], "<run absent.yml>" in removed[1]) == (True, True), removed[1]


def test_directory_is_removed_and_reported_only_if_it_is_empty(tmp_path: Path) -> None:
    empty, full, missing = tmp_path / "empty", tmp_path / "full", tmp_path / "missing"
    (full / "file").mkdir(parents=True)
    empty.mkdir()
    file = ROOT / "roles/observe/tasks/empty_directory.yml"
    tasks = [
        {"ansible.builtin.include_tasks": str(file), "vars": {"__observe_directory": str(path)}}
        for path in (empty, full, missing)
    ]
    (tmp_path / "play.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    argv = ["ansible-playbook", "-i", "localhost,", "-c", "local", str(tmp_path / "play.yml")]
    argv += ["-e", f"ansible_python_interpreter={sys.executable}", "-e", f"ansible_remote_tmp={tmp_path / 'remote'}"]
    for options, changed, remains in ((["--check"], 0, True), ([], 1, False), ([], 0, False)):
        done = ansible_run.run([*argv, *options])
        assert f"changed={changed} " in done.stdout, done.stdout + done.stderr
        assert (done.returncode, empty.exists(), full.exists()) == (0, remains, True)


@pytest.mark.parametrize("tasks_of", [f"{ROLE}/tasks/cdi.yml", "observe/tasks/cdi_own_units.yml"])
@pytest.mark.parametrize(
    ("reload", "enable", "warns"), [(True, [], True), (False, ["x.service"], True), (False, [], False)]
)
def test_containers_with_gpus_are_named_before_systemd_reloads(
    tasks_of: str, reload: bool, enable: list[str], warns: bool
) -> None:
    tasks = yaml.safe_load((ROOT / "roles" / tasks_of).read_text(encoding="utf-8"))
    assert tasks[0]["ansible.builtin.include_tasks"] == "../../observe/tasks/reload_warning.yml"
    condition = jinja2.Environment().compile_expression(tasks[0]["when"])
    planned = {"reload": reload, "enable": enable}
    assert condition(__observe_cdi=planned, __nvidia_container_toolkit_plan={"cdi": planned}) == warns


# Stands for docker_daemon_config: reports its options, and that dockerd needs a reload.
DAEMON_CONFIG = """\
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({name: {"type": "raw"} for name in ("managed_by", "options", "purge", "validate")})
wanted = {key: module.params[key] for key in ("managed_by", "options")}
module.exit_json(changed=True, msg=str(wanted), config={}, pending={"reload": [], "restart": []})
"""


def test_docker_gets_the_options_of_the_role_and_the_restart_for_the_hook(tmp_path: Path) -> None:
    roles = Roles(tmp_path)
    tasks = tmp_path / "roles/nvidia_container_toolkit/tasks"
    source = (ROOT / "roles/nvidia_container_toolkit/tasks/docker.yml").read_text(encoding="utf-8")
    (tasks / "docker.yml").write_text(source.replace("gpufleet.hosts.container_engine", "container_engine"))
    source = (ROOT / "roles/container_engine/tasks/docker_config.yml").read_text(encoding="utf-8")
    source = source.replace("gpufleet.hosts.docker_daemon_config", "daemon_config")
    (tmp_path / "roles/container_engine/tasks/docker_config.yml").write_text(source)
    (tmp_path / "library/daemon_config.py").write_text(DAEMON_CONFIG)
    there = site_samples.converged()
    for name, version in unit().items():
        add_package(there, name, version)
    there["services"]["docker.service"]["active_since_us"] = 4711
    there["files"][owned.CONTAINER_TOOLKIT_RESTART_MARKER] = {"exists": True, "content": "4711\n"}
    ((good, results, _timeouts),) = roles.run(ROLE, [there], container_engine_restart_policy="never")
    assert good, results
    assert "'managed_by': 'nvidia_container_toolkit'" in results
    assert "/usr/bin/nvidia-container-runtime" in results
    assert "NVIDIA's hook for --gpus needs a restart, and container_engine_restart_policy is never" in results


# Stands for package_transaction.
TRANSACTION = """\
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({}, supports_check_mode=True)
module.fail_json(msg="<the transaction failed>")
"""


def test_files_of_a_purge_are_restored_even_if_the_transaction_fails(tmp_path: Path) -> None:
    there = site_samples.converged()
    for name, version in {**unit(), "nvidia-docker2": "2.14.0-1"}.items():
        add_package(there, name, version)
    there["nvidia_docker"] = old_nvidia_docker.traces()
    roles = Roles(tmp_path)
    tasks, source = tmp_path / f"roles/{ROLE}/tasks", ROOT / f"roles/{ROLE}/tasks/packages.yml"
    before, _name, after = source.read_text(encoding="utf-8").partition("gpufleet.hosts.package_transaction:")
    options, _always, rest = after.partition("  always:")
    assert "purge:" in options
    (tasks / "packages.yml").write_text(f"{before}transaction:\n  always:{rest}")
    (tmp_path / "library/transaction.py").write_text(TRANSACTION)
    shown = [{"ansible.builtin.debug": {"msg": "<steps {{ __nvidia_container_toolkit_steps }}>"}}]
    (tasks / "migrate.yml").write_text(yaml.safe_dump(shown))
    ((good, results, _observations),) = roles.run(ROLE, [there], nvidia_container_toolkit_migrate=True)
    assert not good
    assert "<the transaction failed>" in results
    first, second = (text.split(">")[0] for text in results.split("<steps ")[1:])
    assert "'do': 'save'" in first
    assert second == "[{'do': 'restore', 'path': '/etc/docker/daemon.json'}]"


def test_steps_of_the_migration_are_carried_out_around_the_packages_and_before_docker_reloads(tmp_path: Path) -> None:
    first = site_samples.converged()
    for name, version in {**unit(), "nvidia-docker2": "2.14.0-1"}.items():
        add_package(first, name, version)
    second = copy.deepcopy(first)
    del second["installed_packages"]["nvidia-docker2"], second["packages"]["nvidia-docker2"]
    second["nvidia_docker_traces"] = True
    roles = Roles(tmp_path)
    tasks = tmp_path / f"roles/{ROLE}/tasks"
    plugin = tmp_path / "action_plugins/gpu_host_plan.py"
    traces = {"PURGED": old_nvidia_docker.traces(saved=["daemon.json"]), "OLD": old_nvidia_docker.traces()}
    call = 'host["nvidia_docker"] = self._run_module(MIGRATION, gather)["traces"]'
    given = f'host["nvidia_docker"] = {traces!r}["PURGED" if host["nvidia_docker_traces"] else "OLD"]'
    assert call in plugin.read_text(encoding="utf-8")
    plugin.write_text(plugin.read_text(encoding="utf-8").replace(call, given))
    source = (ROOT / f"roles/{ROLE}/tasks/packages.yml").read_text(encoding="utf-8")
    before, _name, after = source.partition("gpufleet.hosts.package_transaction:")
    _options, always, rest = after.partition("  always:")
    text = f"{before}ansible.builtin.debug: {{msg: <transaction>}}\n{always}{rest}"
    (tasks / "packages.yml").write_text(text.replace("gpufleet.hosts.gpu_host_info", "next_observation"))
    shown = [{"ansible.builtin.debug": {"msg": "<steps {{ __nvidia_container_toolkit_steps | map(attribute='do') }}>"}}]
    (tasks / "migrate.yml").write_text(yaml.safe_dump(shown))
    ((good, results, _observations),) = roles.run(ROLE, [first, second], nvidia_container_toolkit_migrate=True)
    assert good, results
    found = re.findall(r"<(?:steps [^>]*|transaction|run docker.yml)>", results)
    assert found == [
        "<steps ['save']>",
        "<transaction>",
        "<steps ['restore']>",
        "<run docker.yml>",
        "<steps ['forget']>",
    ]
