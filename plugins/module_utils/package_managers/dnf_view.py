# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The private directory with the repositories as they will be, and the cache of a repository."""

from __future__ import annotations

import os
import re
import shutil

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.url_logins import masked
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.download_retries import noted
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.unreadable_repositories import FailedSource

# dnf reads these directories in this order.
DIRECTORIES = ("/etc/yum.repos.d", "/etc/yum/repos.d", "/etc/distro.repos.d")
_SECTION = re.compile(r"^\[(?P<id>[^\]\n]+)\][^\S\n]*$", re.MULTILINE)
_FAILED = re.compile(r"Failed to download metadata for repo '(?P<id>[^']+)': (?P<reason>.*)")
_IGNORED = re.compile(r"Ignoring repositories: (?P<ids>.+)")
_DETAIL = re.compile(r"Errors during downloading metadata for repository '(?P<id>[^']+)':\n\s+- (?P<detail>.*)")
_SECURITY = re.compile(r"(?:^|[-_.])security(?:$|[-_.])", re.IGNORECASE)
_SKIP = re.compile(r"^skip_if_unavailable[^\S\n]*=.*\n?", re.MULTILINE)


def contents(directory: str, host: dict[str, str], files: list[RepositoryFile]) -> dict[str, bytes]:
    """Return the files of the view by path.

    `host` has the host's repository files, `files` are added, replaced and removed. An unreachable new repository is an
    error, even if its entry says otherwise. Entries refer to the copies of new keys.
    """
    entries = dict(host)
    keys = {}
    for file in files:
        if not is_entry(file.path):
            if file.content is not None:
                keys[file.path] = (f"{directory}/keys/{len(keys)}", file.content)
        elif file.content is None:
            entries.pop(file.path, None)
        else:
            text = _SKIP.sub("", file.content.decode("utf-8", "surrogateescape"))
            entries[file.path] = _SECTION.sub(r"\g<0>\nskip_if_unavailable=0", text)
    found = dict(keys.values())
    for number, (path, text) in enumerate(entries.items()):
        # Two directories can have files with the same name.
        name = f"{number:03}-{os.path.basename(path)}"
        changed = _with_keys(text, {key: copy for key, (copy, _content) in keys.items()})
        found[f"{directory}/repositories/{name}"] = changed.encode("utf-8", "surrogateescape")
    return found


def _with_keys(text: str, copies: dict[str, str]) -> str:
    for key, copy in copies.items():
        text = re.sub(rf"file://{re.escape(key)}(?![^\s,])", f"file://{copy}", text)
    return text


def is_entry(path: str) -> bool:
    """Return whether dnf reads repositories from the file."""
    return path.endswith(".repo") and os.path.dirname(path) in DIRECTORIES


def write(files: dict[str, bytes]) -> None:
    """Write the files of a view. They can contain logins."""
    for path, content in files.items():
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as handle:
            handle.write(content)


def failed(out: str, err: str, urls: dict[str, str]) -> list[FailedSource]:
    """Return the repositories that dnf could not read. `urls` has the URLs of the enabled ones by ID.

    dnf's plugins add others, for example an empty one of the host, which dnf does without.
    """
    reasons: dict[str, str] = {}
    for found in _FAILED.finditer(f"{err}\n{out}"):
        reasons[found["id"]] = found["reason"]
    for found in _IGNORED.finditer(f"{err}\n{out}"):
        for identifier in found["ids"].split(", "):
            reasons.setdefault(identifier, "")
    details = {found["id"]: found["detail"] for found in _DETAIL.finditer(f"{err}\n{out}")}
    return [
        FailedSource(
            name,
            masked(urls[name]),
            noted(masked(details.get(name) or reason), err),
            bool(_SECURITY.search(name)),
        )
        for name, reason in reasons.items()
        if name in urls
    ]


def identifiers(content: bytes) -> list[str]:
    """Return the IDs of the repositories in a file."""
    return [found["id"] for found in _SECTION.finditer(content.decode("utf-8", "replace"))]


def users(entries: dict[str, str], keys: list[str]) -> list[str]:
    """Return the IDs of the repositories in the files that name one of the key files."""
    names = "|".join(map(re.escape, keys))
    using = [text for text in entries.values() if keys and re.search(rf"file://(?:{names})(?![^\s,])", text)]
    return [found["id"] for text in using for found in _SECTION.finditer(text)]


def clear_cache(cache: str, identifier: str, kept: frozenset[str] = frozenset()) -> None:
    """Remove what dnf's cache has of a repository, except the names `kept`."""
    for name in {*listing("/", cache)} - kept:
        path = os.path.join(cache, name)
        if re.fullmatch(rf"{re.escape(identifier)}-[0-9a-f]{{16}}", name):
            shutil.rmtree(path, ignore_errors=True)
        elif re.fullmatch(rf"{re.escape(identifier)}(?:-filenames|-updateinfo|-presto|-other)?\.solvx?", name):
            os.unlink(path)
