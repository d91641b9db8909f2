# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read where the installed driver packages came from. Every package manager records something else.

apt: the downloaded lists of the repositories, and the Release file of each list.
rpm: the vendor and the key of the signature. dnf and zypper also record the repository.
"""

from __future__ import annotations

import mmap
import os
import re
from typing import Callable
from urllib.parse import unquote

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.nvidia_names import DRIVER_PACKAGES, DRIVER_VERSION
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import upstream_version

Run = Callable[["list[str]"], "tuple[int, str, str]"]

_LISTS = "/var/lib/apt/lists"
# Debian and Ubuntu have only free software in these components. Their lists are by far the largest.
_FREE = re.compile(r"_(?:main|universe)_binary-[^_]+_Packages")
_APT_HELPER = "/usr/lib/apt/apt-helper"
_RELEASE_LENGTH = 4096
_DNF_HISTORY = "/var/lib/dnf/history.sqlite"
_ZYPPER_HISTORY = "/var/log/zypp/history"
_ZYPPER_REPOSITORY = 6


def read(
    root: str, manager: str | None, packages: dict[str, dict], signed: dict[str, tuple[str, str]], run: Run
) -> dict:
    """Return the origins of the installed driver packages by name. Packages of unknown origin are missing.

    Each origin has the `vendor`, the `repository` (with apt its URL without the scheme, else its ID) and the `key` that
    signed the package, or None for what is unknown. With apt, several vendors may have the installed version.
    `packages` has the versions. `signed` has rpm's texts for the vendor and for the signature.
    """
    driver = re.compile(DRIVER_VERSION)
    versions = {
        name: entry["version"]
        for name, entry in packages.items()
        if re.search(DRIVER_PACKAGES, name) and driver.fullmatch(upstream_version(entry["version"]))
    }
    if not versions:
        return {}
    if manager == "apt":
        return _apt(root, versions, run)
    recorded = {"dnf": _dnf, "zypper": _zypper}.get(manager or "", lambda _root, _versions: {})(root, versions)
    found = {name: {**_signature(*signed.get(name, ())), "repository": recorded.get(name)} for name in versions}
    return {name: [entry] for name, entry in found.items() if any(entry.values())}


def _signature(vendor: str = "", text: str = "") -> dict[str, str | None]:
    """Return the vendor and the ID of the key from rpm's texts, which are `(none)` for what is unknown.

    The text of a signature is `RSA/SHA256, Thu Jan  1 00:00:00 2026, Key ID 9cd0a493d42d0685`.
    """
    key = re.search(r"Key ID ([0-9a-f]+)", text)
    return {"vendor": vendor if vendor not in ("", "(none)") else None, "key": key.group(1) if key else None}


# --- apt ----------------------------------------------------------------------------------------------------------


def _apt(root: str, versions: dict[str, str], run: Run) -> dict[str, list[dict]]:
    groups: dict[tuple[str | None, str], list[str]] = {}
    for file in listing(root, _LISTS):
        stem, marker, compression = file.partition("_Packages")
        if not marker or (compression and not compression.startswith(".")):
            continue
        vendor, suite = _release(root, stem)
        if vendor not in ("Debian", "Ubuntu") or not _FREE.search(file):
            repository = unquote(suite.partition("_dists_")[0].replace("_", "/")).rstrip("/")
            groups.setdefault((vendor, repository), []).append(os.path.join(root, _LISTS.lstrip("/"), file))
    found: dict[str, list[dict]] = {}
    for (vendor, repository), files in groups.items():
        # One repository per vendor suffices. Ubuntu has the same versions in noble-security and noble-updates.
        known = {name for name, entries in found.items() if vendor in [entry["vendor"] for entry in entries]}
        for name in _listed(files, {name: versions[name] for name in versions if name not in known}, run):
            found.setdefault(name, []).append({"vendor": vendor, "repository": repository, "key": None})
    return found


def _release(root: str, stem: str) -> tuple[str | None, str]:
    """Return the origin that the Release file of a list names, and the part of its file name for the suite."""
    suites = [stem, re.sub(r"_[^_]+_binary-[^_]+$", "", stem)]
    for suite in suites:
        for name in (f"{suite}_InRelease", f"{suite}_Release"):
            text = read_text(root, f"{_LISTS}/{name}", _RELEASE_LENGTH)
            if text is not None:
                match = re.search(r"^Origin:[ \t]*(\S.*?)\s*$", text, re.MULTILINE)
                return (match.group(1) if match else None), suite
    return None, suites[-1]


def _listed(files: list[str], versions: dict[str, str], run: Run) -> set[str]:
    """Return the packages that the lists of a repository have in their installed version."""
    names: set[str] = set()
    for path in files:
        unknown = {name: versions[name] for name in versions if name not in names}
        if path.endswith("_Packages") and unknown:
            names |= _found_in_file(path, unknown)
    compressed = [path for path in files if not path.endswith("_Packages")]
    if compressed and len(names) < len(versions) and os.path.exists(_APT_HELPER):
        rc, out, _err = run([_APT_HELPER, "cat-file", *compressed])
        names |= _found(f"\n\n{out}".encode(), versions) if rc == 0 else set()
    return names


def _found_in_file(path: str, versions: dict[str, str]) -> set[str]:
    try:
        with open(path, "rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _found(content, versions)
    except (OSError, ValueError):  # mmap rejects empty files.
        return set()


def _found(content: bytes | mmap.mmap, versions: dict[str, str]) -> set[str]:
    """Search for the few versions of the driver. This is much faster than parsing all packages."""
    names = set()
    for version in set(versions.values()):
        line = f"\nVersion: {version}\n".encode()
        at = content.find(line)
        while at >= 0:
            start = content.rfind(b"\n\n", 0, at) + 1
            end = content.find(b"\n\n", at)
            stanza = b"\n" + content[start : end if end >= 0 else len(content)]
            match = re.search(rb"\nPackage: (\S+)", stanza)
            name = match.group(1).decode("utf-8", "replace") if match else ""
            if versions.get(name) == version:
                names.add(name)
            at = content.find(line, at + 1)
    return names


# --- dnf and zypper -----------------------------------------------------------------------------------------------


def _dnf(root: str, versions: dict[str, str]) -> dict[str, str]:
    """Return the repositories that dnf 4 recorded for the installed versions."""
    path = os.path.join(root, _DNF_HISTORY.lstrip("/"))
    if not os.path.exists(path):
        return {}
    try:
        import sqlite3  # noqa: PLC0415 - only hosts with a driver need it
    except ImportError:  # a minimal Python
        return {}

    query = (
        "SELECT rpm.name, rpm.epoch, rpm.version, rpm.release, repo.repoid FROM trans_item"
        " JOIN rpm ON rpm.item_id = trans_item.item_id JOIN repo ON repo.id = trans_item.repo_id"
        " WHERE rpm.name IN ({}) ORDER BY trans_item.id"
    ).format(", ".join("?" * len(versions)))
    # Without a log of writes, sqlite would create files to read the database.
    mode = "mode=ro" if os.path.exists(f"{path}-wal") else "mode=ro&immutable=1"
    found = {}
    try:
        connection = sqlite3.connect(f"file:{path}?{mode}", uri=True)
        try:
            for name, epoch, version, release, repository in connection.execute(query, list(versions)):
                text = f"{epoch}:{version}-{release}" if epoch else f"{version}-{release}"
                # `@System` and `@commandline` are not repositories.
                if versions[name].removeprefix("0:") == text and repository and not repository.startswith("@"):
                    found[name] = repository
        finally:
            connection.close()
    except sqlite3.Error:
        return {}
    return found


def _zypper(root: str, versions: dict[str, str]) -> dict[str, str]:
    """Return the repositories that zypper logged for the installed versions. The log may have been rotated."""
    found = {}
    for line in (read_text(root, _ZYPPER_HISTORY) or "").splitlines():
        fields = line.split("|")
        if len(fields) > _ZYPPER_REPOSITORY and fields[1] == "install" and fields[2] in versions:
            installed = versions[fields[2]].rpartition(":")[2]
            if fields[3] == installed and fields[_ZYPPER_REPOSITORY]:
                found[fields[2]] = fields[_ZYPPER_REPOSITORY]
    return found
