# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The walk "Add an option" of CONTRIBUTING.md, in a copy of the collection: a delay of the reboot."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.tests.unit.plugins import walk

OPTION = "nvidia_driver_reboot_delay"
ROLE = "roles/nvidia_driver"
# What the walk changes in files that exist: the text before which a line is inserted, and the line.
EDITS = {
    "plugins/module_utils/driver/variables.py": [
        ("    reboot_timeout: int", "    reboot_delay: int = variable(0, minimum=0)\n"),
    ],
    "plugins/module_utils/driver/part.py": [
        ('"attempt": reboot_decision.attempt(', '"delay": request.reboot_delay, '),
        (": {'; '.join(decision['reasons'])}\"\n", " in {decision['delay']} seconds"),
    ],
    f"{ROLE}/tasks/reboot_host.yml": [
        ("      reboot_timeout:", '      pre_reboot_delay: "{{ __nvidia_driver_plan.reboot.delay }}"\n'),
    ],
    f"{ROLE}/defaults/main.yml": [
        ("# Seconds to wait for a rebooted host.", f"# Seconds to wait before a reboot.\n{OPTION}: 0\n\n"),
    ],
    f"{ROLE}/meta/argument_specs.yml": [
        (
            "      nvidia_driver_reboot_timeout:",
            f"      {OPTION}:\n        description: Seconds to wait before a reboot.\n"
            "        type: int\n        default: 0\n",
        ),
    ],
    "docs/driver.md": [("## Data of a platform", f"`{OPTION}` gives users time to save their work.\n\n")],
    "tests/unit/plugins/module_utils/driver/test_variables.py": [
        ('    ({"reboot_timeout": "60"', '    ({"reboot_delay": "60"}, {"reboot_delay": 60}),\n'),
    ],
}
# `make docs` writes it.
GENERATED = f"{ROLE}/README.md"
MOST_FILES = 8
PROBE = """
import json, pathlib
import jinja2, yaml
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import variables
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import reboot_reasons
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import package_queries, turns_of_parts
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts, unknown_variables
from ansible_collections.gpufleet.hosts.tests.unit.plugins import site_samples

user = {"pid": 42, "command": "train", "devices": [], "open": True, "container": None, "container_name": None}
modules = ["nvidia", "nvidia_modeset", "nvidia_uvm"]
there = site_samples.converged(driver={"loaded": "535.261.03"}, modules_loaded=modules, holders=[user])
there["reboot_reasons"] = reboot_reasons.reasons(there)
asked = {"reboot_policy": "when_required", "reboot_delay": "60"}
parts = plan_of_all_parts.plan(site_samples.context(there, {"nvidia_driver": asked}), ["nvidia_driver"])
plan = parts["nvidia_driver"].plan
root = pathlib.Path("ansible_collections/gpufleet/hosts")
tasks = yaml.safe_load((root / "roles/nvidia_driver/tasks/reboot_host.yml").read_text())
(task,) = [one["gpufleet.hosts.reported_task"] for one in tasks if "gpufleet.hosts.reported_task" in one]
try:
    wrong = variables.read({"reboot_delay": -1})
except VariableError as error:
    wrong = str(error)
print(json.dumps({
    "changes": package_queries.changes(parts)[0]["changes"],
    "check": turns_of_parts.apply(parts, check_mode=True),
    "wait": jinja2.Template(task["arguments"]["pre_reboot_delay"]).render(__nvidia_driver_plan=plan),
    "wrong": wrong,
    "typo": unknown_variables.unknown_names(["nvidia_driver_reboot_dely"]).errors,
}))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Follow the walk in a copy, and return what the probe prints, the page of the role, and the changed files."""
    home = tmp_path_factory.mktemp("walk")
    copy = walk.copy(
        home, ["docs/driver.md", *(f"roles/{path.name}/README.md" for path in (walk.ROOT / "roles").iterdir())]
    )
    walk.edit(copy, EDITS)
    argv = [sys.executable, str(walk.ROOT / "tools/role_readme.py"), "--root", str(copy)]
    subprocess.run(argv, check=True, capture_output=True)
    page = (copy / GENERATED).read_text(encoding="utf-8")
    return {**walk.probe(home, PROBE), "page": page, "changed": walk.changed(copy)}


def test_the_walk_touches_few_files(seen: dict[str, Any]) -> None:
    assert seen["changed"] == sorted([*EDITS, GENERATED])
    assert len(seen["changed"]) <= MOST_FILES


def test_the_walk_is_described() -> None:
    page = walk.page("Add an option")
    names = {path.replace("nvidia_driver", "ROLE") for path in EDITS if path.startswith("roles/")}
    assert [name for name in names if f"`{name}`" not in page and "tasks/" not in name] == []
    assert "`roles/ROLE/tasks/`" in page


def test_the_plan_shows_the_option(seen: dict[str, Any]) -> None:
    (change,) = seen["changes"]
    assert change.startswith("reboot the host in 60 seconds: module")


def test_check_mode_and_a_real_run_get_it_from_the_plan(seen: dict[str, Any]) -> None:
    assert (seen["check"], seen["wait"]) == ({"nvidia_driver": "planned"}, "60")


def test_its_values_are_checked(seen: dict[str, Any]) -> None:
    assert seen["wrong"] == "nvidia_driver_reboot_delay is -1, but must be 0 or more."
    assert seen["typo"] == [
        "nvidia_driver_reboot_dely is not a variable of role nvidia_driver. Did you mean nvidia_driver_reboot_delay?"
    ]


def test_the_page_of_the_role_documents_it(seen: dict[str, Any]) -> None:
    assert "| `nvidia_driver_reboot_delay` | int | `0` |" in seen["page"]
