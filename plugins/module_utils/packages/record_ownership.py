# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what of a host belongs to a record of package transactions. Pure functions on the content of records.

A record lists what its transactions installed. `record` describes the keys that the roles write. Package transactions
add:

- `requested`: the packages in `packages` that a transaction requested by name;
- `removed`: packages that it installed and that are no longer installed, but whose configuration files may remain;
- `repositories`: the names of the repositories that a transaction configured;
- `written`: the files that a transaction created;
- `planned`: the planned changes of a transaction that has not finished, as lists of name, action, version before,
  version after and architecture;
- `previous`: the former content of the files that this transaction writes or removes. None: the file did not exist;
- `released`: the holds that this transaction released;
- `further_keys`: the fingerprints of further keys in a replaced key file, which rpm imported with the trusted key;
- `more_streams`, `more_pending_streams`: further items like `stream` and `pending_stream`, for other modules.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust

# The keys of a record by type: lists of texts, other lists, dictionaries, texts, and dictionaries or None.
TEXT_LISTS = (
    *("packages", "uncertain", "pending", "asked", "holds", "former_keys"),
    *("requested", "removed", "repositories", "written", "released", "further_keys"),
)
_LISTS = (*TEXT_LISTS, "planned", "more_streams", "more_pending_streams")
DICTIONARIES = ("files", "previous")
_ITEMS = ("key", "pending_key", "stream", "pending_stream", "runfile", "pending_runfile")
_FIELDS = (*_LISTS, *DICTIONARIES, *_ITEMS)
# Keys that only a transaction that has not finished has.
_UNTIL_FINISHED: dict[str, Any] = {
    **{name: [] for name in ("pending", "asked", "planned", "released")},
    "pending_key": None,
    "previous": {},
}
# The names of driver and toolkit packages. Their prerequisites, such as DKMS and headers, have other names.
_OF_NVIDIA = re.compile(r"nvidia|cuda|^libnv|^nvlsm")
# Of these, kernel modules, main libraries and meta packages of the driver, and packages of the toolkit. Without them,
# the others are leftovers.
_MAIN = re.compile(
    r"cuda-.+|nvidia-cuda-.+|nvidia-open(-\d+)?"
    r"|libcuda1|libnvidia-ml1|nvidia-smi|libnvidia-compute(-\d.*)?|nvidia-driver-cuda|nvidia-compute(-utils)?-G\d\d"
    r"|nvidia-(utils|kernel-common|compute-utils)-\d+-server.*"
    r"|(kmod|linux-modules)-nvidia-.+|nvidia-dkms.*|nvidia-(open-)?kernel-(open-)?(dkms|support)"
    r"|nvidia-(open-)?driver-G\d\d.*"
)
# An architecture and a version after a package name: apt's =version, a minimum, or rpm's -[epoch:]version-release.
_VERSION = r"(:[a-z][a-z0-9]*)?(>?=.+|-(\d+:)?\d[^-\s]*\.[^-\s]*-\d[^-\s]*)?"


@dataclasses.dataclass
class PackageRemoval:
    """What to remove so that nothing of a record remains."""

    # Installed packages: requested by name, installed with these, and those that either a transaction or the user
    # installed. Remove the last two only if nothing else needs them.
    requested: list[str] = dataclasses.field(default_factory=list)
    dependencies: list[str] = dataclasses.field(default_factory=list)
    uncertain: list[str] = dataclasses.field(default_factory=list)
    # apt: removed packages whose configuration files remain.
    unpurged: list[str] = dataclasses.field(default_factory=list)
    # rpm's packages for keys that no other record lists.
    keys: list[str] = dataclasses.field(default_factory=list)
    # Repositories that no other record lists, and the files to remove, which include the files of these repositories
    # that a transaction created.
    repositories: list[str] = dataclasses.field(default_factory=list)
    files: list[str] = dataclasses.field(default_factory=list)
    # The path, the text `before` and the text `after` of each changed file. Restore a file only if it still has the
    # text `after`. Digests replace the logins.
    restore: list[dict[str, str]] = dataclasses.field(default_factory=list)
    # The `module` to reset, and the stream `before` to enable again, or None.
    streams: list[dict[str, str | None]] = dataclasses.field(default_factory=list)
    holds: list[str] = dataclasses.field(default_factory=list)

    @property
    def packages(self) -> list[str]:
        """All installed packages of the record."""
        return sorted({*self.requested, *self.dependencies, *self.uncertain})


