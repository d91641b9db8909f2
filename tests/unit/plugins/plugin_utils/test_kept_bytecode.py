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
# Import each plugin in a process of its own. Print the modules that it loads, and those that Python compiles.
LOAD = """
import importlib, json, os, sys
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader()
compiled = []
sys.addaudithook(lambda event, values: compiled.append(str(values[1])) if event == "compile" else None)
for name in sys.argv[1:]:
    if os.fork() == 0:
        importlib.import_module(f"ansible_collections.gpufleet.hosts.plugins.{name}")
        files = {module.__file__ for name, module in sys.modules.items() if ".hosts.plugins.module_utils." in name}
        print(json.dumps([name, sorted(files), sorted(files & set(compiled))]), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def second_start():
    """Return the loaded and the compiled files of each plugin."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", LOAD, *IMPORTING]
    starts = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _start in range(2)
    ]
    return {name: files for name, *files in map(json.loads, starts[1].stdout.splitlines())}


@pytest.mark.parametrize("name", IMPORTING)
def test_the_second_start_compiles_nothing(second_start, name):
    loaded, compiled = second_start[name]
    modules = [file for file in loaded if not file.endswith("__init__.py")]
    assert modules
    assert [file for file in modules if file in compiled] == []
