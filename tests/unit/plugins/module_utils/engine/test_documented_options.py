# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of each example in docs/container-engine.md, on a host with Docker and on a bare host."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import plan as daemon_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import record
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DEFAULT_PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.managed_keys import EMPTY_RECORD
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.plan import MANAGER
from ansible_collections.gpufleet.hosts.tests.unit.plugins.engine_samples import host, plan

PAGE = Path(__file__).resolve().parents[5] / "docs/container-engine.md"
CE = {"docker-ce": "5:28.5.1-1", "docker-ce-cli": "5:28.5.1-1", "containerd.io": "2.1.5"}
PREFIX = "container_engine_"
# What each example changes in daemon.json, and what applies it.
EXPECTED = {
    ("data-root",): "restart",
    ("default-address-pools",): "restart",
    ("log-driver", "log-opts"): "restart",
    ("proxies",): "restart",
    ("registry-mirrors",): "reload",
}


def examples() -> list[dict[str, t.Any]]:
    """Return the variables of each example of the section, without their prefix."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Common options\n")[2].partition("\n## ")[0]
    found = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", section, re.DOTALL | re.MULTILINE)]
    return [{name[len(PREFIX) :]: value for name, value in variables.items()} for variables in found]


EXAMPLES = {tuple(sorted(example["docker_options"])): example for example in examples()}


def test_page_has_an_example_of_each_purpose() -> None:
    assert set(EXAMPLES) == set(EXPECTED)


@pytest.mark.parametrize("keys", EXPECTED, ids=" ".join)
def test_example_changes_a_host_with_docker(keys: tuple[str, ...]) -> None:
    done = plan(host("el-9", CE), **EXAMPLES[keys])
    assert done.problems == []
    (text,) = [text for text in done.changes if DEFAULT_PATH in text]
    assert all(key in text for key in keys)


@pytest.mark.parametrize("keys", EXPECTED, ids=" ".join)
def test_example_has_no_unknown_option_on_a_bare_host(keys: tuple[str, ...]) -> None:
    done = plan(host("debian-13"), **EXAMPLES[keys])
    assert (done.problems, done.config_needed) == ([], True)
    misspelled = {f"{key}x": value for key, value in EXAMPLES[keys]["docker_options"].items()}
    assert plan(host("debian-13"), docker_options=misspelled).problems


@pytest.mark.parametrize(("keys", "expected"), EXPECTED.items(), ids=[" ".join(keys) for keys in EXPECTED])
def test_page_says_what_applies_the_options(keys: tuple[str, ...], expected: str) -> None:
    state, options = record.State(EMPTY_RECORD), EXAMPLES[keys]["docker_options"]
    done = daemon_plan.plan(None, state, MANAGER, options, present=True, lists="union", flags=[], path=DEFAULT_PATH)
    assert ("restart" if done.restart_keys else "reload") == expected


def test_all_examples_together_are_one_dictionary() -> None:
    options = {key: value for example in EXAMPLES.values() for key, value in example["docker_options"].items()}
    assert plan(host("el-9", CE), docker_options=options).problems == []
