# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which options a module has, by its documentation, and which one somebody may have meant who misspelt it."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import yaml

# In C where PyYAML has it: the documentation of one module has a thousand lines.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def unknown(module: str, names: Iterable[str]) -> list[str]:
    """List those of `names` that the module has no option of. None are, where its documentation cannot be read."""
    # Reading the documentation as a whole takes a while: most names stand there as they are.
    rest = [name for name in names if not re.search(rf"^  {re.escape(name)}:", _written(module), re.MULTILINE)]
    if not rest:
        return []
    known = options(module)
    return [name for name in rest if known and name not in known]


def suggestion(module: str, name: str) -> str:
    """Ask for the name that may have been meant, and say where all of them are."""
    public = [option for option in options(module) if not option.startswith("_")]
    close = difflib.get_close_matches(name, public, n=3, cutoff=0.7)
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    return f"{meant} All of its options: ansible-doc {module}"


@lru_cache(maxsize=8)
def options(module: str) -> tuple[str, ...]:
    """List a module's options with all their names; none where its documentation cannot be read."""
    try:
        described = _described(_documentation(module))
    except Exception:  # Whatever is wrong with it: the module itself will judge its arguments.
        return ()
    return tuple(sorted({*described, *(alias for one in described.values() for alias in one.get("aliases") or ())}))


def _described(documentation: str) -> dict[str, Any]:
    """Return the options of a documentation with those of the fragments that it extends.

    The form is the documented one of collections: COLLECTION.FRAGMENT[.VARIANT] is the attribute VARIANT, in capital
    letters, of the class ModuleDocFragment in the collection's plugins/doc_fragments/FRAGMENT.py.
    """
    read = yaml.load(documentation, Loader=_LOADER) or {}
    found = dict(read.get("options") or {})
    fragments = read.get("extends_documentation_fragment") or []
    for name in [fragments] if isinstance(fragments, str) else fragments:
        namespace, collection, fragment, *variant = name.split(".")
        place = importlib.import_module(
            f"ansible_collections.{namespace}.{collection}.plugins.doc_fragments.{fragment}"
        )
        text = getattr(place.ModuleDocFragment, (variant or ["documentation"])[0].upper())
        found = {**_described(text), **found}
    return found


@lru_cache(maxsize=8)
def _written(module: str) -> str:
    """Return what the module's own documentation has below `options:`, where that can be told without reading it."""
    return options_text(_documentation(module))


@lru_cache(maxsize=8)
def _documentation(module: str) -> str:
    """Return a module's own documentation, YAML; nothing where the module or its documentation cannot be found.

    Ansible makes collections importable, so that Python finds the file. Ansible's loader of plugins is not public.
    """
    namespace, collection, name = module.split(".")
    try:
        place = importlib.util.find_spec(f"ansible_collections.{namespace}.{collection}.plugins.modules.{name}")
        if place is None or place.origin is None:
            return ""
        with open(place.origin, encoding="utf-8") as file:
            source = file.read()
    except (ImportError, OSError, ValueError):
        return ""
    return documentation_text(source)


def documentation_text(source: str) -> str:
    """Return the text of a module's `DOCUMENTATION`; nothing where the source has none."""
    written = re.search(r"^DOCUMENTATION = (r?(\"\"\"|''').*?\2)", source, re.MULTILINE | re.DOTALL)
    return ast.literal_eval(written.group(1)) if written else ""


def options_text(documentation: str) -> str:
    """Return the lines between `options:` and the next key of a module's documentation; none where that has none."""
    below = re.search(r"^options:[ \t]*\n(.*?)(?=^\w|\Z)", documentation, re.MULTILINE | re.DOTALL)
    return below.group(1) if below else ""
