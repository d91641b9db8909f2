# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import jinja2
import jinja2.nativetypes
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host, platform

TASKS = Path(__file__).resolve().parents[3] / "roles" / "nvidia_driver" / "tasks"


def load(name: str) -> list[dict]:
    return yaml.safe_load((TASKS / name).read_text(encoding="utf-8"))


def test_the_key_is_had_before_anything_is_removed():
    tasks = load("packages.yml")
    key = next(place for place, task in enumerate(tasks) if "gpufleet.hosts.signing_key" in task)
    includes = [str(task.get("ansible.builtin.include_tasks", "")) for task in tasks]
    repository = next(place for place, text in enumerate(includes) if text == "repositories.yml")
    removes = [place for place, task in enumerate(tasks) if "ansible.builtin.file" in task]
    assert key < min([repository, *removes])


def test_the_key_is_had_once():
    assert [path.name for path in sorted(TASKS.glob("*.yml")) if "hosts.signing_key:" in path.read_text()] == [
        "packages.yml"
    ]


def test_before_the_driver_may_come_only_files_of_apts_are_written():
    tasks = load("packages-apt.yml")
    place = next(
        number for number, task in enumerate(tasks) if task.get("ansible.builtin.include_tasks") == "files.yml"
    )
    assert "selectattr('path', 'match', '/etc/apt/')" in tasks[place]["vars"]["__nvidia_driver_files"]
    names = [task["name"] for task in tasks]
    # apt takes dependencies at the pinned version alone.
    assert place < names.index("Packages | Ask what would give way to it")


def test_what_gives_way_with_apt_keeps_its_configuration_but_for_modules():
    tasks = {task["name"]: task for task in load("packages-apt.yml")}
    replace = tasks["Packages | Install the driver in the place of another"]["ansible.builtin.command"]["argv"]
    assert "--purge" not in replace
    purging = [name for name, task in tasks.items() if task.get("ansible.builtin.apt", {}).get("purge")]
    assert [tasks[name]["ansible.builtin.apt"]["name"] for name in purging] == ["{{ __nvidia_driver_plan.todo.purge }}"]


def test_apt_takes_nothing_away_that_was_not_simulated():
    tasks = {task["name"]: task for task in load("packages-apt.yml")}
    simulated = tasks["Packages | Ask what would give way to it"]["when"]
    assert simulated == "(__nvidia_driver_plan.todo.install + __nvidia_driver_plan.todo.remove) | length > 0"
    assert tasks["Packages | Install the driver in the place of another"]["when"] == (
        "__nvidia_driver_plan.todo.remove | length > 0"
    )


def test_nothing_that_puts_back_hides_why_the_installation_failed():
    reading = {"ansible.builtin.include_role", "ansible.builtin.include_tasks"}
    acting = [
        task
        for name in ("restore.yml", "restore-apt.yml", "restore-dnf.yml")
        for task in load(name)
        if not reading & set(task)
    ]
    assert len(acting) > 6
    assert [task["name"] for task in acting if task.get("failed_when") is not False] == []
    # Looked at last, so that the message says what is lacking then.
    assert "ansible.builtin.include_role" in load("restore.yml")[-1]


def test_with_zypper_what_came_is_locked_before_anything_else_is_done():
    tasks = {task["name"]: task for task in load("packages-zypper.yml")}
    names = ["Let go of the driver's own locks", "Install the driver", "Look at what came", "Lock what came"]
    assert list(tasks) == [f"Packages | {name}" for name in names]
    lock = tasks["Packages | Lock what came"]
    held = {name: value for name, value in lock["gpufleet.hosts.package_hold"].items() if name != "names"}
    assert held == {"package_manager": "zypper"}
    # Of the host as it is now: a package that came along is one of them.
    came = driver_plan.plan(host("sles-15"), {}, platform("sles-15"))["packages"]
    there = host("sles-15", packages=dict.fromkeys([*came, "libnvidia-along"], "580.95.05-1"))
    variables = {"gpufleet_host": there, "__nvidia_driver_request": {}, "__nvidia_driver_platform": platform("sles-15")}
    hold = evaluated(lock, variables)
    assert sorted(hold) == sorted(there["packages"])
    for name in hold:
        there["packages"][name]["held"] = True
    assert driver_plan.plan(there, {}, platform("sles-15"))["todo"]["hold"] == []
    assert evaluated(lock, variables) == []


def evaluated(task: dict, variables: dict) -> list[str]:
    """Have the names that a task holds, or none where it is left out."""
    environment = jinja2.nativetypes.NativeEnvironment()
    # Filters of collections have dots in their names, which Ansible's own templates alone can read.
    environment.filters["plan"] = driver_plan.plan
    text = task["vars"]["__nvidia_driver_now"].replace("gpufleet.hosts._nvidia_driver_plan", "plan")
    now = environment.from_string(text).render(variables)
    values = {"__nvidia_driver_now": now, "__nvidia_driver_plan": {"todo": {"install": ["x"]}}}
    if not all(environment.compile_expression(condition)(**values) for condition in task["when"]):
        return []
    return environment.from_string(task["gpufleet.hosts.package_hold"]["names"]).render(values)


def test_what_nothing_needs_any_more_is_asked_for_without_the_network():
    asking = [
        task["ansible.builtin.command"]["argv"]
        for task in load("remove-dnf.yml")
        if "repoquery" in task.get("ansible.builtin.command", {}).get("argv", [])
    ]
    assert [argv[:4] for argv in asking] == [["dnf", "--quiet", "--disablerepo=*", "repoquery"]]


def test_packages_that_brought_the_repository_go_also_where_ours_is_there():
    for manager in ("apt", "dnf", "zypper"):
        tasks = {task["name"]: task for task in load(f"repository-{manager}.yml")}
        remove = tasks["Repository | Remove the packages that brought it"]
        assert remove["when"] == "__nvidia_driver_plan.todo.remove_packages | length > 0"
    include = next(task for task in load("packages.yml") if task["name"] == "Packages | Make the repositories known")
    assert "__nvidia_driver_plan.todo.remove_packages | length > 0" in include["when"]
