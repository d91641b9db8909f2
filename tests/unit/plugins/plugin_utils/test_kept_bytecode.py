# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible, started a second time, compiles no module of the collection again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[4] / "plugins"
# The plugins that import from the collection.
IMPORTING = [
    f"{kind}.{file.stem}"
    for kind in ("action", "filter")
    for file in sorted((PLUGINS / kind).glob("*.py"))
    if "\nfrom ansible_collections.gpufleet." in file.read_text(encoding="utf-8")
]
# Print for each plugin, in a process of its own, whether its first import of module_utils uses the bytecode. Import all
# plugins then, and print the modules that are loaded, and those that Python compiles.
START = """
import importlib, json, os, sys
# What the plugins import of Ansible, once for all processes.
from ansible.module_utils.common import arg_spec
from ansible.plugins import action
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader()
PREFIX = "ansible_collections.gpufleet.hosts.plugins."

class FirstImport:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(PREFIX + "module_utils.") and name.count(".") > PREFIX.count(".") + 1:
            finders = [getattr(finder, "__name__", "") for finder in sys.meta_path]
            print(json.dumps([plugin, "KeptBytecodeFinder" in finders]), flush=True)
            os._exit(0)

for plugin in sys.argv[1:]:
    if os.fork() == 0:
        sys.meta_path.insert(0, FirstImport())
        importlib.import_module(PREFIX + plugin)
        os._exit(0)
    os.wait()
compiled = []
sys.addaudithook(lambda event, values: compiled.append(str(values[1])) if event == "compile" else None)
for plugin in sys.argv[1:]:
    importlib.import_module(PREFIX + plugin)
files = {module.__file__ for name, module in sys.modules.items() if name.startswith(PREFIX + "module_utils.")}
print(json.dumps(["all", sorted(files), sorted(files & set(compiled))]))
"""


@pytest.fixture(scope="module")
def second_start():
    """Return what the second start prints, by its first word."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", START, *IMPORTING]
    for _start in range(2):
        start = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return {name: found for name, *found in map(json.loads, start.stdout.splitlines())}


@pytest.mark.parametrize("name", IMPORTING)
def test_a_plugin_uses_the_bytecode_from_its_first_import_on(second_start, name):
    assert second_start[name] == [True]


def test_the_second_start_compiles_nothing(second_start):
    loaded, compiled = second_start["all"]
    modules = [file for file in loaded if not file.endswith("__init__.py")]
    assert len(modules) > 100
    assert [file for file in modules if file in compiled] == []
