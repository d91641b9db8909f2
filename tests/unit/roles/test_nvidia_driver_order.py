# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of the tasks in role nvidia_driver, where it matters for safety."""

from __future__ import annotations

from pathlib import Path

import jinja2
import jinja2.nativetypes
import yaml

from ansible_collections.gpufleet.hosts.plugins.filter import driver_internal
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host, platform

TASKS = Path(__file__).resolve().parents[3] / "roles" / "nvidia_driver" / "tasks"


def load(name: str) -> list[dict]:
    return yaml.safe_load((TASKS / name).read_text(encoding="utf-8"))


def test_key_is_installed_before_anything_is_removed():
    tasks = load("packages.yml")
    key = next(place for place, task in enumerate(tasks) if "gpufleet.hosts.signing_key" in task)
    includes = [str(task.get("ansible.builtin.include_tasks", "")) for task in tasks]
    repository = next(place for place, text in enumerate(includes) if text == "repositories.yml")
    removes = [place for place, task in enumerate(tasks) if "ansible.builtin.file" in task]
    assert key < min([repository, *removes])


def test_only_one_task_installs_the_key():
    assert [path.name for path in sorted(TASKS.glob("*.yml")) if "hosts.signing_key:" in path.read_text()] == [
        "packages.yml"
    ]


def test_only_apt_files_are_written_before_the_simulation():
    tasks = load("packages-apt.yml")
    place = next(
        number for number, task in enumerate(tasks) if task.get("ansible.builtin.include_tasks") == "files.yml"
    )
    assert "selectattr('path', 'match', '/etc/apt/')" in tasks[place]["vars"]["__nvidia_driver_files"]
    names = [task["name"] for task in tasks]
    # apt takes dependencies only at the pinned version.
    assert place < names.index("Packages | Simulate the installation")


def test_apt_purges_only_the_planned_packages():
    tasks = {task["name"]: task for task in load("packages-apt.yml")}
    replace = tasks["Packages | Replace the installed driver"]["ansible.builtin.command"]["argv"]
    assert "--purge" not in replace
    purging = [name for name, task in tasks.items() if task.get("ansible.builtin.apt", {}).get("purge")]
    assert [tasks[name]["ansible.builtin.apt"]["name"] for name in purging] == ["{{ __nvidia_driver_plan.todo.purge }}"]


def test_every_removal_with_apt_is_simulated():
    tasks = {task["name"]: task for task in load("packages-apt.yml")}
    simulated = tasks["Packages | Simulate the installation"]["when"]
    assert simulated == "(__nvidia_driver_plan.todo.install + __nvidia_driver_plan.todo.remove) | length > 0"
    assert tasks["Packages | Replace the installed driver"]["when"] == "__nvidia_driver_plan.todo.remove | length > 0"


def test_a_failed_restore_does_not_hide_the_error_of_the_installation():
    includes = {"ansible.builtin.include_role", "ansible.builtin.include_tasks"}
    changing = [
        task
        for name in ("restore.yml", "restore-apt.yml", "restore-dnf.yml")
        for task in load(name)
        if not includes & set(task)
    ]
    assert len(changing) > 6
    assert [task["name"] for task in changing if task.get("failed_when") is not False] == []
    # The last task observes the host, so that the error names what could not be restored.
    assert "ansible.builtin.include_role" in load("restore.yml")[-1]


def test_zypper_locks_the_packages_right_after_the_installation():
    tasks = {task["name"]: task for task in load("packages-zypper.yml")}
    names = [
        "Release the locks on the driver packages",
        "Install the driver",
        "Observe the installed packages",
        "Lock the driver packages",
    ]
    assert list(tasks) == [f"Packages | {name}" for name in names]
    lock = tasks["Packages | Lock the driver packages"]
    held = {name: value for name, value in lock["gpufleet.hosts.package_hold"].items() if name != "names"}
    assert held == {"package_manager": "zypper"}
    # The role locks what is installed now, including dependencies.
    planned = driver_plan.plan(host("sles-15"), {}, platform("sles-15")).packages
    observed = host("sles-15", packages=dict.fromkeys([*planned, "libnvidia-dependency"], "580.95.05-1"))
    variables = {
        "gpufleet_host": observed,
        "__nvidia_driver_request": {},
        "__nvidia_driver_platform": platform("sles-15"),
    }
    hold = names_to_hold(lock, variables)
    assert sorted(hold) == sorted(observed["packages"])
    for name in hold:
        observed["packages"][name]["held"] = True
    assert driver_plan.plan(observed, {}, platform("sles-15")).todo.hold == []
    assert names_to_hold(lock, variables) == []


def names_to_hold(task: dict, variables: dict) -> list[str]:
    """Return the package names that a task holds; none if its conditions skip it."""
    environment = jinja2.nativetypes.NativeEnvironment()
    # Only Ansible's own templating supports filter names with dots.
    environment.filters["plan"] = driver_internal.plan
    text = task["vars"]["__nvidia_driver_new_plan"].replace("gpufleet.hosts._nvidia_driver_plan", "plan")
    new_plan = environment.from_string(text).render(variables)
    values = {"__nvidia_driver_new_plan": new_plan, "__nvidia_driver_plan": {"todo": {"install": ["x"]}}}
    if not all(environment.compile_expression(condition)(**values) for condition in task["when"]):
        return []
    return environment.from_string(task["gpufleet.hosts.package_hold"]["names"]).render(values)


def test_dnf_lists_unneeded_packages_without_the_network():
    queries = [
        task["ansible.builtin.command"]["argv"]
        for task in load("remove-dnf.yml")
        if "repoquery" in task.get("ansible.builtin.command", {}).get("argv", [])
    ]
    assert [argv[:4] for argv in queries] == [["dnf", "--quiet", "--disablerepo=*", "repoquery"]]


def test_packages_with_the_same_repository_are_removed_even_if_the_role_adds_none():
    for manager in ("apt", "dnf", "zypper"):
        tasks = {task["name"]: task for task in load(f"repository-{manager}.yml")}
        remove = tasks["Repository | Remove packages that configure the same repository"]
        assert remove["when"] == "__nvidia_driver_plan.todo.remove_packages | length > 0"
    include = next(task for task in load("packages.yml") if task["name"] == "Packages | Configure the repositories")
    assert "__nvidia_driver_plan.todo.remove_packages | length > 0" in include["when"]
