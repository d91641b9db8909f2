# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""zypper's repository files, its caches and keys, and a private view of the repositories."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
from typing import Callable, NamedTuple
from urllib.parse import quote

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_bytes
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.url_logins import masked
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import View
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import openpgp
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.unreadable_repositories import FailedSource

CONFIGURATION = "/etc/zypp"
ENTRIES = "/etc/zypp/repos.d"
_CACHE = "/var/cache/zypp"
_METADATA = ("raw", "solv")
_KEY_SIZE = 1 << 20
# The repositories with the security updates of SLES and of openSUSE Leap.
_UPDATES = re.compile(r"(?:^|[-_:])(?:updates|update-sle|update-oss|security)$", re.IGNORECASE)
# What the private root must not have: repositories and services of the host, and its locks.
_NOT_COPIED = ("repos.d", "services.d", "locks")

# Runs a program with arguments, for zypper also with options that precede them. Returns its output, and raises
# PackageManagerError if it fails.
Checked = Callable[..., str]
# Refreshes the metadata of aliases in repository files, and returns those that it could not refresh.
Refresh = Callable[["list[str]", "dict[str, bytes]"], "set[str]"]


class ZypperRepository(NamedTuple):
    """The entry of one repository."""

    alias: str
    enabled: bool
    autorefresh: bool
    # The paths of the key files.
    keys: tuple[str, ...]


def entries(text: str) -> list[ZypperRepository]:
    """Return the entries in a repository file."""
    found = []
    for section in re.split(r"^(?=\[)", text, flags=re.MULTILINE):
        alias = re.match(r"\[([^\]]+)\]", section)
        if alias:
            options = dict(re.findall(r"^(\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", section, re.MULTILINE))
            found.append(
                ZypperRepository(
                    alias[1],
                    _is_true(options.get("enabled", "1")),
                    _is_true(options.get("autorefresh", "0")),
                    # The value can have several lines.
                    tuple(re.findall(r"(?:^gpgkey[ \t]*=|[\s,])[ \t]*file://(/[^\s,?]+)", section, re.MULTILINE)),
                )
            )
    return found


def _is_true(value: str) -> bool:
    return value.lower() in ("1", "true", "yes", "on", "always")


def is_entry(path: str) -> bool:
    """Return whether a path is that of a repository file."""
    return os.path.dirname(path) == ENTRIES and path.endswith(".repo")


class Repositories:
    """The repositories of a host."""

    def __init__(self, root: str) -> None:
        """`root` is the root directory of the host."""
        self.root = root

    def path(self, path: str) -> str:
        """Return a path below the root directory."""
        return os.path.join(self.root, path.lstrip("/"))

    def key(self, path: str) -> bytes | None:
        """Return the content of a key file, or None."""
        return read_bytes(self.root, path, _KEY_SIZE)

    def files(self) -> dict[str, bytes]:
        """Return the repository files of the host by path."""
        found = {}
        for path in sorted(glob.glob(self.path(f"{ENTRIES}/*.repo"))):
            with open(path, "rb") as handle:
                found[f"{ENTRIES}/{os.path.basename(path)}"] = handle.read()
        return found

    def refreshed(self, files: dict[str, bytes]) -> list[str]:
        """Return the aliases of the repositories that zypper refreshes automatically."""
        return [entry.alias for entry in all_entries(files) if entry.enabled and entry.autorefresh]

    def keep(self, view: View) -> None:
        """Copy the metadata of new repositories from the private root of a view to the host."""
        option = next((text for text in view.options if text.startswith("--cache-dir=")), "")
        private = os.path.join(os.path.dirname(option.partition("=")[2]), "root", _CACHE.lstrip("/"))
        for kind in _METADATA if option else ():
            for name in listing(private, kind):
                target = self.path(f"{_CACHE}/{kind}/{name}")
                # If this user may not write it, zypper downloads it again.
                with contextlib.suppress(OSError, shutil.Error):
                    shutil.rmtree(target, ignore_errors=True)
                    shutil.copytree(f"{private}/{kind}/{name}", target, symlinks=True)

    def remove_metadata(self, alias: str) -> None:
        """Remove the cached metadata of a repository."""
        for kind in _METADATA:
            shutil.rmtree(self.path(f"{_CACHE}/{kind}/{_escaped(alias)}"), ignore_errors=True)

    def view(
        self, directory: str, files: list[RepositoryFile], zypper: Checked, rpm: Checked, refresh: Refresh
    ) -> View:
        """Create a private view of the repositories.

        zypper reads the trusted keys from the rpm database of its root directory. So the new entries are fetched and
        verified in a private root directory, which has their keys. The view combines their metadata with the metadata
        of the host's other repositories, and zypper uses this metadata together with the host's installed packages.
        `refresh` returns the aliases that it could not refresh, which the view leaves out.
        """
        host = self.files()
        new = changed(host, files)
        kept = {path: content for path, content in host.items() if path not in {*new, *(file.path for file in files)}}
        aliases = self.refreshed(kept)
        failed = refresh(aliases, kept) if aliases else set()
        if kept == host and not new and not failed:
            return View()
        kept = without(kept, failed)
        self._fetch(f"{directory}/root", new, files, zypper, rpm)
        write(f"{directory}/repos", {**kept, **new})
        for origin, texts in ((self.path(_CACHE), kept), (f"{directory}/root{_CACHE}", new)):
            for kind in _METADATA:
                _link(origin, f"{directory}/cache", kind, [_escaped(entry.alias) for entry in all_entries(texts)])
        return View((f"--reposd-dir={directory}/repos", f"--cache-dir={directory}/cache", "--no-refresh"))

    def _fetch(
        self, root: str, new: dict[str, bytes], files: list[RepositoryFile], zypper: Checked, rpm: Checked
    ) -> None:
        source = self.path(CONFIGURATION)
        if os.path.isdir(source):
            shutil.copytree(source, f"{root}{CONFIGURATION}", symlinks=True, ignore=_ignored)
        overlay = {file.path: file for file in files}
        for path, file in overlay.items():
            if path.startswith(f"{CONFIGURATION}/") and not is_entry(path):
                if file.content is not None:
                    _write(f"{root}{path}", file.content)
                elif os.path.lexists(f"{root}{path}"):
                    os.unlink(f"{root}{path}")
        for path, content in new.items():
            _write(f"{root}{path}", content)
        enabled = [entry for entry in all_entries(new) if entry.enabled]
        paths = {path for entry in enabled for path in entry.keys}
        keys = [file.content for file in files] + [self.key(path) for path in paths if path not in overlay]
        for number, content in enumerate(keys):
            if content and openpgp.has_keys(content):
                _write(f"{root}/{number}.asc", openpgp.armored(content))
                rpm(["--root", root, "--import", f"{root}/{number}.asc"])
        if enabled:
            zypper(["refresh", *(entry.alias for entry in enabled)], [f"--root={root}"])


