# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an installation brought to a host, written down beside it so that exactly that can be taken back.

Each role has a record of its own. A run that is cut off leaves in `pending` what was there before, for the next one.
"""

from __future__ import annotations

import json
from typing import Any

DRIVER = "/var/lib/gpufleet/nvidia_driver.json"
TOOLKIT = "/var/lib/gpufleet/cuda_toolkit.json"


def begin(
    host: dict, path: str, before: list[str], *, changed_files: list[dict] | None = None, key: str | None = None
) -> str:
    """Return the record to write before the installation: a run that is cut off leaves it to the next one."""
    known = read(host, path)
    pending = known["pending"] or sorted(before)
    return _text(host, known["packages"], _files_changed(known, changed_files), pending, key or known["key"])


def finish(
    host: dict,
    path: str,
    before: list[str],
    after: list[str],
    *,
    changed_files: list[dict] | None = None,
    key: str | None = None,
) -> str:
    """Return the text of the record: what was in it, and what came since `before` or since the last `begin`."""
    known = read(host, path)
    since = known["pending"] or before
    # Since a run that was cut off, the other role may have brought its own.
    others = {name for other in (DRIVER, TOOLKIT) if other != path for name in read(host, other)["packages"]}
    came = set(after) - set(since) - others
    return _text(host, [*known["packages"], *came], _files_changed(known, changed_files), [], key or known["key"])


def read(host: dict, path: str) -> dict:
    """Return the record that is on a host; an empty one where there is none, or one that cannot be read."""
    content = (host["files"].get(path) or {}).get("content")
    try:
        found = json.loads(content or "null")
    except ValueError:
        found = None
    found = found if isinstance(found, dict) else {}
    empty: dict[str, Any] = {"packages": [], "files": {}, "pending": [], "key": None}
    return {name: found.get(name) or nothing for name, nothing in empty.items()}


def is_key_of(name: str, fingerprint: str | None) -> bool:
    """Tell whether rpm means this key by a name: it ends with the end of the fingerprint, newer ones with all of it."""
    mine = (fingerprint or "")[-8:].lower()
    return bool(mine) and name.startswith("gpg-pubkey-") and name.endswith(mine)


def _files_changed(known: dict, changed_files: list[dict] | None) -> dict:
    files = dict(known["files"])
    for item in changed_files or []:
        first = files.get(item["after_header"], {}).get("before", item["before"])
        files[item["after_header"]] = {"before": first, "after": item["after"]}
    return files


def _text(host: dict, packages: list[str], files: dict, pending: list[str], key: str | None) -> str:
    # A repository's key that the other role brought is as much this one's; whoever goes last takes it along.
    shared = {name for path in (DRIVER, TOOLKIT) for name in read(host, path)["packages"] if is_key_of(name, key)}
    content: dict[str, Any] = {"packages": sorted({*packages, *shared}), "files": files}
    content.update({name: value for name, value in (("pending", pending), ("key", key)) if value})
    return json.dumps(content, indent=2, sort_keys=True) + "\n"
