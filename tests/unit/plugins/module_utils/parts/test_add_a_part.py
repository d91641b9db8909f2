# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The walk "Add a part" of CONTRIBUTING.md, in a copy of the collection: it owns a package, a file and a unit."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.tests.unit.plugins import walk

UTILS = "ansible_collections.gpufleet.hosts.plugins.module_utils"
NEW = {
    "plugins/module_utils/example/__init__.py": "",
    "plugins/module_utils/example/part.py": f'''"""Part example: an exporter of figures about the host."""

import dataclasses

from {UTILS}.base.variable_fields import read, variable
from {UTILS}.package_managers.installed_packages import is_installed
from {UTILS}.packages import part_removal
from {UTILS}.parts import steps
from {UTILS}.parts.declaration import Declaration, Owns
from {UTILS}.parts.part_plan import of_steps

PACKAGE, FILE, UNIT = "host-exporter", "/etc/host-exporter.conf", "host-exporter.service"


@dataclasses.dataclass(frozen=True)
class ExampleRequest:
    state: str = variable("present", choices=("present", "absent"))
    port: int = variable(9400, minimum=1)


def plan(context, _parts):
    host, request = context.host, read(ExampleRequest, "example", context.values["example"])
    if request.state == "absent":
        return part_removal.plan(host, "example", PART.owns)
    content, unit = f"port={{request.port}}\\n", host["services"].get(UNIT) or {{}}
    return of_steps([
        *([] if is_installed(host, PACKAGE) else [steps.install([PACKAGE])]),
        *([] if host["files"][FILE]["content"] == content else [steps.file(FILE, content)]),
        *steps.service(
            UNIT,
            enable=unit.get("unit_file_state") != "enabled",
            start=unit.get("active_state") != "active",
        ),
    ])


PART = Declaration(
    name="example",
    plan=plan,
    request=ExampleRequest,
    owns=Owns(files=(FILE,), units=(UNIT,), packages=("^host-exporter$",), verified=True),
)
''',
    "roles/example/tasks/main.yml": """---
- name: Plan the changes
  ansible.builtin.include_role:
    name: gpufleet.hosts.observe
    tasks_from: plan.yml
  vars:
    __observe_parts: [example]
  when: not gpufleet_is_planned | default(false)

- name: Apply the steps
  ansible.builtin.include_tasks: ../../observe/tasks/steps.yml
  vars:
    __observe_record: example
    __observe_steps: "{{ gpufleet_plan.example.steps }}"
""",
}
# What the walk changes in files that exist: the text before which a line is inserted, and the line.
EDITS = {
    "plugins/module_utils/site/registry.py": [
        ("DECLARATIONS: tuple", f"from {UTILS}.example.part import PART as EXAMPLE\n\n"),
        ("    DRIVER_VOLUME,\n", "    EXAMPLE,\n"),
    ],
    "playbooks/tasks/tags.yml": [("    - driver_volume\n", "    - example\n")],
    "tests/unit/plugins/module_utils/test_layout.py": [('    "observe",\n', '    "example",\n')],
    "tests/affected.yml": [
        ("  plugins/module_utils/facts/:", "  plugins/module_utils/example/: {scenarios: [default]}\n"),
        ("  roles/gaudi_driver/:", "  roles/example/: {scenarios: [default]}\n"),
    ],
    "plugins/modules/gpu_host_plan.py": [("      - driver_volume\n", "      - example\n")],
    "README.md": [
        ("| [`observe`]", "| [`example`](roles/example/README.md) | an exporter of figures about the host |\n")
    ],
}
MOST_FILES = 6
# Runs in the copy and prints what a user would see of the part.
PROBE = """
import json, pathlib
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import package_queries, part_health, turns_of_parts
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts, registry, unknown_variables
from ansible_collections.gpufleet.hosts.tests.drift import items
from ansible_collections.gpufleet.hosts.tests.unit.plugins import site_samples

FILE, UNIT, RECORD = "/etc/host-exporter.conf", "host-exporter.service", "/var/lib/gpufleet/example.json"
bare = site_samples.bare(gpus=())
bare["files"][FILE] = {"exists": False, "content": None, "mode": None}
known = {"packages": ["host-exporter"], "requested": ["host-exporter"], "files": {}}
there = {**bare, "installed_packages": {**bare["installed_packages"], "host-exporter": "1.0 amd64"}}
there["files"] = {**bare["files"], FILE: site_samples.file("port=9400\\n")}
there["files"][RECORD] = site_samples.file(json.dumps(known))
there["services"] = {**bare["services"], UNIT: site_samples.running(UNIT)}
failed = {**there, "services": {**there["services"], UNIT: {**there["services"][UNIT], "active_state": "failed"}}}
failed["files"] = {**there["files"], FILE: bare["files"][FILE]}

def planned(host, **values):
    return plan_of_all_parts.plan(site_samples.context(host, {"example": values}), ["example"])

def shown(parts):
    (one,) = package_queries.changes(parts)
    return {"changes": one["changes"], "apply": turns_of_parts.apply(parts, check_mode=False)}

removal = planned(there, state="absent")
owned = registry.observed()
print(json.dumps(plain({
    "bare": shown(planned(bare)), "there": shown(planned(there)), "removal": shown(removal),
    "rehearsal": package_queries.rehearsal(removal),
    "drift": sorted(items.in_plan("example", planned(bare)["example"].plan, bare)),
    "repair": shown(planned(failed)), "healthy": part_health.problems(there), "problems": part_health.problems(failed),
    "typo": unknown_variables.unknown_names(["example_prot"]).errors,
    "owned": [FILE in owned["files"], UNIT in owned["services"]],
    "patterns": "^host-exporter$" in owned["package_patterns"],
    "order": [turn for turn in registry.order() if turn["part"] == "example"],
})))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Follow the walk in a copy of the collection, and return what the probe prints."""
    home = tmp_path_factory.mktemp("walk")
    copy = walk.copy(home, ["tests/affected.yml", "README.md"])
    for path, text in NEW.items():
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_text(text, encoding="utf-8")
    walk.edit(copy, EDITS)
    return walk.probe(home, PROBE)


