# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of what a role installed on a host. State `absent` removes exactly what the record contains.

Each role has its own record:

- `packages`: the packages that the role installed;
- `uncertain`: packages that appeared between an interrupted installation and the next one; either the role or the user
  installed them;
- `files`: the previous text of changed files;
- `key`: the fingerprint of the repository's key, or the digest of the key file while that file is not installed yet;
- `former_keys`: the fingerprints of keys that `key` replaced;
- `stream`: the dnf module stream that the role enabled (`module`, `name`), and the stream `before`;
- `runfile`: the driver version that NVIDIA's installer installed;
- `holds`: the packages that the role holds for a driver that it did not install;
- `verified`: the directories of toolkits that passed verification after the last installation;
- `pending`: the installed packages before an installation that has not finished;
- `asked`: the packages that this installation requests by name;
- `pending_key`, `pending_stream`, `pending_runfile`: the values of `key`, `stream` and `runfile` after it finishes.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import key_trust

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host

DRIVER = owned.DRIVER_RECORD
TOOLKIT = owned.TOOLKIT_RECORD
_LISTS = ("packages", "uncertain", "pending", "asked", "verified", "holds", "former_keys")
_ITEMS = ("key", "pending_key", "stream", "pending_stream", "runfile", "pending_runfile")
# A version after a package name: apt's =version, or rpm's -[epoch:]version-release.
_VERSION = r"(=.+|-(\d+:)?\d[^-\s]*\.[^-\s]*-\d[^-\s]*)?"


def begin(
    host: Host,
    path: str,
    before: list[str],
    *,
    changed_files: list[dict] | None = None,
    key: str | None = None,
    asked: list[str] | None = None,
    stream: dict | None = None,
) -> str:
    """Return the record to write before the installation. If the run is interrupted, the next run uses it.

    `asked` are the packages to request by name, `stream` is the module stream to enable.
    """
    known = read(host, path)
    installed = set(before)
    changes = {
        "pending": known["pending"] or sorted(before),
        # The role did not install packages that are already installed.
        "asked": sorted({*known["asked"], *(item for item in asked or [] if not _named([item], installed))}),
        "files": _files_changed(known, changed_files),
        "verified": [],
        "pending_key": _fingerprint(host, key),
        "pending_stream": _pending_stream(known, stream),
    }
    return _text(host, known, changes)


def finish(
    host: Host,
    path: str,
    before: list[str],
    after: list[str],
    *,
    changed_files: list[dict] | None = None,
    key: str | None = None,
    runfile: str | None = None,
) -> str:
    """Return the record with the packages that were installed since `before`, or since the last `begin`.

    The record drops the key if no package was installed, and the stream if it is not enabled. `runfile` is the driver
    version that NVIDIA's installer has just installed.
    """
    known = read(host, path)
    # After an interrupted run, the other role or the user may have installed packages. Do not record these.
    others = _of_other_role(host, path, {*before, *after})
    new = set(after) - set(before) - set(known["pending"]) - others
    earlier = set(before) - set(known["pending"]) - others if known["pending"] else set()
    packages = {*known["packages"], *new, *_named(known["asked"], earlier)}
    stream, pending_stream = _current_streams(host, known)
    former_key = known["confirmed_key"]
    current_key = _fingerprint(host, key) or known["pending_key"] or former_key
    changes = {
        "packages": packages,
        "uncertain": sorted({*known["uncertain"], *earlier} - packages),
        "files": _files_changed(known, changed_files),
        "pending": [],
        "asked": [],
        "verified": [],
        # A removed package has no hold. The role does not hold a package that is installed again later.
        "holds": [name for name in known["holds"] if name in set(after)],
        "key": current_key if former_key or new or earlier else None,
        "former_keys": sorted({*known["former_keys"], former_key} - {current_key, None}),
        "pending_key": None,
        "stream": stream,
        "pending_stream": pending_stream,
        **(_current_runfile(host, known) if not runfile else {"runfile": runfile, "pending_runfile": None}),
    }
    return _text(host, known, changes)


def begin_runfile(host: Host, path: str, version: str) -> str:
    """Return the record to write before NVIDIA's installer runs."""
    return _text(host, read(host, path), {"pending_runfile": version})


def hold(host: Host, path: str, names: list[str]) -> str:
    """Return the record with the packages that the role holds for a driver that it did not install."""
    return _text(host, read(host, path), {"holds": sorted(names)})


def verify(host: Host, path: str, directories: list[str]) -> str:
    """Return the record with toolkits that passed verification. The next installation clears them."""
    known = read(host, path)
    return _text(host, known, {"verified": sorted({*known["verified"], *directories})})


def is_unfinished(host: Host, path: str) -> bool:
    """Return whether an interrupted run left a record that can be finished."""
    known = read(host, path)
    installer_ended = _current_runfile(host, known)["pending_runfile"] != known["pending_runfile"]
    return bool(known["pending"]) or installer_ended


def installed_for_certain(host: Host, path: str, installed: list[str]) -> set[str]:
    """Return the packages that this role installed for certain. `installed` are all installed packages."""
    known = read(host, path)
    asked = _named(known["asked"], set(installed) - set(known["pending"]))
    return {*known["packages"], *asked}


