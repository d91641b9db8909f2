# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples in the documentation are valid tasks and cover the common cases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import engine_module_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import (
    parse_request,
)
from ansible_collections.gpufleet.hosts.plugins.modules import gpu_container

MODULE = "gpufleet.hosts.gpu_container"
PAGE = Path(gpu_container.__file__).parents[2] / "docs" / "gpu-container.md"


def _tasks(text):
    return [task[MODULE] for task in yaml.safe_load(text) if MODULE in task]


def _of_page():
    text = PAGE.read_text(encoding="utf-8")
    return [
        one for block in re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE) for one in _tasks(block)
    ]


SHOWN = {"page": _of_page(), "module": _tasks(gpu_container.EXAMPLES)}
EVERY = [(place, number) for place, tasks in SHOWN.items() for number in range(len(tasks))]


@pytest.mark.parametrize(("place", "number"), EVERY)
def test_example_is_a_valid_task(place, number):
    arguments = SHOWN[place][number]
    result = ArgumentSpecValidator(gpu_container.argument_spec()).validate(arguments)
    assert result.error_messages == []
    assert result.unsupported_parameters == set()
    taken = result.validated_parameters
    assert taken["image"] or taken["state"] == "absent"
    if taken["gpus"] is not None:
        parse_request(taken["gpus"])
    for engine in ("docker", "podman"):
        engine_module_options.user_options(engine, taken, taken["engine_options"])


def test_reference_starts_with_the_options_of_users():
    # ansible-doc sorts options by name.
    described = yaml.safe_load(gpu_container.DOCUMENTATION)["options"]
    private = [
        name
        for name in sorted(described)
        if described[name]["description"].__class__ is str and described[name]["description"].startswith("Private")
    ]
    assert private == sorted(described)[-len(private) :]


@pytest.mark.parametrize(
    ("subject", "is_one"),
    [
        ("a public framework image", lambda task: "pytorch/pytorch:" in str(task.get("image"))),
        ("a Deep Learning Container", lambda task: "deep-learning-containers/" in str(task.get("image"))),
        ("arguments for a container started by other means", lambda task: task.get("state") == "rendered"),
        ("one GPU by UUID", lambda task: str(task.get("gpus", [""])).startswith("['GPU-")),
        ("near GPUs exclusively", lambda task: task.get("gpus") == 2 and task.get("exclusive")),
        ("a MIG slice", lambda task: task.get("gpus") == ["0:1"]),
        ("Podman with CDI", lambda task: (task.get("engine"), task.get("isolation")) == ("podman", "cdi")),
        ("a toolkit-free host", lambda task: task.get("isolation") == "volume"),
        ("a training job", lambda task: task.get("shm_size") and task.get("ulimits")),
        ("removing it", lambda task: task.get("state") == "absent"),
    ],
)
@pytest.mark.parametrize("place", list(SHOWN))
def test_common_case_has_an_example(place, subject, is_one):
    assert any(is_one(task) for task in SHOWN[place]), subject
