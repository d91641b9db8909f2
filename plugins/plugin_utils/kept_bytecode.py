# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Import the collection's modules on the controller like Python does: from bytecode that it keeps in __pycache__.

Ansible's loader of collections compiles every imported module again at every start, which takes longer than all else
that `site.yml` does on the controller. Plugins call `use()` before they import from module_utils.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location

_PLUGINS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PREFIX = __name__.partition(".plugin_utils.")[0] + "."
_ROOMS = ("module_utils", "plugin_utils")


class KeptBytecodeFinder:
    """Find modules of module_utils and plugin_utils. Python asks it before Ansible's finder, which finds packages."""

    @staticmethod
    def find_spec(name: str, path=None, target=None) -> ModuleSpec | None:
        if not name.startswith(_PREFIX):
            return None
        parts = name[len(_PREFIX) :].split(".")
        file = os.path.join(_PLUGINS, *parts) + ".py"
        return spec_from_file_location(name, file) if parts[0] in _ROOMS and os.path.isfile(file) else None


def use() -> None:
    """Use the bytecode for all later imports. PYTHONDONTWRITEBYTECODE prevents writing, as everywhere."""
    if KeptBytecodeFinder in sys.meta_path:
        return
    # Before Ansible's finder only, so that finders of others stay first. Without it, Python keeps bytecode itself.
    for index, finder in enumerate(sys.meta_path):
        if type(finder).__module__.startswith("ansible.utils.collection_loader."):
            sys.meta_path.insert(index, KeptBytecodeFinder)
            return
