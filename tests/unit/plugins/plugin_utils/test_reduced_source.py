# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is left out of the source in a program for hosts: texts of our modules, and unused functions of pynvml."""

from __future__ import annotations

import ast
import re
import sys
import types
from functools import cache
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import host_program
from ansible_collections.gpufleet.hosts.plugins.plugin_utils.reduced_source import without_texts, without_unused
from ansible_collections.gpufleet.hosts.tests.unit.plugins.simulated_nvml import BINDINGS, binding_directory

MODULE_UTILS = Path(host_program.__file__).parents[1] / "module_utils"
MODULES = sorted({*host_program.needed("observe.program"), *host_program.needed("facts.program")})
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def source(name: str) -> str:
    return (MODULE_UTILS / name.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")


def code(text: str) -> str:
    """Return what a source does: its syntax tree with line numbers, but without docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            # An empty string keeps the block of a class that has only a docstring.
            node.body[:1] = [] if isinstance(node, ast.Module) or len(node.body) > 1 else [ast.Pass()]
        for name in ("end_lineno", "col_offset", "end_col_offset"):
            if hasattr(node, name):
                delattr(node, name)
    return ast.dump(tree, include_attributes=True)


@pytest.mark.parametrize("name", MODULES)
def test_only_texts_of_our_modules_are_left_out(name):
    reduced = without_texts(source(name))
    assert code(reduced) == code(source(name))
    documented = [node for node in ast.walk(ast.parse(reduced)) if isinstance(node, DOCUMENTED)]
    assert not any(ast.get_docstring(node) for node in documented)
    assert not re.search(r"^\s*#", reduced, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""Text."""\n\nx = 1\n', "\n\nx = 1\n"),
        ('# Copyright\n"""Two\nlines."""\nx = 1\n', "\n\n\nx = 1\n"),
        ('class A:\n    """Text."""\n', 'class A:\n    ""\n'),
        ('def a():\n    """Two\n    lines "quoted".\n    """\n    return 1\n', 'def a():\n    ""\n\n\n    return 1\n'),
        ("x = 1  # why\n# more\ny = 2\n", "x = 1\n\ny = 2\n"),
        ('x = f("""\na: b\n""")\n', 'x = f("""\na: b\n""")\n'),
        ('x = "a # b"\ny = "#"\n', 'x = "a # b"\ny = "#"\n'),
    ],
)
def test_texts(text, expected):
    assert without_texts(text) == expected


MODULE = """\
import ctypes
A_ONE = 1
A_TWO = 2
B = 3
TABLE = [
    B,
]

@decorated
def used(x=A_ONE):
    return helper()

@decorated
def unused():
    return B2

B2 = 4
def helper(
    y,
):
    return y

class Gone(object):
    pass

class Kept(Base): pass
class Base:
    pass
if True:
    B3 = 5
"""


@pytest.mark.parametrize(
    ("users", "gone"),
    [
        ([], {"A_ONE", "A_TWO", "used", "unused", "helper", "Gone", "Kept", "Base", "B2"}),
        (["used", "Kept"], {"A_TWO", "unused", "Gone", "B2"}),
        (["'A_'"], {"used", "unused", "helper", "Gone", "Kept", "Base", "B2"}),
        (["x.unused()"], {"A_ONE", "A_TWO", "used", "helper", "Gone", "Kept", "Base"}),
        ([MODULE], set()),
    ],
)
def test_unused_definitions(users, gone):
    reduced = without_unused(MODULE, users)
    kept = code(reduced)
    for name in ("A_ONE", "A_TWO", "B", "B2", "B3", "TABLE", "used", "unused", "helper", "Gone", "Kept", "Base"):
        assert bool(re.search(rf"'{name}'", kept)) == (name not in gone), name
    assert ast.parse(reduced).body[-1].lineno == ast.parse(MODULE).body[-1].lineno
    assert reduced.count("\n") == MODULE.count("\n")


@cache
def bindings(version: str) -> tuple[dict, dict]:
    """Return the names and values of a whole and of a reduced pynvml."""
    text = (binding_directory(version) / "pynvml.py").read_text(encoding="utf-8")
    texts = (text, without_unused(text, [without_texts(source(name)) for name in MODULES]))
    assert len(texts[1]) < 0.5 * len(text)
    found = []
    for one in texts:
        # The binding creates its classes of errors from the names in its module.
        module = types.ModuleType("pynvml_reduced")
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, module.__name__, module)
            exec(compile(one, "pynvml.py", "exec"), module.__dict__)
        found.append(vars(module))
    return found[0], found[1]


def mentioned() -> set[str]:
    """Return all names in our modules that could be names of NVML."""
    nodes = [node for name in MODULES for node in ast.walk(ast.parse(source(name)))]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("version", BINDINGS)
def test_the_reduced_binding_has_all_that_our_modules_call(version):
    whole, reduced = bindings(version)
    calls = {name for name in mentioned() if name.startswith(("nvml", "NVML"))}
    assert {"nvmlInit", "nvmlDeviceGetUUID", "NVMLError"} <= calls & {*reduced}
    assert sorted(name for name in calls if name in whole and name not in reduced) == []
    assert {name for name in whole if name.startswith("NVML_ERROR_")} <= {*reduced}
    assert {name for name in whole if name.startswith("NVMLError_")} <= {*reduced}


def names_in(code_object: types.CodeType) -> set[str]:
    """Return the global names that a function uses."""
    inner = [names_in(constant) for constant in code_object.co_consts if isinstance(constant, types.CodeType)]
    return {*code_object.co_names}.union(*inner)


@pytest.mark.parametrize("version", BINDINGS)
def test_the_functions_of_the_reduced_binding_have_all_that_they_use(version):
    whole, reduced = bindings(version)
    functions = [value for value in reduced.values() if isinstance(value, types.FunctionType)]
    assert len(functions) > 20
    used = {name for function in functions for name in names_in(function.__code__)}
    assert sorted(name for name in used if name in whole and name not in reduced) == []


@pytest.mark.parametrize("name", MODULES)
def test_names_of_nvml_are_written_out(name):
    """Otherwise, nothing shows that a function is used."""
    for node in ast.walk(ast.parse(source(name))):
        if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            assert not re.fullmatch(r"nvml\w+", node.values[0].value)
