# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of module_utils: their order of imports, and the limits for packages and files."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections import Counter
from pathlib import Path

import pytest

COLLECTION = "ansible_collections.gpufleet.hosts.plugins"
PACKAGE = f"{COLLECTION}.module_utils"
PLUGINS = Path(__file__).resolve().parents[4] / "plugins"
MODULE_UTILS = PLUGINS / "module_utils"
# A package imports from those before it in this list, never from those after it.
ORDER = [
    "base",
    "parts",
    "hardware",
    "aws",
    "host",
    "nvml",
    "repository",
    "output",
    "package_managers",
    "packages",
    "daemon_config",
    "engine",
    "volume",
    "cdi",
    "facts",
    "accelerators",
    "slurm",
    "vendor_driver",
    "amd_driver",
    "neuron_driver",
    "driver",
    "persistence",
    "cuda",
    "migration",
    "kubernetes",
    "toolkit",
    "gaudi_driver",
    "container",
    "usage",
    "workload",
    "rendering",
    "proof",
    "observe",
    "adoption",
    "site",
    "unattended",
    "benchmark",
]
# The files directly in these packages are the same for all vendors. The vendors are in the folders below.
NEUTRAL = ("container", "container/existing", "container/selection", "cdi")
VENDORS = {"amd", "gaudi", "neuron", "nvidia"}
PRODUCTS = re.compile(r"nvidia|nvml|cuda|\bmig\b|\bamd\b|rocm|neuron|gaudi|habana", re.IGNORECASE)
MAY_NAME_PRODUCTS = {
    "container/vendor_of_host.py": "the list of the vendors",
    "container/planner.py": "stopping a container ignores the error that the modules report for a missing binding",
    "cdi/accelerator_writing.py": "the content of the vendors whose specifications have only device nodes",
    "cdi/accelerator_specification.py": "the same",
}
SOURCES = sorted(path for path in MODULE_UTILS.rglob("*.py") if path.name != "__init__.py")
DOCUMENTATION = {"DOCUMENTATION", "EXAMPLES", "RETURN"}
# Ansible prescribes these names.
OF_ANSIBLE = {"ActionModule", "FilterModule", "InventoryModule", "ModuleDocFragment"}
MOST_FILES = 24
MOST_LINES = 400
# With its signature and docstring.
MOST_LINES_OF_FUNCTION = 60


@dataclasses.dataclass
class SourceFacts:
    """What the tests need to know about a source. Reading all sources takes seconds, so each is read once."""

    code_lines: int = 0
    # The packages of module_utils that the source imports from, at its top or inside a function.
    packages: set[str] = dataclasses.field(default_factory=set)
    # The modules of module_utils that it imports when it runs, not only for types.
    runtime_imports: set[str] = dataclasses.field(default_factory=set)
    # The number of lines of each function.
    functions: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    public_classes: list[str] = dataclasses.field(default_factory=list)


def facts_of(source: str) -> SourceFacts:
    """Return what the tests need to know about a source."""
    found, texts, for_types = SourceFacts(), set(), set()
    # A breadth-first walk visits an `if TYPE_CHECKING` before what it contains.
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            note_imports(found, [alias.name for alias in node.names])
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
            note_imports(found, modules)
            if id(node) not in for_types and f"{node.module}.".startswith(PACKAGE):
                found.runtime_imports |= {node.module, *modules}
        elif isinstance(node, ast.If) and is_for_types(node.test):
            for_types |= {id(inner) for inner in ast.walk(node)}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.functions.append((node.end_lineno - node.lineno + 1, node.name))
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            found.public_classes.append(node.name)
        elif is_text(node):
            texts.update(range(node.lineno, node.end_lineno + 1))
    lines = enumerate(source.splitlines(), start=1)
    found.code_lines = sum(
        1 for number, line in lines if line.strip() and not line.lstrip().startswith("#") and number not in texts
    )
    return found


def note_imports(found: SourceFacts, modules: list[str]) -> None:
    found.packages |= {name[len(PACKAGE) + 1 :].split(".")[0] for name in modules if name.startswith(PACKAGE + ".")}


def is_for_types(test: ast.expr) -> bool:
    return any("TYPE_CHECKING" in (getattr(part, "id", ""), getattr(part, "attr", "")) for part in ast.walk(test))


def is_text(node: ast.AST) -> bool:
    """Return whether a statement is a docstring, a string alone, or the documentation of a module."""
    is_documentation = isinstance(node, ast.Expr) or (
        isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in DOCUMENTATION
    )
    return is_documentation and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@functools.cache
def facts() -> dict[Path, SourceFacts]:
    """Return what the tests need to know about each source below plugins."""
    return {path: facts_of(path.read_text(encoding="utf-8")) for path in sorted(PLUGINS.rglob("*.py"))}


def name_in_utils(path: Path) -> str:
    return str(path.relative_to(MODULE_UTILS))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (f"from {PACKAGE} import base, site", {"base", "site"}),
        (f"from {PACKAGE}.driver import plan", {"driver"}),
        (f"def late():\n    from {PACKAGE}.driver.plan import plan", {"driver"}),
        (f"import {PACKAGE}.cdi.specification_reader as reader", {"cdi"}),
        (f"from {COLLECTION}.plugin_utils import host_program\nimport os", set()),
    ],
)
def test_imports_are_found_in_every_form(source, expected):
    assert facts_of(source).packages == expected


def test_the_order_has_exactly_the_packages_of_all_files():
    assert sorted({path.relative_to(MODULE_UTILS).parts[0] for path in SOURCES}) == sorted(ORDER)
    # A package can have packages of its own, such as those of the vendors, but these cannot.
    assert {len(path.relative_to(MODULE_UTILS).parts) for path in SOURCES} <= {2, 3}


