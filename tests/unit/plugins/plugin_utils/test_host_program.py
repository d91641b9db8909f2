# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of action plugins, run by a Python with only the standard library."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib._bootstrap_external import MAGIC_NUMBER
from pathlib import Path

import pynvml
import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import standalone_program
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.standalone_program import MARK
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import module_call as facts_call
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts.module_call import OPTIONS
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import module_call as observe_call
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import program as observe_program
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import host_program
from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import NvmlLab

ENTRY = "facts.program"
ENTRIES = [ENTRY, "observe.program"]
MODULE_UTILS = Path(host_program.__file__).parents[1] / "module_utils"
ARGUMENTS = {name: option.get("default") for name, option in OPTIONS.items()}


def read_by_python(program: bytes, directory: Path, env: dict | None = None) -> subprocess.CompletedProcess:
    """Run the program as the action plugin does."""
    command = [sys.executable, *host_program.ARGUMENTS]
    return subprocess.run(command, input=program, cwd=directory, env=env, capture_output=True, check=False)


def make(entry: str, arguments: dict, extra: dict | None = None) -> bytes:
    """Build a program that finds no installed packages."""
    return host_program.make(entry, arguments, extra, installed_packages=False)


def answer_of(done: subprocess.CompletedProcess) -> dict:
    lines = [line for line in done.stdout.decode().splitlines() if line.startswith(MARK)]
    assert len(lines) == 1, done
    return json.loads(lines[0][len(MARK) :])


