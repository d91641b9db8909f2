# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which options a module has, by its documentation, and which one somebody may have meant who misspelt it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import lru_cache

from ansible.plugins.loader import fragment_loader, module_loader
from ansible.utils.plugin_docs import get_docstring


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
    found = module_loader.find_plugin_with_context(module)
    if not found.resolved:
        return ()
    try:
        documentation = get_docstring(
            found.plugin_resolved_path,
            fragment_loader,
            collection_name=found.plugin_resolved_collection,
            plugin_type="module",
        )[0]
        described = documentation["options"]
        return tuple(sorted({*described, *(alias for one in described.values() for alias in one.get("aliases") or ())}))
    except Exception:  # Whatever is wrong with it: the module itself will judge its arguments.
        return ()


@lru_cache(maxsize=8)
def _written(module: str) -> str:
    """Return what the module's own documentation has below `options:`, where that can be told without reading it."""
    found = module_loader.find_plugin_with_context(module)
    if not found.resolved:
        return ""
    try:
        with open(found.plugin_resolved_path, encoding="utf-8") as file:
            return options_text(file.read())
    except (OSError, ValueError):
        return ""


def options_text(source: str) -> str:
    """Return the lines between `options:` and the next key of a module's documentation; none where that has none."""
    documentation = re.search(r"^DOCUMENTATION = r?(\"\"\"|''')(.*?)\1", source, re.MULTILINE | re.DOTALL)
    below = (
        re.search(r"^options:[ \t]*\n(.*?)(?=^\w|\Z)", documentation.group(2), re.MULTILINE | re.DOTALL)
        if documentation
        else None
    )
    return below.group(1) if below else ""