def test_imports_go_down_the_order():
    allowed = {package: set(ORDER[: number + 1]) for number, package in enumerate(ORDER)}
    upward = {
        name_in_utils(path): facts()[path].packages - allowed[path.relative_to(MODULE_UTILS).parts[0]]
        for path in SOURCES
    }
    assert {name: packages for name, packages in upward.items() if packages} == {}


def test_only_a_registry_imports_the_package_of_a_vendor():
    """No other vendor, and nothing that is true for all of them, needs it."""
    folders = {path: path.relative_to(MODULE_UTILS).parts[:-1] for path in SOURCES}
    nested = {folder for folder in folders.values() if folder[-1] in VENDORS}
    assert nested
    importing = [
        f"{name_in_utils(path)} imports {'.'.join(other)}"
        for path, own in folders.items()
        for other in nested
        if path.name != "vendor_of_host.py" and other[0] == own[0] and other != own
        if f"from {PACKAGE}.{'.'.join(other)}." in path.read_text(encoding="utf-8")
    ]
    assert importing == []


@pytest.mark.parametrize("package", sorted({path.parent for path in SOURCES}), ids=lambda path: path.name)
def test_a_package_says_in_two_sentences_what_it_contains_and_what_not(package):
    text = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    (docstring,) = text.body
    sentences = re.findall(r"[^.]+(?:\.[\w/*]+[^.]*)*\.(?=\s|$)", docstring.value.value.strip())
    assert len(sentences) == 2, sentences


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return a cycle of the graph, or an empty list."""
    done: set[str] = set()

    def follow(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        found = next((one for target in sorted(graph[name]) if (one := follow(target, [*way, name]))), [])
        done.add(name)
        return found

    return next((one for name in sorted(graph) if (one := follow(name, []))), [])


def test_cycles_are_found():
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_file_imports_itself_through_others():
    names = {f"{PACKAGE}.{'.'.join(path.relative_to(MODULE_UTILS).with_suffix('').parts)}": path for path in SOURCES}
    graph = {name: facts()[path].runtime_imports & {*names} for name, path in names.items()}
    assert cycle(graph) == []


def test_no_package_has_too_many_files():
    sizes = Counter(str(path.parent.relative_to(MODULE_UTILS)) for path in SOURCES)
    assert {name: size for name, size in sizes.items() if size > MOST_FILES} == {}


def test_no_file_is_too_long():
    sizes = {str(path.relative_to(PLUGINS)): found.code_lines for path, found in facts().items()}
    assert {name: size for name, size in sizes.items() if size > MOST_LINES} == {}


def test_no_function_is_too_long():
    functions = [(*one, str(path.relative_to(PLUGINS))) for path, found in facts().items() for one in found.functions]
    assert [found for found in functions if found[0] > MOST_LINES_OF_FUNCTION] == []
    assert len(functions) > 1000


def test_nothing_writes_into_the_dict_of_another_object():
    """What a function decides, it returns."""
    texts = {str(path.relative_to(PLUGINS)): path.read_text(encoding="utf-8") for path in PLUGINS.rglob("*.py")}
    assert [name for name, text in texts.items() if re.search(r"__dict__(\.update|\[[^]]*\] =)", text)] == []


def test_no_public_class_has_the_name_of_another_one():
    """A class says its package in its name: DriverPlan, EnginePlan."""
    classes: dict[str, list[str]] = {}
    for path, found in facts().items():
        for name in found.public_classes:
            classes.setdefault(name, []).append(str(path.relative_to(PLUGINS)))
    assert {name: places for name, places in classes.items() if len(places) > 1 and name not in OF_ANSIBLE} == {}
    assert len(classes) > 300


def named_files(text: str) -> set[str]:
    """Return the paths of module_utils in the tables of a page: `a/b.py`, and `a/` (`b.py`, `c.py`)."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    start = r"`(?:plugins/module_utils/)?(?!plugins/|tests/)"
    found = set()
    for row in rows:
        found.update(re.findall(start + r"(\w+/(?:\w+/)?[\w*]+\.py)`", row))
        for folder, names in re.findall(
            r"`(?:plugins/module_utils/)?(?!plugins/|tests/)(\w+/(?:\w+/)?)` \(([^)]*)\)", row
        ):
            found.update(folder + name for name in re.findall(r"`([\w*]+\.py)`", names))
    return found


def test_named_files_are_found_in_every_form():
    text = "`no/table.py`\n| a | `x/` (`b.py`, text `c_*.py`) |\n| d | `plugins/module_utils/x/e.py`; f: `x/g.py` |\n"
    text += "| h | `x/y/i.py`, `x/y/` (`j.py`) |\n"
    assert named_files(text) == {"x/b.py", "x/c_*.py", "x/e.py", "x/g.py", "x/y/i.py", "x/y/j.py"}


def test_contributing_names_only_existing_files():
    named = named_files((PLUGINS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert sorted(name for name in named if not list(MODULE_UTILS.glob(name))) == []
    assert len(named) > 100


def products(source: str) -> list[str]:
    """Return the lines of a source that name a product of a vendor."""
    return [line.strip() for line in source.splitlines() if PRODUCTS.search(line)]


@pytest.mark.parametrize(
    "path",
    [path for package in NEUTRAL for path in sorted((MODULE_UTILS / package).glob("*.py"))],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_a_neutral_file_names_no_product_of_a_vendor(path: Path) -> None:
    found = products(path.read_text(encoding="utf-8"))
    assert bool(found) == (f"{path.parent.name}/{path.name}" in MAY_NAME_PRODUCTS), found
    if path.name == "planner.py":
        assert [line for line in found if "BindingMissing" not in line] == []
