# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the options of a module from its documentation, and suggest an option for a misspelled name."""

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

# The C loader is much faster, and the documentation of one module can have a thousand lines.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def unknown(module: str, names: Iterable[str]) -> list[str]:
    """Return the names that are not options of the module. If its documentation cannot be read, return none."""
    # A text search finds most names. Parsing the whole documentation is slow.
    rest = [name for name in names if not re.search(rf"^  {re.escape(name)}:", _written(module), re.MULTILINE)]
    if not rest:
        return []
    known = options(module)
    return [name for name in rest if known and name not in known]


def suggestion(module: str, name: str) -> str:
    """Return a sentence with similar option names and the command that lists all options."""
    public = [option for option in options(module) if not option.startswith("_")]
    close = difflib.get_close_matches(name, public, n=3, cutoff=0.7)
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    return f"{meant} All of its options: ansible-doc {module}"


@lru_cache(maxsize=8)
def options(module: str) -> tuple[str, ...]:
    """Return the names and aliases of a module's options. If its documentation cannot be read, return none."""
    try:
        found = described(_documentation(module))
    except Exception:  # The module itself reports invalid arguments.
        return ()
    return tuple(sorted({*found, *(alias for one in found.values() for alias in one.get("aliases") or ())}))


def described(documentation: str) -> dict[str, Any]:
    """Return the options of a module's documentation, including those of its fragments.

    The form is the documented one of collections: COLLECTION.FRAGMENT[.VARIANT] is the attribute VARIANT, in capital
    letters, of the class ModuleDocFragment in the collection's plugins/doc_fragments/FRAGMENT.py.
    """
    read = yaml.load(documentation, Loader=_LOADER) or {}
    found = dict(read.get("options") or {})
    fragments = read.get("extends_documentation_fragment") or []
    for name in [fragments] if isinstance(fragments, str) else fragments:
        namespace, collection, fragment, *variant = name.split(".")
        extension = importlib.import_module(
            f"ansible_collections.{namespace}.{collection}.plugins.doc_fragments.{fragment}"
        )
        text = getattr(extension.ModuleDocFragment, (variant or ["documentation"])[0].upper())
        found = {**described(text), **found}
    return found


@lru_cache(maxsize=8)
def _written(module: str) -> str:
    """Return the text below `options:` in the module's own documentation."""
    return options_text(_documentation(module))


@lru_cache(maxsize=8)
def _documentation(module: str) -> str:
    """Return a module's own documentation as YAML, or an empty string if it is not found.

    Python's import system finds the file, because Ansible makes collections importable. Its loader is not public.
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
    """Return the text of a module's `DOCUMENTATION`, or an empty string."""
    written = re.search(r"^DOCUMENTATION = (r?(\"\"\"|''').*?\2)", source, re.MULTILINE | re.DOTALL)
    return ast.literal_eval(written.group(1)) if written else ""


def options_text(documentation: str) -> str:
    """Return the lines between `options:` and the next key of a module's documentation."""
    below = re.search(r"^options:[ \t]*\n(.*?)(?=^\w|\Z)", documentation, re.MULTILINE | re.DOTALL)
    return below.group(1) if below else ""
