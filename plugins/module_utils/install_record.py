# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an installation brought to a host, written down beside it so that exactly that can be taken back.

Each role has a record of its own:

- `packages`: what came with an installation; `uncertain`: what came between the start of one that was cut off and the
  start of the next, by the former or by the user;
- `files`: what was in files that were changed;
- `key`: the fingerprint of the repository that packages came from;
- `verified`: directories of toolkits that were tried and worked, after the last installation;
- `pending` and `pending_key`: what was there before an installation that has not ended, and what it is to come from.
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
    return _text(host, known, pending=pending, files=_files_changed(known, changed_files), pending_key=key)


def finish(
    host: dict,
    path: str,
    before: list[str],
    after: list[str],
    *,
    changed_files: list[dict] | None = None,
    key: str | None = None,
) -> str:
    """Return the text of the record: what was in it, and what came since `before` or since the last `begin`.

    The key of a repository that nothing came from is forgotten.
    """
    known = read(host, path)
    # Since a run that was cut off, the other role may have brought its own, and the user hers: those are told apart.
    others = {name for other in (DRIVER, TOOLKIT) if other != path for name in read(host, other)["packages"]}
    came = set(after) - set(before) - set(known["pending"]) - others
    earlier = set(before) - set(known["pending"]) - others if known["pending"] else set()
    confirmed = known["confirmed_key"] or (key or known["key"] if came or earlier else None)
    return _text(
        host,
        known,
        packages=[*known["packages"], *came],
        uncertain=sorted({*known["uncertain"], *earlier} - {*known["packages"], *came}),
        files=_files_changed(known, changed_files),
        key=confirmed,
    )


def verify(host: dict, path: str, directories: list[str]) -> str:
    """Return the record with toolkits that were tried and work; the next installation forgets them."""
    known = read(host, path)
    verified = sorted({*known["verified"], *directories})
    more = {"pending": known["pending"], "pending_key": known["pending_key"]}
    return _text(host, known, files=known["files"], verified=verified, **more)


def read(host: dict, path: str) -> dict:
    """Return the record that is on a host; an empty one where there is none, or one that cannot be read."""
    content = (host["files"].get(path) or {}).get("content")
    try:
        found = json.loads(content or "null")
    except ValueError:
        found = None
    found = found if isinstance(found, dict) else {}
    lists: dict[str, Any] = {"packages": [], "uncertain": [], "files": {}, "pending": [], "verified": []}
    empty = {**lists, "key": None, "pending_key": None}
    known = {name: found.get(name) or nothing for name, nothing in empty.items()}
    known["confirmed_key"] = known["key"]
    known["key"] = known["key"] or known["pending_key"]
    return known


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


def _text(
    host: dict,
    known: dict,
    *,
    files: dict,
    packages: list[str] | None = None,
    uncertain: list[str] | None = None,
    pending: list[str] | None = None,
    key: str | None = None,
    pending_key: str | None = None,
    verified: list[str] | None = None,
) -> str:
    """Write a record. What is not given of packages and key is as it is known; a pending key counts until `finish`."""
    packages = known["packages"] if packages is None else packages
    uncertain = known["uncertain"] if uncertain is None else uncertain
    # A repository's key that the other role brought is as much this one's; whoever goes last takes it along.
    mine = key or pending_key or known["confirmed_key"]
    shared = {name for path in (DRIVER, TOOLKIT) for name in read(host, path)["packages"] if is_key_of(name, mine)}
    content: dict[str, Any] = {"packages": sorted({*packages, *shared}), "files": files}
    more = {
        "uncertain": uncertain,
        "pending": pending,
        "verified": verified,
        "key": key or known["confirmed_key"],
        "pending_key": None if pending_key == known["confirmed_key"] else pending_key,
    }
    content.update({name: value for name, value in more.items() if value})
    return json.dumps(content, indent=2, sort_keys=True) + "\n"