def together(removals: Iterable[PackageRemoval]) -> PackageRemoval:
    """Return what to remove for several records in one transaction."""
    result = PackageRemoval()
    for found in removals:
        for field in dataclasses.fields(PackageRemoval):
            known = getattr(result, field.name)
            known += [item for item in getattr(found, field.name) if item not in known]
    return result


def normalized(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a record with all keys. Keys of others stay."""
    empty: dict[str, Any] = {
        **{name: [] for name in _LISTS},
        **{name: {} for name in DICTIONARIES},
        **dict.fromkeys(_ITEMS),
    }
    return {**content, **{name: content.get(name) or default for name, default in empty.items()}}


def text(content: Mapping[str, Any]) -> str:
    """Return the text of a record, without its empty keys."""
    kept = {
        name: value for name, value in content.items() if value or name in ("packages", "files") or name not in _FIELDS
    }
    return json.dumps(kept, indent=2, sort_keys=True) + "\n"


def is_empty(content: Mapping[str, Any]) -> bool:
    """Return whether a record contains nothing."""
    return not any(content.values())


def begin(
    known: Mapping[str, Any],
    before: Iterable[str],
    others: Iterable[Mapping[str, Any]] = (),
    *,
    asked: Iterable[str] = (),
    keys: Iterable[str | None] = (),
    streams: Iterable[Mapping[str, Any]] = (),
    changed_files: Iterable[Mapping[str, str]] = (),
    written: Iterable[str] = (),
    repositories: Iterable[str] = (),
    planned: Iterable[Iterable[Any]] = (),
    previous: Mapping[str, Any] | None = None,
    holds: Iterable[str] = (),
    released: Iterable[str] = (),
    further_keys: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the record to write before an installation. If the run is interrupted, the next run uses it.

    `before` are the installed packages, `asked` those to request by name, `keys` the fingerprints of the repositories'
    keys, `streams` the module streams to enable with the stream `before`, `changed_files` the changed files of others,
    `written` the files to create, `holds` the holds to set, and `further_keys` the fingerprints of the keys that a
    replaced key file contains besides the trusted ones. The record keeps what an interrupted run wrote.
    """
    known, others = normalized(known), [normalized(other) for other in others]
    installed, repositories = set(before), list(repositories)
    if is_abandoned(known, installed) and owned.REPOSITORY_ID not in repositories:
        known = _without_repository(known)
    current_key, *more_keys = [*keys] or [known["pending_key"]]
    all_released = {*known["released"], *released}
    files = _files_changed(known, changed_files)
    all_written = {*known["written"], *written, *_shared_files(repositories, others)}
    content = {
        **known,
        "pending": known["pending"] or sorted(installed),
        # The transaction does not install packages that are already installed.
        "asked": sorted({*known["asked"], *(item for item in asked if item and not named([item], installed))}),
        "files": files,
        "written": sorted(all_written),
        "repositories": sorted({*known["repositories"], *_own(repositories, [*files, *all_written], others)}),
        "pending_key": current_key,
        "former_keys": sorted({*known["former_keys"], *more_keys}),
        **_streams_to_enable(known, streams),
        "planned": [list(change) for change in planned],
        # An interrupted run may have changed the files already.
        "previous": {**(previous or {}), **known["previous"]},
        # A hold that the user set stays the user's, even if the transaction releases it for a while.
        "holds": sorted({*known["holds"], *holds} - (all_released - set(known["holds"]))),
        "released": sorted(all_released),
        "further_keys": sorted({*known["further_keys"], *further_keys}),
    }
    return with_shared_keys(content, others)


def finish(
    known: Mapping[str, Any],
    before: Iterable[str],
    after: Iterable[str],
    others: Iterable[Mapping[str, Any]] = (),
    *,
    enabled: Mapping[str, str],
    keys: Iterable[str | None] = (),
    undone: Collection[str] = (),
    holds: Iterable[str] = (),
    held: Iterable[str] | None = None,
) -> dict[str, Any]:
    """Return the record with the packages that were installed since `before`, or since the last `begin`.

    The record drops the key if no package was installed, a stream that is not in `enabled`, the files that are
    `undone`, and the holds that are not in `held`.
    """
    known, others = normalized(known), [normalized(other) for other in others]
    before, after = set(before), set(after)
    # After an interrupted run, another transaction or the user may have installed packages. Do not record these.
    foreign = of_others(others, before | after)
    pending = set(known["pending"])
    new = after - before - pending - foreign
    earlier = before - pending - foreign if pending else set()
    came_by_name = named(known["asked"], new | earlier)
    packages = {*known["packages"], *new, *came_by_name}
    former_key = known["key"]
    given_key, *more_keys = [*keys] or [None]
    current_key = given_key or known["pending_key"] or former_key
    current_keys = {current_key, *more_keys}
    files = {path: item for path, item in known["files"].items() if path not in undone}
    written = [path for path in known["written"] if path not in undone]
    touched = [*known["previous"], *undone]
    still = after if held is None else after & set(held)
    # An interrupted run may have released holds of the user, which this run sets again.
    own_holds = set(holds) - set(known["released"])
    content = {
        **known,
        **_UNTIL_FINISHED,
        "packages": sorted(packages & after),
        "removed": sorted({*known["removed"], *packages} - after),
        "requested": sorted({*known["requested"], *came_by_name} & after),
        "uncertain": sorted({*known["uncertain"], *earlier} - packages),
        "files": files,
        "written": written,
        "repositories": [
            name
            for name in known["repositories"]
            if _own([name], [*files, *written], others) or not any(is_file_of(path, name) for path in touched)
        ],
        # A removed package has no hold. The role does not hold a package that is installed again later.
        "holds": [name for name in sorted({*known["holds"], *own_holds}) if name in still],
        "key": current_key if former_key or new or earlier else None,
        "former_keys": sorted({*known["former_keys"], *more_keys, former_key} - {current_key, None}),
        "further_keys": _imported_keys(known, current_keys, after),
        **_enabled_streams(known, enabled),
    }
    return with_shared_keys(content, others)


def _imported_keys(known: Mapping[str, Any], current: Collection[str | None], after: Collection[str]) -> list[str]:
    """Return the further keys that rpm still has: it keeps a key until somebody erases it."""
    return [key for key in known["further_keys"] if key not in current and any(is_key_of(name, key) for name in after)]


def removal(
    known: Mapping[str, Any],
    installed: Iterable[str],
    others: Iterable[Mapping[str, Any]] = (),
    *,
    enabled: Mapping[str, str],
    config_files: Iterable[str] = (),
) -> PackageRemoval:
    """Return what to remove. `enabled` are the enabled streams by module, `config_files` the packages not purged."""
    known, others = normalized(known), [normalized(other) for other in others]
    names = set(installed)
    recorded = possibly(known, names, others)
    certain = certainly(known, names)
    keys = {name for name in recorded & names if is_recorded_key(name, known)}
    members = {name for name in recorded & names if not name.startswith("gpg-pubkey-")}
    requested = members & {*known["requested"], *named(known["asked"], names - set(known["pending"]))}
    elsewhere = {path for other in others for path in other["written"]}
    theirs = {name for other in others for name in repositories_of(other)}
    return PackageRemoval(
        requested=sorted(requested),
        dependencies=sorted((members & certain) - requested),
        uncertain=sorted(members - certain),
        unpurged=sorted(name for name in config_files if name in {*recorded, *known["removed"]} and name not in names),
        keys=sorted(name for name in keys if not any(_uses_key(other, name) for other in others)),
        repositories=sorted(set(repositories_of(known)) - theirs),
        files=[
            path
            for path in known["written"]
            if path not in elsewhere and not any(is_file_of(path, name) for name in theirs)
        ],
        restore=[
            {"path": path, "before": item["before"], "after": item["after"]} for path, item in known["files"].items()
        ],
        streams=_streams_to_reset(known, enabled),
        holds=list(known["holds"]),
    )


def certainly(known: Mapping[str, Any], installed: Iterable[str]) -> set[str]:
    """Return the packages that the record's transactions installed for certain."""
    return {*known["packages"], *named(known["asked"], set(installed) - set(known["pending"]))}


def possibly(known: Mapping[str, Any], installed: Iterable[str], others: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the packages of the record. After an interrupted run, return all packages installed since."""
    names = set(installed)
    since = names - set(known["pending"]) - of_others(others, names) if known["pending"] else set()
    return {*certainly(known, names), *known["uncertain"], *since}


def removable(known: Mapping[str, Any], installed: Iterable[str], others: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the installed packages that a role asked for by name and installed. Mere dependencies stay."""
    names = set(installed)
    asked = {item.partition("=")[0] for item in (*known["requested"], *known["asked"])}
    return asked & possibly(known, names, others) & names


def is_abandoned(known: Mapping[str, Any], installed: Iterable[str]) -> bool:
    """Return whether the driver and the toolkit of a record were removed by hand. Some dependencies may be left."""
    recorded = {name for key in ("packages", "uncertain", "removed") for name in known[key] if _OF_NVIDIA.search(name)}
    main = {name for name in recorded if _MAIN.fullmatch(name)} or recorded
    return bool(main) and not known["pending"] and main.isdisjoint(installed)


def _without_repository(known: dict[str, Any]) -> dict[str, Any]:
    """Return the record of packages that do not come from NVIDIA's repository. `written` still has its files."""
    return {
        **known,
        "repositories": [name for name in known["repositories"] if name != owned.REPOSITORY_ID],
        "key": None,
        "former_keys": sorted({*known["former_keys"], *([known["key"]] if known["key"] else [])}),
    }


def of_others(others: Iterable[Mapping[str, Any]], names: Iterable[str]) -> set[str]:
    """Return the packages that belong to other records for certain."""
    names = set(names)
    return {name for other in others for name in certainly(other, names)}


def named(asked: Iterable[str], names: Iterable[str]) -> set[str]:
    """Return the names that are in `asked`, with or without an architecture and a version."""
    asked = list(asked)
    return {name for name in names if any(re.fullmatch(re.escape(name) + _VERSION, item) for item in asked)}


def is_key_of(name: str, fingerprint: str | None) -> bool:
    """Return whether `name` is rpm's package for a key. Newer versions of rpm use the full fingerprint in the name."""
    short_id = "" if key_trust.is_digest(fingerprint) else (fingerprint or "")[-8:].lower()
    return bool(short_id) and name.startswith("gpg-pubkey-") and name.endswith(short_id)


def is_recorded_key(name: str, known: Mapping[str, Any]) -> bool:
    """Return whether `name` is rpm's package for a key in a record, including replaced, pending and further keys."""
    return any(is_key_of(name, key) for key in (*trusted_keys(known), *known["further_keys"]))


def trusted_keys(known: Mapping[str, Any]) -> list[str]:
    """Return the keys that a record's transactions trusted."""
    return [key for key in (known["key"], known["pending_key"], *known["former_keys"]) if key]


def repositories_of(known: Mapping[str, Any]) -> list[str]:
    """Return the repositories of a record. The roles record only the key of NVIDIA's repository."""
    used = known["repositories"] or ([owned.REPOSITORY_ID] if known["key"] or known["pending_key"] else [])
    return list(used)


def is_file_of(path: str, repository: str) -> bool:
    """Return whether a file belongs to a repository, whose name is the stem of its files."""
    return bool(re.fullmatch(rf"(\d+|RPM-GPG-KEY-)?{re.escape(repository)}(\..*)?", os.path.basename(path)))


def is_ours(path: str) -> bool:
    """Return whether only this collection writes a file. The roles do not record these files."""
    return "gpufleet" in os.path.basename(path)


def _own(repositories: Iterable[str], paths: Iterable[str], others: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the repositories whose files a record contains. The user configured other repositories before."""
    theirs = {name for other in others for name in repositories_of(other)}
    paths = list(paths)
    return [
        name
        for name in repositories
        if name in theirs or is_ours(name) or any(is_file_of(path, name) for path in paths)
    ]


def _shared_files(repositories: Iterable[str], others: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the files of repositories that other records share. The last record that is removed removes the files."""
    names = list(repositories)
    paths = {path for other in others for path in other["written"]}
    return {path for path in paths if any(is_file_of(path, name) for name in names)}


def with_shared_keys(content: dict[str, Any], others: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Add the packages for keys that other records list, too. The last record that is removed removes them."""
    recorded = {name for known in (content, *others) for name in known["packages"]}
    shared = {name for name in recorded if is_recorded_key(name, content)}
    content["packages"] = sorted({*content["packages"], *shared})
    if content["pending_key"] == content["key"]:
        content["pending_key"] = None
    return content


def _uses_key(other: Mapping[str, Any], name: str) -> bool:
    # The digest of a key file does not tell the name of its package.
    unknown = any(key_trust.is_digest(key) for key in (other["key"], other["pending_key"]))
    return unknown or name in other["packages"] or is_recorded_key(name, other)


def _streams(known: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the items of `stream` or `pending_stream` by module. The roles record only one."""
    first = [known[name]] if known[name] else []
    return {item["module"]: item for item in (*first, *known[f"more_{name}s"])}


def _stream_fields(done: Mapping[str, Any], pending: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, items in (("stream", [*done.values()]), ("pending_stream", [*pending.values()])):
        fields.update({name: items[0] if items else None, f"more_{name}s": items[1:]})
    return fields


def _streams_to_enable(known: Mapping[str, Any], streams: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Add the streams to enable, each with the stream before the first one that the record's transactions enabled."""
    done, pending = _streams(known, "stream"), _streams(known, "pending_stream")
    for stream in streams:
        module, before = stream["module"], stream["before"]
        # An interrupted run may have reset the previous stream without enabling the next one.
        items = (pending.get(module), done.get(module))
        own = [item for item in items if item and before in (None, item["name"])]
        pending[module] = {**stream, "before": own[0]["before"] if own else before}
    return _stream_fields(done, pending)


def _enabled_streams(known: Mapping[str, Any], enabled: Mapping[str, str]) -> dict[str, Any]:
    """Keep the enabled streams, and the pending streams if the previous stream must still be restored."""
    done, pending = _streams(known, "stream"), _streams(known, "pending_stream")
    for module, item in list(pending.items()):
        now = stream_now(enabled, module)
        if now == item["name"]:
            done[module] = pending.pop(module)
        elif now is not None or not item["before"]:
            del pending[module]
    return _stream_fields(done, pending)


def _streams_to_reset(known: Mapping[str, Any], enabled: Mapping[str, str]) -> list[dict[str, str | None]]:
    found: dict[str, dict[str, str | None]] = {}
    for item in (*_streams(known, "pending_stream").values(), *_streams(known, "stream").values()):
        now = stream_now(enabled, item["module"])
        # No stream is enabled if a run was interrupted between disabling one and enabling the next.
        if now == item["name"] or (now is None and item["before"]):
            found.setdefault(item["module"], {"module": item["module"], "before": item["before"]})
    return list(found.values())


def former_streams(known: Mapping[str, Any], enabled: Mapping[str, str]) -> list[str]:
    """Return the streams that a failed transaction must enable again. `enabled` are those before its last run."""
    done, found = _streams(known, "stream"), []
    for module, item in _streams(known, "pending_stream").items():
        now = stream_now(enabled, module)
        # An interrupted run may already have reset the former stream, or enabled the new one.
        if now in (None, item["name"]):
            now = done[module]["name"] if module in done else item["before"]
        found.append(now)
    return [stream for stream in found if stream]


def stream_now(enabled: Mapping[str, str], module: str) -> str | None:
    """Return the enabled stream of a module, as `module:stream`."""
    return f"{module}:{enabled[module]}" if enabled.get(module) else None


def _files_changed(known: Mapping[str, Any], changed_files: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    files = dict(known["files"])
    for item in changed_files:
        first = files.get(item["after_header"], {}).get("before", item["before"])
        files[item["after_header"]] = {"before": first, "after": item["after"]}
    return files
