# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`module_defaults` for an action group: each module of the group accepts the group's common options."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gpufleet.hosts.plugins.modules import gpu_container
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import module_options

MODULES = gpu_container.__name__.rpartition(".")[0]
GROUPS = yaml.safe_load((Path(gpu_container.__file__).parents[2] / "meta" / "runtime.yml").read_text())["action_groups"]
# What each module requires in addition. The action plugin sets the phase.
REQUIRED = {"gpu_container": {"name": "c", "image": "i", "x_private": {"_phase": "plan"}}}


def fail(capsys, module, arguments):
    """Run a module that fails before it reads the host, and return its message."""
    with patch_module_args({**REQUIRED.get(module, {}), **arguments}), pytest.raises(SystemExit):
        importlib.import_module(f"{MODULES}.{module}").main()
    return json.loads(capsys.readouterr().out)["msg"]


@pytest.mark.parametrize("module", GROUPS["gpu"])
def test_modules_that_use_the_driver_take_its_root_and_a_timeout(capsys, module):
    assert fail(capsys, module, {"driver_root": "/", "timeout": -1}).startswith("timeout=-1 is invalid.")


@pytest.mark.parametrize("module", GROUPS["driver_volume"])
def test_modules_that_use_the_driver_volume_take_its_directory(capsys, module):
    message = fail(capsys, module, {"driver_volume_path": "/v", "timeout": -1})
    assert message.startswith("timeout=-1 is invalid.")


def test_every_module_that_takes_both_options_is_in_the_group():
    found = {
        path.stem
        for path in Path(gpu_container.__file__).parent.glob("[!_]*.py")
        if {"driver_root", "timeout"} <= set(module_options.options(f"gpufleet.hosts.{path.stem}"))
    }
    assert found == set(GROUPS["gpu"])
