# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options from the documentation of installed modules, found in the same places as by Ansible."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import engine_module_options
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import module_options

DOCKER, PODMAN = engine_module_options.MODULES["docker"], engine_module_options.MODULES["podman"]
GPU_CONTAINER = "gpufleet.hosts.gpu_container"
USED = {
    engine_module_options.MODULES[engine]: sorted(
        {
            *engine_module_options.NAMES[engine].values(),
            *engine_module_options.CONNECTION_OPTIONS[engine],
            *engine_module_options.REMOVAL_OPTIONS[engine],
            "log_driver",
        }
    )
    for engine in ("docker", "podman")
}
# Module, names, and the names that are not options of the module.
UNKNOWN = [
    *((module, names, []) for module, names in USED.items()),
    (DOCKER, ["log_drivr", "ports", "log_opt", "docker_url", "cmd_args"], ["log_drivr", "cmd_args"]),
    (PODMAN, ["log_drivr", "ports", "log_opt", "cmd_args", "networks"], ["log_drivr", "networks"]),
    (GPU_CONTAINER, ["gpus", "gpu", "engine_options", "log_driver"], ["gpu", "log_driver"]),
    ("gpufleet.hosts.nonesuch", ["whatever"], []),
]
SUGGESTED = [
    (DOCKER, "log_drivr", f" Did you mean log_driver? All of its options: ansible-doc {DOCKER}"),
    (PODMAN, "securty_opt", f" Did you mean security_opt? All of its options: ansible-doc {PODMAN}"),
    (GPU_CONTAINER, "gpu", f" Did you mean gpus? All of its options: ansible-doc {GPU_CONTAINER}"),
    (DOCKER, "zzzz", f" All of its options: ansible-doc {DOCKER}"),
]
PROGRAM = """
import json, sys
from ansible.plugins.loader import init_plugin_loader, module_loader
init_plugin_loader()
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import module_options
asked = json.load(sys.stdin)
there = [module for module in asked["modules"] if module_loader.find_plugin_with_context(module).resolved]
unknown = [module_options.unknown(module, names) for module, names, _expected in asked["unknown"]]
suggested = [module_options.suggestion(module, name) for module, name, _expected in asked["suggested"]]
print("ANSWER", json.dumps({"there": there, "unknown": unknown, "suggested": suggested}))
"""


@pytest.fixture(scope="module")
def answer():
    roots = [str(Path(engine_module_options.__file__).parents[6]), os.environ.get("ANSIBLE_COLLECTIONS_PATH") or ""]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps({"modules": [DOCKER, PODMAN], "unknown": UNKNOWN, "suggested": SUGGESTED}),
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": ":".join(filter(None, roots))},
    )
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("ANSWER "))[7:])
    assert found["there"] == [DOCKER, PODMAN], "requirements-dev.txt brings both collections"
    return found


@pytest.mark.parametrize("number", range(len(UNKNOWN)))
def test_unknown_options_are_found(answer, number):
    assert answer["unknown"][number] == UNKNOWN[number][2]


@pytest.mark.parametrize("number", range(len(SUGGESTED)))
def test_similar_options_are_suggested(answer, number):
    assert answer["suggested"][number] == SUGGESTED[number][2]


SOURCE = """
DOCUMENTATION = r'''
attributes:
  check_mode:
    support: full
options:
  name:
    description: A name.
    suboptions:
      inner:
        description: Not an option of the module.
  other:
    type: str
notes:
  after: x
'''
RETURN = r'''
  sample: x
'''
DEFAULTS = {
  given: 1
}
"""


def test_other_keys_of_a_module_are_not_options():
    text = module_options.options_text(module_options.documentation_text(SOURCE))
    assert [line for line in text.splitlines() if line[2] != " "] == ["  name:", "  other:"]
    without = module_options.documentation_text(SOURCE.replace("options:", "choices:"))
    assert module_options.options_text(without) == ""
    assert module_options.documentation_text("RETURN = r''''''") == ""
