# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a program for a host's Python of functions in module_utils: one text, which `python -c READER` has as its input.

What Ansible makes of a module brings its library along, and to load that takes a host a tenth of a second and more.
That is more than nvidia-smi takes to tell all about a GPU. A program of ours brings what it uses, and writes no file.
It can use nothing of `ansible`.
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

PACKAGE = "ansible_collections.gpufleet.hosts.plugins.module_utils"
# Python by itself reads a long program from its input slowly, line by line. What lies in the directory where it happens
# to be started is not to be taken for one of its modules.
READER = "import sys; sys.path[:] = [path for path in sys.path if path]; exec(sys.stdin.read())"
_OWN = "gpufleet.zip"  # No such file: the name under which Python knows the modules in the program.
_HERE = os.path.dirname(__file__)
_MODULES = os.path.join(os.path.dirname(_HERE), "module_utils")
_IMPORT = re.compile(rf"^ *from {re.escape(PACKAGE)}([.\w]*) import (\([^)]*\)|.*)", re.MULTILINE)
_COMMENT = re.compile(r"#.*")


def make(entry: str, arguments: dict, extra: dict[str, dict[str, str]] | None = None) -> bytes:
    """Make the program that calls `main` of a module in module_utils with the arguments, as JSON.

    `extra` brings modules besides, as names and paths of their sources, by the path to put on `sys.path` for them.
    """
    books = {_OWN: {f"{PACKAGE}.{name}": _path(name) for name in needed(entry)}, **(extra or {})}
    code = {book: {name: _code(name, path) for name, path in modules.items()} for book, modules in books.items()}
    source = {book: {name: _source(path) for name, path in modules.items()} for book, modules in books.items()}
    packed = ", ".join(
        repr(part)
        for part in (
            {MAGIC_NUMBER.hex(): _pack(code), "": _pack(source)},
            _OWN,
            f"{PACKAGE}.{entry}",
            json.dumps(arguments),
        )
    )
    return f"{_start()}\nstart({packed})\n".encode("ascii")


@lru_cache
def needed(entry: str) -> tuple[str, ...]:
    """Name the modules of module_utils that a module imports, directly or not, itself included: `facts.program`."""
    found, waiting = set(), [entry]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for module, names in _IMPORT.findall(_source(_path(name))):
            waiting += _imported(module.lstrip("."), names)
    return tuple(sorted(found))


def _imported(module: str, names: str) -> list[str]:
    """Name the modules that one import statement loads: the named module, or modules of the named package."""
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


def _pack(books: dict) -> str:
    # Format 2 of marshal is the same for every version of Python.
    return binascii.b2a_base64(zlib.compress(marshal.dumps(books, 2)), newline=False).decode()