def possibly_installed(host: Host, path: str, installed: list[str]) -> set[str]:
    """Return the packages that this role installed. After an interrupted run, return all packages installed since."""
    known = read(host, path)
    names = set(installed)
    since = names - set(known["pending"]) - _of_other_role(host, path, names) if known["pending"] else set()
    return {*installed_for_certain(host, path, installed), *known["uncertain"], *since}


def read(host: Host, path: str) -> dict:
    """Return the record of a host, or an empty record if it is missing or invalid."""
    content = (host["files"].get(path) or {}).get("content")
    try:
        found = json.loads(content or "null")
    except ValueError:
        found = None
    found = found if isinstance(found, dict) else {}
    empty: dict[str, Any] = {"files": {}, **{name: [] for name in _LISTS}, **dict.fromkeys(_ITEMS)}
    known = {name: found.get(name) or default for name, default in empty.items()}
    known["pending_key"] = _fingerprint(host, known["pending_key"])
    known["confirmed_key"] = _fingerprint(host, known["key"])
    known["key"] = known["confirmed_key"] or known["pending_key"]
    return known


def is_key_of(name: str, fingerprint: str | None) -> bool:
    """Return whether `name` is rpm's package for a key. Newer versions of rpm use the full fingerprint in the name."""
    short_id = "" if key_trust.is_digest(fingerprint) else (fingerprint or "")[-8:].lower()
    return bool(short_id) and name.startswith("gpg-pubkey-") and name.endswith(short_id)


def is_recorded_key(name: str, known: dict) -> bool:
    """Return whether `name` is rpm's package for a key in a record, including replaced and pending keys."""
    return any(is_key_of(name, key) for key in (known["key"], known["pending_key"], *known["former_keys"]))


def stream_now(host: Host, module: str) -> str | None:
    """Return the enabled stream of a module, as `module:stream`."""
    stream = host["module_streams"].get(module)
    return f"{module}:{stream}" if stream else None


def driver_versions_present(host: Host) -> set[str]:
    """Return the versions of the loaded module, the library and the module files of a host."""
    driver = host["driver"]
    return {driver[name] for name in ("loaded", "library", "on_disk", "on_disk_next") if driver.get(name)}


def _fingerprint(host: Host, key: str | None) -> str | None:
    """Return the fingerprint of a key that is trusted by the digest of its file, once that file is on the host."""
    if key is None or not key_trust.is_digest(key):
        return key
    keys = host["keyrings"].values()
    return next((there["fingerprints"][0] for there in keys if key_trust.is_trusted(there, key)), key)


def _named(asked: list[str], names: set[str]) -> set[str]:
    """Return the names that are in `asked`, with or without a version."""
    return {name for name in names if any(re.fullmatch(re.escape(name) + _VERSION, item) for item in asked)}


def _of_other_role(host: Host, path: str, names: set[str]) -> set[str]:
    other = TOOLKIT if path == DRIVER else DRIVER
    return installed_for_certain(host, other, list(names))


def _pending_stream(known: dict, stream: dict | None) -> dict | None:
    """Return the stream that the role will enable, with the stream before the first one that the role enabled."""
    if stream is None:
        return known["pending_stream"]
    before = stream["before"]
    # An interrupted run may have reset the previous stream without enabling the next one.
    own = [item for item in (known["pending_stream"], known["stream"]) if item and before in (None, item["name"])]
    return {"module": stream["module"], "name": stream["name"], "before": own[0]["before"] if own else before}


def _current_streams(host: Host, known: dict) -> tuple[dict | None, dict | None]:
    """Return the stream that the role enabled, and the pending stream if the previous stream must still be restored."""
    pending, done = known["pending_stream"], known["stream"]
    if pending and stream_now(host, pending["module"]) == pending["name"]:
        return pending, None
    restore = pending and pending["before"] and stream_now(host, pending["module"]) is None
    return done, pending if restore else None


def _current_runfile(host: Host, known: dict) -> dict:
    """Return `runfile` and `pending_runfile` after NVIDIA's installer completed, stopped early or left no files."""
    version, driver = known["pending_runfile"], host["driver"]
    present = driver_versions_present(host)
    built = version in (driver.get("on_disk"), driver.get("on_disk_next"))
    if version and driver.get("runfile") and driver.get("library") == version and built:
        return {"runfile": version, "pending_runfile": None}
    incomplete = version in present or (driver.get("runfile") and not present)
    return {"runfile": known["runfile"], "pending_runfile": version if incomplete else None}


def _files_changed(known: dict, changed_files: list[dict] | None) -> dict:
    files = dict(known["files"])
    for item in changed_files or []:
        first = files.get(item["after_header"], {}).get("before", item["before"])
        files[item["after_header"]] = {"before": first, "after": item["after"]}
    return files


def _text(host: Host, known: dict, changes: dict) -> str:
    """Return the text of a record with changes. A pending key is valid until `finish`."""
    content = {**known, "key": known["confirmed_key"], **changes}
    del content["confirmed_key"]
    # Both roles record the key of a repository that they share. The last role that is removed removes the key.
    recorded = {name for path in (DRIVER, TOOLKIT) for name in read(host, path)["packages"]}
    shared = {name for name in recorded if is_recorded_key(name, content)}
    content["packages"] = sorted({*content["packages"], *shared})
    if content["pending_key"] == content["key"]:
        content["pending_key"] = None
    kept = {name: value for name, value in content.items() if value or name in ("packages", "files")}
    return json.dumps(kept, indent=2, sort_keys=True) + "\n"
