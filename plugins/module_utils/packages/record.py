# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an installation brought to a host, written down beside it so that exactly that can be taken back.

Each role has a record of its own:

- `packages`: what came with an installation; `uncertain`: what came between the start of one that was cut off and the
  start of the next, by the former or by the user;
- `files`: what was in files that were changed;
- `key`: the fingerprint of the key of the repository that packages came from; the digest of the key file where the key
  is trusted by that and the file was not on the host yet;
- `stream`: the module stream of dnf's that was enabled (`module`, `name`), and the one `before`;
- `runfile`: the version that NVIDIA's installer was run for;
- `holds`: packages that were held beside a driver that somebody else installed;
- `verified`: directories of toolkits that were tried and worked, after the last installation;
- `pending`: what was there before an installation that has not ended, `asked`: what it asks for by name;
- `pending_key`, `pending_stream`, `pending_runfile`: what becomes `key`, `stream` and `runfile` once it has come.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import key_trust

DRIVER = "/var/lib/gpufleet/nvidia_driver.json"
TOOLKIT = "/var/lib/gpufleet/cuda_toolkit.json"
_LISTS = ("packages", "uncertain", "pending", "asked", "verified", "holds")
_ITEMS = ("key", "pending_key", "stream", "pending_stream", "runfile", "pending_runfile")
# What may follow a name in what a package manager is asked for: =version, or rpm's -[epoch:]version-release.
_VERSION = r"(=.+|-(\d+:)?\d[^-\s]*\.[^-\s]*-\d[^-\s]*)?"


def begin(
    host: dict,
    path: str,
    before: list[str],
    *,
    changed_files: list[dict] | None = None,
    key: str | None = None,
    asked: list[str] | None = None,
    stream: dict | None = None,
) -> str:
    """Return the record to write before the installation: a run that is cut off leaves it to the next one.

    `asked` is what the package manager will be asked for, `stream` the module stream that will be enabled.
    """
    known = read(host, path)
    there = set(before)
    changes = {
        "pending": known["pending"] or sorted(before),
        # What is there already can be somebody else's.
        "asked": sorted({*known["asked"], *(item for item in asked or [] if not _named([item], there))}),
        "files": _files_changed(known, changed_files),
        "verified": [],
        "pending_key": _fingerprint(host, key),
        "pending_stream": _stream_to_come(known, stream),
    }
    return _text(host, known, changes)


def finish(
    host: dict,
    path: str,
    before: list[str],
    after: list[str],
    *,
    changed_files: list[dict] | None = None,
    key: str | None = None,
    runfile: str | None = None,
) -> str:
    """Return the text of the record: what was in it, and what came since `before` or since the last `begin`.

    The key of a repository that nothing came from is forgotten, and so is a stream that is not enabled. `runfile` is
    the version of an installer of NVIDIA's that has just worked.
    """
    known = read(host, path)
    # Since a run that was cut off, the other role may have brought its own, and the user hers: those are told apart.
    others = _of_the_other(host, path, {*before, *after})
    came = set(after) - set(before) - set(known["pending"]) - others
    earlier = set(before) - set(known["pending"]) - others if known["pending"] else set()
    packages = {*known["packages"], *came, *_named(known["asked"], earlier)}
    stream, pending_stream = _streams_now(host, known)
    changes = {
        "packages": packages,
        "uncertain": sorted({*known["uncertain"], *earlier} - packages),
        "files": _files_changed(known, changed_files),
        "pending": [],
        "asked": [],
        "verified": [],
        # A hold goes with its package, and what comes later by that name is held by whoever holds it.
        "holds": [name for name in known["holds"] if name in set(after)],
        "key": known["confirmed_key"] or (_fingerprint(host, key) or known["key"] if came or earlier else None),
        "pending_key": None,
        "stream": stream,
        "pending_stream": pending_stream,
        **(_runfile_now(host, known) if not runfile else {"runfile": runfile, "pending_runfile": None}),
    }
    return _text(host, known, changes)


def begin_runfile(host: dict, path: str, version: str) -> str:
    """Return the record to write before NVIDIA's installer of this version is run."""
    return _text(host, read(host, path), {"pending_runfile": version})


def hold(host: dict, path: str, names: list[str]) -> str:
    """Return the record with these as the packages that are held beside a driver that somebody else installed."""
    return _text(host, read(host, path), {"holds": sorted(names)})


def verify(host: dict, path: str, directories: list[str]) -> str:
    """Return the record with toolkits that were tried and work; the next installation forgets them."""
    known = read(host, path)
    return _text(host, known, {"verified": sorted({*known["verified"], *directories})})


def is_open(host: dict, path: str) -> bool:
    """Tell whether a run that was cut off has left a record that can be finished as it is."""
    known = read(host, path)
    settled = _runfile_now(host, known)["pending_runfile"] != known["pending_runfile"]
    return bool(known["pending"]) or settled


def certain(host: dict, path: str, there: list[str]) -> set[str]:
    """Name those packages of what is `there` that came by this role and by nobody else."""
    known = read(host, path)
    asked = _named(known["asked"], set(there) - set(known["pending"]))
    return {*known["packages"], *asked}


