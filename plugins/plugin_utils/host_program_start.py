# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first lines of a program that host_program makes. They run on the host, and load no more than they need."""

from __future__ import annotations

import binascii
import gc
import marshal
import sys
import zlib
from importlib._bootstrap_external import MAGIC_NUMBER
from importlib.machinery import ModuleSpec


class Shelf:
    """Modules that lie in the program itself, for Python's import: a path hook, a finder and a loader.

    `books` are the modules by the name of a path; each is a dictionary of names, and of a package's or module's code or
    source.
    """

    def __init__(self, books, path=None):
        self.books, self.path = books, path

    def __call__(self, path):
        if path not in self.books:
            raise ImportError(path)
        return Shelf(self.books, path)

    def find_spec(self, name, target=None):
        book = self.books[self.path]
        if name in book:
            spec = ModuleSpec(name, self, origin=self.path + "/" + name.replace(".", "/") + ".py")
            spec.has_location = True
            return spec
        if any(module.startswith(name + ".") for module in book):
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [self.path]
            return spec
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        what = self.books[self.path][module.__name__]
        code = marshal.loads(what) if isinstance(what, bytes) else compile(what, module.__spec__.origin, "exec")
        exec(code, module.__dict__)


def start(packed, first, entry, arguments):
    """Make the modules in `packed` importable, first those of the path `first`, and call `main` of the module `entry`.

    `packed` has them as bytecode by the version of Python that it is for, and, by "", as source for every other one.
    """
    gc.disable()  # The process lives for a moment.
    books = marshal.loads(zlib.decompress(binascii.a2b_base64(packed.get(MAGIC_NUMBER.hex(), packed[""]))))
    sys.path_hooks.insert(0, Shelf(books))
    sys.path.insert(0, first)
    module = __import__(entry, fromlist=["main"])
    module.main(arguments)
