# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first lines of a program that host_program.py builds. They run on the host and must load quickly."""

from __future__ import annotations

import binascii
import gc
import marshal
import sys
import zlib
from importlib._bootstrap_external import MAGIC_NUMBER
from importlib.machinery import ModuleSpec

# Python's text of these numbers, for the arguments of the program.
inf, nan = float("inf"), float("nan")


class ProgramImporter:
    """Import modules from the program itself: a path hook, a finder and a loader.

    `groups` maps entries of sys.path to modules: a dictionary of module names, and bytecode or source.
    """

    def __init__(self, groups, path=None):
        self.groups, self.path = groups, path

    def __call__(self, path):
        if path not in self.groups:
            raise ImportError(path)
        return ProgramImporter(self.groups, path)

    def find_spec(self, name, target=None):
        group = self.groups[self.path]
        if name in group:
            spec = ModuleSpec(name, self, origin=self.path + "/" + name.replace(".", "/") + ".py")
            spec.has_location = True
            return spec
        if any(module.startswith(name + ".") for module in group):
            # With a loader, because Python searches the parents of a package without one again at each import.
            spec = ModuleSpec(name, self, is_package=True)
            spec.submodule_search_locations = [self.path]
            return spec
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        content = self.groups[self.path].get(module.__name__)
        if content is None:
            return  # a package, which is empty
        if isinstance(content, str):
            content = compile(content, module.__spec__.origin, "exec")
        exec(content if not isinstance(content, bytes) else marshal.loads(content), module.__dict__)


def start(packed, first, entry, arguments):
    """Make the modules in `packed` importable and call `main` of the module `entry`.

    `packed` has bytecode under the magic number of its Python version, and source under "" for every other version.
    `first` is the entry of sys.path for the collection's modules. `arguments` are packed, too.
    """
    groups = unpack(packed.get(MAGIC_NUMBER.hex(), packed[""]))
    start_from(groups, first, entry, unpack(arguments))


def unpack(text):
    """Return what host_program.py packed."""
    return marshal.loads(zlib.decompress(binascii.a2b_base64(text)))


def start_from(groups, first, entry, arguments):
    """Make the modules in `groups` importable and call `main` of the module `entry`."""
    gc.disable()  # The process is short-lived.
    sys.path_hooks.insert(0, ProgramImporter(groups))
    sys.path.insert(0, first)
    module = __import__(entry, fromlist=["main"])
    module.main(arguments)