def came(host: dict, path: str, there: list[str]) -> set[str]:
    """Name what came by this role; after a run that was cut off, all that came since it began."""
    known = read(host, path)
    since = set(there) - set(known["pending"]) - _of_the_other(host, path, set(there)) if known["pending"] else set()
    return {*certain(host, path, there), *known["uncertain"], *since}


def read(host: dict, path: str) -> dict:
    """Return the record that is on a host; an empty one where there is none, or one that cannot be read."""
    content = (host["files"].get(path) or {}).get("content")
    try:
        found = json.loads(content or "null")
    except ValueError:
        found = None
    found = found if isinstance(found, dict) else {}
    empty: dict[str, Any] = {"files": {}, **{name: [] for name in _LISTS}, **dict.fromkeys(_ITEMS)}
    known = {name: found.get(name) or nothing for name, nothing in empty.items()}
    known["pending_key"] = _fingerprint(host, known["pending_key"])
    known["confirmed_key"] = _fingerprint(host, known["key"])
    known["key"] = known["confirmed_key"] or known["pending_key"]
    return known


def is_key_of(name: str, fingerprint: str | None) -> bool:
    """Tell whether rpm means this key by a name: it ends with the end of the fingerprint, newer ones with all of it."""
    mine = "" if key_trust.is_digest(fingerprint) else (fingerprint or "")[-8:].lower()
    return bool(mine) and name.startswith("gpg-pubkey-") and name.endswith(mine)


def stream_now(host: dict, module: str) -> str | None:
    """Return the stream of a module that is enabled, as `module:stream`."""
    stream = (host.get("module_streams") or {}).get(module)
    return f"{module}:{stream}" if stream else None


def versions_there(host: dict) -> set[str]:
    """Return the versions of a driver of which there is something on a host."""
    driver = host.get("driver") or {}
    return {driver[name] for name in ("loaded", "library", "on_disk", "on_disk_next") if driver.get(name)}


def _fingerprint(host: dict, key: str | None) -> str | None:
    """Return the fingerprint of a key that is trusted by the digest of its file, once that file is on the host."""
    if key is None or not key_trust.is_digest(key):
        return key
    keys = (host.get("keyrings") or {}).values()
    return next((there["fingerprints"][0] for there in keys if key_trust.is_trusted(there, key)), key)


def _named(asked: list[str], names: set[str]) -> set[str]:
    """Pick the names that were asked for, with a version or without."""
    return {name for name in names if any(re.fullmatch(re.escape(name) + _VERSION, item) for item in asked)}


def _of_the_other(host: dict, path: str, names: set[str]) -> set[str]:
    return {name for other in (DRIVER, TOOLKIT) if other != path for name in certain(host, other, list(names))}


def _stream_to_come(known: dict, stream: dict | None) -> dict | None:
    """Remember the stream that was there before the first that the role enabled."""
    if stream is None:
        return known["pending_stream"]
    before = stream["before"]
    # A run that was cut off may have left the former one, and not have come to the next.
    ours = [item for item in (known["pending_stream"], known["stream"]) if item and before in (None, item["name"])]
    return {"module": stream["module"], "name": stream["name"], "before": ours[0]["before"] if ours else before}


def _streams_now(host: dict, known: dict) -> tuple[dict | None, dict | None]:
    """Return what of the streams counts: the one that is enabled, and one that is still to be put back."""
    pending, done = known["pending_stream"], known["stream"]
    if pending and stream_now(host, pending["module"]) == pending["name"]:
        return pending, None
    owed = pending and pending["before"] and stream_now(host, pending["module"]) is None
    return done, pending if owed else None


def _runfile_now(host: dict, known: dict) -> dict:
    """Tell by what is there whether an installer that was begun has come to its end, or left nothing behind."""
    version, driver = known["pending_runfile"], host.get("driver") or {}
    there = versions_there(host)
    built = version in (driver.get("on_disk"), driver.get("on_disk_next"))
    if version and driver.get("runfile") and driver.get("library") == version and built:
        return {"runfile": version, "pending_runfile": None}
    left = version in there or (driver.get("runfile") and not there)
    return {"runfile": known["runfile"], "pending_runfile": version if left else None}


def _files_changed(known: dict, changed_files: list[dict] | None) -> dict:
    files = dict(known["files"])
    for item in changed_files or []:
        first = files.get(item["after_header"], {}).get("before", item["before"])
        files[item["after_header"]] = {"before": first, "after": item["after"]}
    return files


def _text(host: dict, known: dict, changes: dict) -> str:
    """Write a record: what is known, with what changes of it. A pending key counts until `finish`."""
    content = {**known, "key": known["confirmed_key"], **changes}
    del content["confirmed_key"]
    # A repository's key that the other role brought is as much this one's; whoever goes last takes it along.
    mine = changes.get("key") or content["pending_key"] or content["key"]
    shared = {name for path in (DRIVER, TOOLKIT) for name in read(host, path)["packages"] if is_key_of(name, mine)}
    content["packages"] = sorted({*content["packages"], *shared})
    if content["pending_key"] == content["key"]:
        content["pending_key"] = None
    kept = {name: value for name, value in content.items() if value or name in ("packages", "files")}
    return json.dumps(kept, indent=2, sort_keys=True) + "\n"