def _ignored(directory: str, _names: list[str]) -> tuple[str, ...]:
    # Only at the top level: a credentials file may have one of these names.
    return _NOT_COPIED if directory.rstrip("/").endswith(CONFIGURATION) else ()


def all_entries(files: dict[str, bytes]) -> list[ZypperRepository]:
    """Return the entries of several repository files."""
    return [entry for content in files.values() for entry in entries(content.decode("utf-8", "replace"))]


def without(files: dict[str, bytes], failed: set[str]) -> dict[str, bytes]:
    """Return the repository files in which some aliases are disabled. zypper removes its cache of unknown aliases."""
    return {
        path: b"".join(
            _disabled(section) if any(section.startswith(f"[{alias}]".encode()) for alias in failed) else section
            for section in re.split(rb"^(?=\[)", content, flags=re.MULTILINE)
        )
        for path, content in files.items()
    }


def _disabled(section: bytes) -> bytes:
    first, _end, rest = section.partition(b"\n")
    return first + b"\nenabled=0\n" + re.sub(rb"^enabled[ \t]*=.*\n?", b"", rest, flags=re.MULTILINE)


def failed(skipped: dict[str, str], files: dict[str, bytes]) -> list[FailedSource]:
    """Return the repositories that zypper skipped. It names them by their names, or by their aliases."""
    found = []
    for section in _sections(files):
        alias = section["alias"]
        label = next((text for text in (section.get("name", ""), alias) if text in skipped), None)
        if label is not None:
            url = section.get("baseurl") or section.get("mirrorlist") or alias
            found.append(FailedSource(alias, masked(url), skipped[label], bool(_UPDATES.search(alias))))
    return found


def urls(files: dict[str, bytes]) -> dict[str, str]:
    """Return the URLs of the repositories by alias."""
    return {one["alias"]: one.get("baseurl") or one.get("mirrorlist") or "" for one in _sections(files)}


def aliases_of(label: str, files: dict[str, bytes]) -> set[str]:
    """Return the aliases of the entries with a name or an alias."""
    return {one["alias"] for one in _sections(files) if label in (one["alias"], one.get("name"))}


def _sections(files: dict[str, bytes]) -> list[dict[str, str]]:
    """Return the settings of each entry, and its `alias`."""
    found: list[dict[str, str]] = []
    for line in b"\n".join(files.values()).decode("utf-8", "replace").splitlines():
        start, setting = re.match(r"\[([^\]]+)\]", line), re.match(r"(\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", line)
        if start:
            found.append({"alias": start[1]})
        elif setting and found:
            found[-1].setdefault(setting[1], setting[2])
    return found


def write(directory: str, files: dict[str, bytes]) -> None:
    """Write repository files for zypper's option --reposd-dir."""
    for path, content in files.items():
        _write(f"{directory}/{os.path.basename(path)}", content)


def changed(host: dict[str, bytes], files: list[RepositoryFile]) -> dict[str, bytes]:
    """Return the repository files that are new, that change, or that refer to another file of `files`."""
    written = {file.path: file.content for file in files if is_entry(file.path)}
    uses = [_use(file.path) for file in files if not is_entry(file.path)]
    found = {path: content for path, content in written.items() if content is not None}
    affected = (path for path, content in host.items() if any(use.search(content) for use in uses))
    return {**found, **{path: host[path] for path in affected if path not in written}}


def _use(path: str) -> re.Pattern[bytes]:
    """Return a pattern for the lines of an entry that refer to a file. A login is named by its file's name or path."""
    names = [re.escape(name) for name in (os.path.basename(path), path, quote(path, safe=""))]
    return re.compile(rf"credentials=(?:{'|'.join(names)})(?![^&\s])|file://{re.escape(path)}(?!\S)".encode())


def _escaped(alias: str) -> str:
    """Return the name of a repository's directory in the cache."""
    return alias.replace("/", "_")


def _link(origin: str, cache: str, kind: str, names: list[str]) -> None:
    os.makedirs(f"{cache}/{kind}", exist_ok=True)
    for name in names:
        if os.path.isdir(f"{origin}/{kind}/{name}"):
            os.symlink(f"{origin}/{kind}/{name}", f"{cache}/{kind}/{name}")


def _write(path: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.islink(path):
        os.unlink(path)
    # The content may have a login.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as handle:
        handle.write(content)
