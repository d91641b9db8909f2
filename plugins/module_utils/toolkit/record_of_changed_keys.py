# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of the keys that a role set in a TOML file, with their former lines: its text, and a damaged one.

Pure functions.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError


def read(text: str | None, path: str) -> dict[str, t.Any]:
    """Return the content of a record. Raise TomlError if it cannot be read."""
    try:
        known = json.loads(text or '{"keys": {}, "tables": [], "made": false}')
        for name, former in dict(known["keys"]).items():
            lines = former["before"] if isinstance(former, dict) and {"value", "before"} <= former.keys() else 0
            if lines is not None and not _is_lines(lines):
                raise ValueError(f"keys.{name} is {str(former)[:80]!r}, but must have a value and its lines before")
        return {"keys": dict(known["keys"]), "tables": list(known["tables"]), "made": bool(known["made"])}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TomlError(
            f"the record {path} cannot be read: {error!r}. Remove this file. The keys "
            "then stay until you remove them by hand"
        ) from error


def text_of(keys: t.Mapping[str, t.Any], tables: t.Iterable[str], *, made: bool) -> str | None:
    """Return the text of a record, None without keys."""
    content = {"keys": dict(sorted(keys.items())), "tables": sorted(tables), "made": made}
    return f"{json.dumps(content, indent=2)}\n" if keys else None


def _is_lines(lines: t.Any) -> bool:
    return isinstance(lines, list) and all(isinstance(line, str) for line in lines)
