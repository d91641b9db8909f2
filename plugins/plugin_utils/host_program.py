# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build a standalone program from modules of module_utils. `python *ARGUMENTS` on the host reads it from its input.

An ordinary Ansible module loads Ansible's module library. This takes 0.1 seconds or more, longer than nvidia-smi needs
for all GPUs. The program contains only the modules that it uses and writes no file. It must not import `ansible`.
"""

from __future__ import annotations

import binascii
import importlib.machinery
import json
import marshal
import os
import re
import zlib
from functools import lru_cache
from importlib._bootstrap_external import MAGIC_NUMBER

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import reduced_source

PACKAGE = "ansible_collections.gpufleet.hosts.plugins.module_utils"
# Removes the current directory from sys.path, so that no file there is imported. Python reads a program from its input
# slowly, line by line, so this reads it at once. Only the start of the program is Python text, because compiling the
# packed modules as text would take longer than unpacking them.
_READER = (
    "import sys; sys.path[:] = [path for path in sys.path if path]; "
    "bytecode, source, program = sys.stdin.read().split(None, 2); exec(program)"
)
# -S skips site-packages, whose start-up code can take longer than Python's own. With `installed_packages`, the program
# calls `site.main()`.
ARGUMENTS = ("-S", "-c", _READER)
_OWN = "gpufleet.zip"  # Not a file: the entry in sys.path for the modules in the program.
_HERE = os.path.dirname(__file__)
# A higher level takes much longer and saves almost nothing.
_LEVEL = 6
_MODULES = os.path.join(os.path.dirname(_HERE), "module_utils")
_IMPORT = re.compile(rf"^ *from {re.escape(PACKAGE)}([.\w]*) import (\([^)]*\)|.*)", re.MULTILINE)
# Imports that only type checkers read.
_FOR_TYPES = re.compile(r"^if (?:t\.)?TYPE_CHECKING:.*\n(?:(?: .*)?\n)+", re.MULTILINE)
_COMMENT = re.compile(r"#.*")


def make(
    entry: str,
    arguments: dict,
    extra: dict[str, dict[str, str]] | None = None,
    *,
    installed_packages: bool,
    bytecode: bool = True,
) -> bytes:
    """Build the program that calls `main` of the module `entry` in module_utils with `arguments`.

    `arguments` must be serializable as JSON.
    `extra` adds other modules: for each new entry of `sys.path`, the names and source files of its modules.
    `installed_packages` is whether the program can import the host's installed Python packages.
    `bytecode` is whether the program also contains bytecode for the controller's version of Python. It loads faster on
    hosts with the same version, but is larger than the source.
    """
    code, source = prepare(entry, extra or {}, bytecode=bytecode)
    site = ("import site", "site.main()") if installed_packages else ()
    halves = f"{{{MAGIC_NUMBER.hex()!r}: bytecode, '': source}}" if code else "{'': source}"
    call = f"start({halves}, {_OWN!a}, {_module(entry)!a}, {_pack(_plain(arguments))!a})"
    return "\n".join((code or "-", source, _start(), *site, call, "")).encode("ascii")


def prepare(entry: str, extra: dict[str, dict[str, str]], *, bytecode: bool) -> tuple[str | None, str]:
    """Return the packed modules of a program: bytecode for this version of Python, or None, and source for all others.

    They are the same for all arguments, and kept for the next call.
    """
    return _packed(needed(entry), tuple((group, tuple(modules.items())) for group, modules in extra.items()), bytecode)


@lru_cache
def _packed(
    names: tuple[str, ...], extra: tuple[tuple[str, tuple[tuple[str, str], ...]], ...], bytecode: bool
) -> tuple[str | None, str]:
    groups = {_OWN: {f"{PACKAGE}.{name}": _path(name) for name in names}}
    groups.update((group, dict(modules)) for group, modules in extra)
    own = {name: reduced_source.without_texts(_source(path)) for name, path in groups[_OWN].items()}
    # The program uses few of the hundreds of functions in pynvml.
    others = {
        group: {name: reduced_source.without_unused(_source(path), own.values()) for name, path in modules}
        for group, modules in extra
    }
    packed = _pack({_OWN: own, **others})
    if not bytecode:
        return None, packed
    code = {group: {name: _code(name, path) for name, path in modules.items()} for group, modules in groups.items()}
    return _pack(code), packed


def make_file(entry: str, arguments: dict, modules: dict[str, str]) -> str:
    """Build the program as the text of a file that stays on the host.

    The text contains only source, so it is the same with each version of the controller's Python. `modules` adds other
    modules: their names and source files.
    """
    paths = {**{f"{PACKAGE}.{name}": _path(name) for name in needed(entry)}, **modules}
    groups = {_OWN: {name: _source(path) for name, path in sorted(paths.items())}}
    return f"{_start()}\nstart_from({groups!a}, {_OWN!a}, {_module(entry)!a}, {_plain(arguments)!a})\n"


def _plain(arguments: dict) -> dict:
    """Return the arguments without Ansible's types of strings. The host gets no JSON, which loads slowly there."""
    return json.loads(json.dumps(arguments, sort_keys=True))


def _module(entry: str) -> str:
    return f"{PACKAGE}.{entry}"


@lru_cache
def needed(entry: str) -> tuple[str, ...]:
    """Return the names of a module and of all modules that it imports from module_utils, such as `facts.program`."""
    found, waiting = set(), [entry]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for module, names in _IMPORT.findall(_FOR_TYPES.sub("", _source(_path(name)))):
            waiting += _imported(module.lstrip("."), names)
    return tuple(sorted(found))


def _imported(module: str, names: str) -> list[str]:
    """Return the modules that one import statement loads: the named module, or modules of the named package."""
    if module and os.path.isfile(_path(module)):
        return [module]
    listed = [name.split()[0] for name in _COMMENT.sub("", names).strip("() \n").split(",") if name.strip()]
    return [f"{module}.{name}" if module else name for name in listed]


def _path(name: str) -> str:
    return os.path.join(_MODULES, *name.split(".")) + ".py"


@lru_cache
def _start() -> str:
    return _source(os.path.join(_HERE, "host_program_start.py"))


@lru_cache
def _source(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


@lru_cache
def _code(name: str, path: str) -> bytes:
    return marshal.dumps(importlib.machinery.SourceFileLoader(name, path).get_code(name))


def _pack(groups: dict) -> str:
    # Every supported version of Python reads marshal format 2.
    return binascii.b2a_base64(zlib.compress(marshal.dumps(groups, 2), _LEVEL), newline=False).decode()