def imported(path: Path) -> set[str]:
    """Return the modules of the collection that a source imports when it runs."""
    names = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [
        node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(host_program.PACKAGE):
            own = node.module[len(host_program.PACKAGE) + 1 :]
            is_module = source(own).is_file()
            names |= {own} if is_module else {f"{own}.{alias.name}".lstrip(".") for alias in node.names}
    return names


def source(name: str) -> Path:
    return (MODULE_UTILS / name.replace(".", "/")).with_suffix(".py")


@pytest.mark.parametrize("entry", ENTRIES)
def test_all_imported_modules_are_packed(entry):
    needed = host_program.needed(entry)
    assert {entry, "nvml.child_process", "nvml.gpu_fields", "nvml.topology", "host.driver_versions"} <= set(needed)
    for name in needed:
        assert imported(source(name)) <= set(needed), name


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_module_imports_ansible(entry):
    for name in host_program.needed(entry):
        for node in ast.walk(ast.parse((source(name)).read_text(encoding="utf-8"))):
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            named += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [other for other in named if other.partition(".")[0] == "ansible"], name


@pytest.fixture(params=["the same Python", "another Python"])
def program(request, tmp_path):
    """Build the program for two simulated GPUs. Another Python version cannot use its bytecode."""
    name = "pynvml-13.615.71.zip"
    made = make(ENTRY, {**ARGUMENTS, "_nvml_binding_path": name}, {name: {"pynvml": pynvml.__file__}})
    if request.param == "another Python":
        other = made.replace(f"'{MAGIC_NUMBER.hex()}'".encode(), b"'00000000'")
        assert other != made
        made = other
    return made


@pytest.fixture
def lab(tmp_path):
    return NvmlLab(tmp_path, {"driver": {"version": "580.95.05"}, "gpus": [{"model": "T4", "count": 2}]})


def test_the_program_returns_the_facts_with_the_packed_binding(program, lab, tmp_path):
    done = read_by_python(program, tmp_path, lab.env)
    result = answer_of(done)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [gpu["name"] for gpu in result["ansible_facts"]["nvidia_gpus"]] == ["Tesla T4", "Tesla T4"]
    assert (result["nvml_binding"], result["nvml_binding_version"]) == ("controller", "13.615.71")


def test_the_pynvml_of_the_host_is_found_if_the_program_needs_it(lab, tmp_path):
    made = [host_program.make(ENTRY, ARGUMENTS, installed_packages=installed) for installed in (True, False)]
    with_packages, without = (answer_of(read_by_python(program, tmp_path, lab.env)) for program in made)
    assert (with_packages["nvml_binding"], with_packages["ansible_facts"]["nvidia_gpu_state"]) == ("host", "ready")
    assert without["nvml_binding_missing"]


BINDING = """
import sys
import ctypes.util
from ctypes.util import find_library
loaded_before = "subprocess" in sys.modules
from ctypes.util import test
raise ImportError(f"{loaded_before} {find_library('c')} {ctypes.util.find_library('c')} {callable(test)}")
"""


def test_a_binding_can_use_ctypes_util_which_is_loaded_late(lab, tmp_path):
    (tmp_path / "pynvml.py").write_text(BINDING)
    program = make(ENTRY, {**ARGUMENTS, "_nvml_binding_path": str(tmp_path)})
    assert "ImportError: False libc.so.6 libc.so.6 True" in answer_of(read_by_python(program, tmp_path, lab.env))["msg"]


def test_a_crash_during_the_initialization_keeps_the_path_of_the_library(tmp_path):
    library = tmp_path / "libnvidia-ml.so.1"
    source = b"#include <signal.h>\nint nvmlInitWithFlags(unsigned flags) { return raise(SIGSEGV); }\n"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"], input=source, check=True)
    name = "pynvml-13.615.71.zip"
    program = make(ENTRY, {**ARGUMENTS, "_nvml_binding_path": name}, {name: {"pynvml": pynvml.__file__}})
    done = read_by_python(program, tmp_path, {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    facts = answer_of(done)["ansible_facts"]
    assert facts["nvidia_gpu_state"] == "error"
    assert "killed by signal 11" in facts["nvidia_gpu_state_reason"]
    assert facts["nvidia_driver"]["library_path"] == str(library)


def test_files_in_the_current_directory_are_not_imported(program, lab, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    for name in ("json", "ctypes", "zlib", "pynvml"):
        (here / f"{name}.py").write_text("raise SystemExit('a file of the user')\n")
    assert answer_of(read_by_python(program, here, lab.env))["ansible_facts"]["nvidia_gpu_state"] == "ready"


def test_the_program_writes_no_file(program, lab, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    answer_of(read_by_python(program, home, {**lab.env, "HOME": str(home), "TMPDIR": str(home)}))
    assert list(home.iterdir()) == []


def test_invalid_values_return_a_failed_result(tmp_path):
    done = read_by_python(make(ENTRY, {**ARGUMENTS, "driver_root": "relative"}), tmp_path)
    message = "driver_root=relative is not an absolute path. Start the path with /."
    assert answer_of(done) == {"failed": True, "msg": message}


@pytest.mark.parametrize("seconds", [float("inf"), float("nan")])
def test_numbers_without_a_python_literal_are_checked_on_the_host(tmp_path, seconds):
    done = read_by_python(make(ENTRY, {**ARGUMENTS, "timeout": seconds}), tmp_path)
    assert answer_of(done)["msg"].startswith(f"timeout={seconds:g} is invalid. ")


def test_paths_are_expanded_on_the_host(tmp_path):
    done = read_by_python(
        make(ENTRY, {**ARGUMENTS, "driver_root": "$SOMEWHERE/driver"}), tmp_path, {"SOMEWHERE": "/nowhere"}
    )
    assert "driver_root=/nowhere/driver is not a directory" in answer_of(done)["msg"]


def test_a_traceback_names_the_source_file(tmp_path):
    done = read_by_python(make(ENTRY, {"driver_root": 1}), tmp_path)
    assert done.returncode == 1
    assert "facts/program.py" in done.stderr.decode()


@pytest.mark.parametrize("changed", [{}, {"bytecode": False}])
def test_a_traceback_has_the_line_of_the_source_file(tmp_path, changed):
    made = host_program.make(ENTRY, {"driver_root": 1}, installed_packages=False, **changed)
    lines = re.findall(r'facts/program\.py", line (\d+), in main', read_by_python(made, tmp_path).stderr.decode())
    written = source(ENTRY).read_text(encoding="utf-8").splitlines()
    assert [written[int(line) - 1].strip() for line in lines] == [
        'options["driver_root"] = os.path.expanduser(os.path.expandvars(options["driver_root"]))'
    ]


# --- the observation ----------------------------------------------------------------------------------------------


def observation(tmp_path, **changes) -> dict:
    """Observe this host with the program."""
    lists = {name: [] for name in ("services", "files", "packages", "package_patterns", "users")}
    options = {
        **lists,
        "_declared": {},
        "package_lock_timeout": 0,
        "cloud_init_timeout": 0,
        "driver_volume": None,
        **changes,
    }
    given = {"options": options, "check_mode": True, "facts": ARGUMENTS}
    made = host_program.make("observe.program", given, installed_packages=False, bytecode=False)
    done = read_by_python(made, tmp_path, {"HERE": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, b"")
    return answer_of(done)


def test_the_observation_of_a_converged_host_sends_at_most_250_kilobytes():
    extra = {"pynvml.zip": {"pynvml": pynvml.__file__}}
    given = {"options": {"_declared": registry.observed()}, "check_mode": False, "facts": ARGUMENTS}
    made = host_program.make("observe.program", given, extra, installed_packages=True, bytecode=False)
    assert len(made) <= 250_000


def test_the_observation_needs_only_the_standard_library(tmp_path):
    (tmp_path / "text").write_text("content")
    answer = observation(tmp_path, files=["$HERE/text"], users=["root", "nobody-has-this-name"])
    host = answer["host"]
    assert host["uid"] == os.getuid()
    assert host["kernel"]["running"] == os.uname().release
    assert host["files"][f"{tmp_path}/text"]["content"] == "content"
    assert host["docker_group"]["users"] == {"root": True, "nobody-has-this-name": False}


def test_the_observation_predicts_the_driver_volume(tmp_path):
    host = observation(tmp_path, driver_volume={"engine": ["none"], "expected_engines": []})["host"]
    assert (host["driver_volume"] is None) == (host["accelerators"]["nvidia"]["driver"]["loaded"] is None)


@pytest.mark.parametrize(
    ("loaded", "wanted", "expected"),
    [("580.95.05", True, "ready"), ("580.95.05", False, None), (None, True, None)],
)
def test_the_observation_has_the_facts_of_a_loaded_driver(monkeypatch, loaded, wanted, expected):
    found: dict = {}
    monkeypatch.setattr(standalone_program, "finish", found.update)
    seen = {"accelerators": {"nvidia": {"driver": {"loaded": loaded}}}}
    monkeypatch.setattr(observe_call, "observe", lambda options, **_more: {**seen, **options})
    monkeypatch.setattr(facts_call, "result", lambda options, _run: {"ansible_facts": {"state": options["answer"]}})
    facts = {"answer": "ready"} if wanted else None
    observe_program.main({"options": {"files": ["/etc/x"]}, "check_mode": False, "facts": facts})
    assert found["host"] == {**seen, "files": ["/etc/x"]}
    assert found.get("facts") == (expected and {"ansible_facts": {"state": expected}})
