# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the URLs from which a stalled program waited for data."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.url_logins import masked

_MOST = 3
_PRINTED = re.compile(r"^'(?P<url>[^']+)' (?P<file>\S+)", re.MULTILINE)
_DONE = re.compile(r"^(?:Hit|Get|Ign|Err):\d+ (?P<url>\S+) (?P<suite>\S*) (?P<file>\S+)", re.MULTILINE)
_SECTION = re.compile(r"^\[(?P<id>[^\]\n]+)\][^\S\n]*$(?P<text>(?:\n(?!\[).*)*)", re.MULTILINE)
_URL = re.compile(r"^(?:baseurl|mirrorlist|metalink)[^\S\n]*=[^\S\n]*(?P<url>\S+)", re.MULTILINE)
_OFF = re.compile(r"^enabled[^\S\n]*=[^\S\n]*(?:0|no|false|off)[^\S\n]*$", re.MULTILINE | re.IGNORECASE)
_FETCHED = re.compile(r"\burl=\"(?P<url>[^\"]+)\"")
_DIRECTORY = re.compile(r"^--(?:setopt=reposdir|reposd-dir)=(?P<path>.+)$")
_DIRECTORIES = ("/etc/yum.repos.d", "/etc/distro.repos.d", "/etc/zypp/repos.d")


def apt(printed: str, out: str, open_files: Iterable[str]) -> list[str]:
    """Select from the output of `--print-uris` what apt had open, or what its output does not mention."""
    urls = {found["file"]: found["url"] for found in _PRINTED.finditer(printed)}
    names = {os.path.basename(path) for path in open_files if "/partial/" in path}
    opened = [url for name, url in urls.items() if _belongs(name, names)]
    mentioned = [f"{found['url'].rstrip('/')} {found['suite'].rstrip('/')}" for found in _DONE.finditer(out)]
    unmentioned = [url for url in urls.values() if not any(_is_about(url, line) for line in mentioned)]
    return _shown(opened or unmentioned or [_last(mentioned)])


def _belongs(name: str, partial: set[str]) -> bool:
    # A package's name in the list has the version in another form, so names must not match completely.
    stem = re.sub(r"(?:In)?Release$", "", name)
    return any(one.startswith(stem) if stem != name else one == name for one in partial)


def _is_about(url: str, line: str) -> bool:
    base, _space, suite = line.partition(" ")
    return url.startswith((f"{base}/dists/{suite}/", f"{base}/{suite}/", f"{base}/{suite}InRelease"))


def _last(lines: list[str]) -> str:
    return lines[-1].partition(" ")[0] if lines else ""


def rpm(repositories: dict[str, str], out: str, open_files: Iterable[str]) -> list[str]:
    """Select the URLs of the repositories whose files were open, or the last URL in zypper's output."""
    parts = {part for path in open_files for part in path.split("/")}
    opened = [
        url
        for name, url in repositories.items()
        if any(re.fullmatch(rf"{re.escape(name.replace('/', '_'))}(?:-[0-9a-f]{{16}})?", part) for part in parts)
    ]
    fetched = [found["url"] for found in _FETCHED.finditer(out)]
    return _shown(opened or fetched[-1:] or [*repositories.values()])


def entries(argv: list[str], root: str) -> dict[str, str]:
    """Return the URLs of the enabled repositories that a command of dnf or zypper reads, by ID."""
    own = [found["path"] for found in map(_DIRECTORY.match, argv) if found]
    private = next((word.partition("=")[2] for word in argv if word.startswith("--root=")), root)
    places = own or [os.path.join(private, path.lstrip("/")) for path in _DIRECTORIES]
    found = {}
    for path in (path for place in places for path in sorted(glob.glob(f"{glob.escape(place)}/*.repo"))):
        for section in _SECTION.finditer(read_text("/", path) or ""):
            url = _URL.search(section["text"])
            if url and not _OFF.search(section["text"]):
                found[section["id"]] = url["url"]
    named = {name: url for name, url in found.items() if name in argv}
    return named or found


def _shown(urls: list[str]) -> list[str]:
    known = list(dict.fromkeys(masked(url) for url in urls if url))
    return known[:_MOST] + ([f"{len(known) - _MOST} more"] if len(known) > _MOST else [])