def test_the_walk_touches_few_files() -> None:
    assert [path for path in EDITS if not (walk.ROOT / path).is_file()] == []
    assert len(EDITS) <= MOST_FILES
    assert [path for path in EDITS if f"`{path}`" not in walk.page("Add a part")] == []


def test_the_plan_shows_the_part(seen: dict[str, Any]) -> None:
    install = ["install host-exporter", "write /etc/host-exporter.conf", "enable and start host-exporter.service"]
    assert seen["bare"] == {"changes": install, "apply": {"example": "planned"}}
    assert seen["there"] == {"changes": [], "apply": {}}
    assert seen["order"] == [{"part": "example", "role": True, "removal": False}]


def test_the_observation_gets_what_the_part_owns(seen: dict[str, Any]) -> None:
    assert (seen["owned"], seen["patterns"]) == ([True, True], True)


def test_verify_names_what_is_broken_and_the_next_run_repairs_it(seen: dict[str, Any]) -> None:
    assert seen["healthy"] == []
    file, unit = seen["problems"]
    assert file.startswith("/etc/host-exporter.conf, which role example wrote, is missing.")
    assert unit.startswith("host-exporter.service of role example is failed.")
    assert seen["repair"]["changes"] == ["write /etc/host-exporter.conf", "start host-exporter.service"]


def test_the_drift_test_breaks_each_item(seen: dict[str, Any]) -> None:
    items = [["file", "/etc/host-exporter.conf"], ["package", "host-exporter"], ["service", "host-exporter.service"]]
    assert seen["drift"] == items


def test_absent_removes_everything_that_the_part_owns(seen: dict[str, Any]) -> None:
    gone = ["disable and stop host-exporter.service", "remove /etc/host-exporter.conf", "remove host-exporter"]
    assert seen["removal"] == {"changes": gone, "apply": {"example": "planned"}}
    assert seen["rehearsal"]["rehearse_removals"][0]["remove"] == ["host-exporter"]


def test_its_variables_are_checked(seen: dict[str, Any]) -> None:
    assert seen["typo"] == ["example_prot is not a variable of role example. Did you mean example_port?"]
