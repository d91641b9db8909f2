# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The standard-library modules that the facts program loads. Each one costs milliseconds on every host.

Those that it loads before it initializes the driver cost most, because nothing else runs at that time.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather

COLLECTIONS = gather.__file__.split("/ansible_collections/", maxsplit=1)[0]
PACKAGE = "ansible_collections.gpufleet.hosts.plugins.module_utils"
# The program of the parent process, and all that it imports later to report the facts.
PARENT = ["facts.program", "facts.combined_facts", "hardware.pci_functions", "host.driver_versions", "host.elf"]
# The child process that calls NVML. The bindings import more on their own.
CHILD = [
    "nvml.timeout_guard",
    "nvml.child_process",
    "nvml.pynvml_calls",
    "nvml.pynvml_host_or_controller",
    "nvml.gpu_fields",
    "nvml.topology",
]
# Before you add a module here, measure its cost with `python3 -X importtime`. typing and dataclasses must stay out.
COMMON = {
    "collections",
    "contextlib",
    "copyreg",
    "enum",
    "functools",
    "itertools",
    "json",
    "keyword",
    "mmap",
    "operator",
}
COMMON |= {"re", "reprlib", "select", "signal", "struct", "types"}
if sys.version_info < (3, 11):
    COMMON |= {"sre_compile", "sre_constants", "sre_parse"}  # parts of re
EXPECTED = {
    "parent": COMMON | {"bz2", "errno", "fnmatch", "glob", "lzma", "shutil", "zlib"},
    "child": COMMON | {"ctypes", "gc", "importlib", "math", "resource", "warnings"},
}
LIST = """
import os, sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
for name in sys.argv[2:]:
    __import__(name)
print(*(set(sys.modules) - before))
"""


def loaded(directory: str, *modules: str) -> list[str]:
    """Import modules in a bare Python and return everything that it loads for them."""
    command = [sys.executable, "-I", "-S", "-c", LIST, directory, *modules]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()


def standard_modules(*names: str) -> set[str]:
    """Return the public standard-library modules that a bare Python loads in addition for these modules."""
    return standard(loaded(COLLECTIONS, *(f"{PACKAGE}.{name}" for name in names)))


def standard(names: list[str]) -> set[str]:
    """Return the public modules of the standard library among the names of modules."""
    roots = {name.partition(".")[0] for name in names}
    return {root for root in roots if not root.startswith("_") and root != "ansible_collections"}


@pytest.mark.parametrize(("process", "names"), [("parent", PARENT), ("child", CHILD)])
def test_each_process_loads_only_the_expected_modules(process, names):
    assert standard_modules(*names) <= EXPECTED[process]


# Run the program as if a driver were loaded. Print the modules that are loaded when the child process starts, and those
# that are loaded when it starts to initialize NVML. The child process ends there.
RUN = f"""
import os, sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
from {PACKAGE}.facts import gather, program
from {PACKAGE}.nvml import call_results, timeout_guard
gather._is_loaded = lambda root: True
read, write = os.pipe()
def start_child(writer, *arguments):
    os.write(write, " ".join(set(sys.modules) - before).encode() + b"\\n")
    from {PACKAGE}.nvml import child_process, library
    child_process._detach = lambda writer: None
    def start_initialization():
        os.write(write, " ".join(set(sys.modules) - before).encode())
        os._exit(0)
    library.load, library.start_initialization = lambda prefix: "/x", start_initialization
    child_process.run(writer, *arguments)
timeout_guard._run_child = start_child
options = dict(gather_subset=["all"], timeout=10, driver_root=None, _nvml_binding_path=None)
if os.fork() == 0:
    sys.stdout = open(os.devnull, "w")
    program.main(options)
os.wait()
os.close(write)
while data := os.read(read, 1 << 16):
    os.write(1, data)
"""


def test_nothing_slow_is_loaded_before_the_initialization_of_the_driver():
    command = [sys.executable, "-I", "-S", "-c", RUN, COLLECTIONS]
    printed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    at_child, at_initialization = (standard(line.split()) for line in printed.splitlines())
    assert at_child <= {"mmap", "select"}
    assert "mmap" in at_child
    assert at_initialization <= at_child | {"ctypes", "gc", "importlib", "resource", "struct", "types", "warnings"}
    assert "ctypes" in at_initialization


@pytest.mark.parametrize("names", [PARENT, CHILD])
def test_no_process_loads_typing_or_dataclasses(names):
    assert standard_modules(*names) & {"typing", "dataclasses", "inspect", "subprocess", "ansible"} == set()


def test_a_new_import_is_noticed(tmp_path):
    (tmp_path / "heavy.py").write_text("import dataclasses\n", encoding="utf-8")
    assert {"dataclasses", "inspect"} <= set(loaded(str(tmp_path), "heavy"))
