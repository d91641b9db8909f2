# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a package manager is asked about repositories as they are now, one included that the host has not got yet.

What that takes - copies of the host's source entries, an entry of the new repository with its key, what is fetched -
lies in a directory that the caller provides and removes. On the host itself dnf and zypper refresh their caches, as any
call of theirs may.
"""

from __future__ import annotations

import glob
import os
import shutil
from typing import Callable, NamedTuple
from urllib.parse import quote, urlsplit

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import apt_sources, openpgp

Run = Callable[["list[str]"], "tuple[int, str, str]"]

_ID = "gpufleet-view"
_APT_LISTS = "/var/lib/apt/lists"
_REPO_DIRECTORIES = {
    "dnf": ("/etc/yum.repos.d", "/etc/yum/repos.d", "/etc/distro.repos.d"),
    "zypper": ("/etc/zypp/repos.d",),
}


class ViewError(Exception):
    """A repository cannot be looked into."""


class Repository(NamedTuple):
    """A repository that the host has not got: where it is, what signs it, how it is reached."""

    url: str
    key: bytes
    proxy: str | None = None


class Wish(NamedTuple):
    """What the view shows beside the host's own repositories as they are."""

    repository: Repository | None = None
    # Files of source entries that are taken for absent.
    without: tuple[str, ...] = ()
    # Changes the text of apt's source files, by their paths.
    enable: Callable[[dict[str, str]], dict[str, str]] | None = None


def questions(manager: str, directory: str, wish: Wish, run: Run) -> list[list[str]]:
    """Prepare the view in a directory and return the options of each call that has to be made to see all of it."""
    return _VIEWS[manager](directory, wish, run)


def _apt(directory: str, wish: Wish, run: Run) -> list[list[str]]:
    sources = {path: text for path, text in apt_sources.read_files().items() if path not in wish.without}
    sources.update(wish.enable(sources) if wish.enable else {})
    os.makedirs(f"{directory}/sources/sources.list.d", exist_ok=True)
    for path, text in apt_files(directory, sources, wish.repository).items():
        _write(path, text)
    if wish.repository:
        _write(f"{directory}/key.gpg", openpgp.binary(wish.repository.key))
        os.chmod(f"{directory}/key.gpg", 0o644)
    os.makedirs(f"{directory}/cache", exist_ok=True)
    _copy_lists(_APT_LISTS, f"{directory}/lists")
    # apt fetches and verifies as a user of its own. Source entries stay closed to it: they may have passwords in them.
    for path in (directory, f"{directory}/lists"):
        os.chmod(path, 0o755)
    options = ["-c", f"{directory}/apt.conf"]
    _answered(run, ["apt-get", *options, "update"])
    return [options]


def apt_files(directory: str, sources: dict[str, str], repository: Repository | None) -> dict[str, str]:
    """Return the configuration of a view of apt's and its source files, by their paths."""
    base = f"{directory}/sources"
    settings = [
        f'Dir::Etc::SourceList "{base}/sources.list";',
        f'Dir::Etc::SourceParts "{base}/sources.list.d";',
        f'Dir::State::Lists "{directory}/lists";',
        f'Dir::Cache "{directory}/cache";',
        'Acquire::Languages "none";',
        # A repository that does not answer is an error, as it is when packages are installed from it.
        'APT::Update::Error-Mode "any";',
        # What else the host does after it has fetched its lists is about its own.
        *(f"#clear APT::Update::{name};" for name in ("Pre-Invoke", "Post-Invoke", "Post-Invoke-Success")),
    ]
    files = {f"{base}/sources.list": ""}
    files.update({f"{base}/{path[len('/etc/apt/') :]}": text for path, text in sources.items()})
    if repository:
        files[f"{base}/sources.list.d/{_ID}.sources"] = (
            f"Types: deb\nURIs: {repository.url}\nSuites: /\nSigned-By: {directory}/key.gpg\n"
        )
        host = urlsplit(repository.url).hostname
        # A mirror on the host itself is reached through nothing.
        if repository.proxy and host:
            settings += [f'Acquire::{scheme}::Proxy::{host} "{repository.proxy}";' for scheme in ("http", "https")]
    return {f"{directory}/apt.conf": "\n".join([*settings, ""]), **files}


def _dnf(directory: str, wish: Wish, run: Run) -> list[list[str]]:
    views = [_others("dnf", directory, wish, "--setopt=reposdir={}")]
    _answered(run, ["dnf", *views[0], "--quiet", "makecache", "--refresh"])
    if wish.repository:
        _rpm_entry("dnf", directory, f"{directory}/own", wish.repository)
        views.append([f"--setopt=reposdir={directory}/own", f"--setopt=cachedir={directory}/cache"])
    return views


def _zypper(directory: str, wish: Wish, run: Run) -> list[list[str]]:
    views = [_others("zypper", directory, wish, "--reposd-dir={}")]
    # 6: there are none.
    _answered(run, ["zypper", *views[0], "--non-interactive", "--quiet", "refresh"], (0, 6))
    if wish.repository:
        # A root of its own has its own trusted keys, too.
        root = f"{directory}/root"
        key = _rpm_entry("zypper", directory, f"{root}/etc/zypp/repos.d", wish.repository)
        _answered(run, ["rpm", "--root", root, "--import", key])
        views.append([f"--root={root}"])
        _answered(run, ["zypper", *views[1], "--non-interactive", "--quiet", "refresh"])
    return views


def _others(manager: str, directory: str, wish: Wish, option: str) -> list[str]:
    """Return the option that leaves some of the host's entries out; none where there are none of those."""
    paths = [path for place in _REPO_DIRECTORIES[manager] for path in sorted(glob.glob(f"{place}/*.repo"))]
    if not set(paths) & set(wish.without):
        return []
    os.makedirs(f"{directory}/others", exist_ok=True)
    for path in paths:
        if path not in wish.without:
            shutil.copy(path, f"{directory}/others")
    return [option.format(f"{directory}/others")]


def _rpm_entry(manager: str, directory: str, place: str, repository: Repository) -> str:
    key = f"{directory}/key.asc"
    _write(key, openpgp.armored(repository.key))
    _write(f"{place}/{_ID}.repo", rpm_entry(manager, repository, key))
    return key


def rpm_entry(manager: str, repository: Repository, key: str) -> str:
    """Return the entry of a repository as dnf or zypper reads it, its key being in a file."""
    url, proxy = repository.url, repository.proxy
    lines = [f"[{_ID}]", f"name={url}", "enabled=1", "gpgcheck=1", f"gpgkey=file://{key}"]
    if manager == "zypper":
        lines += ["type=rpm-md", f"baseurl={url}{'?proxy=' + quote(proxy, safe='') if proxy else ''}"]
    else:
        lines += ["skip_if_unavailable=0", f"baseurl={url}", *([f"proxy={proxy}"] if proxy else [])]
    return "\n".join([*lines, ""])


_VIEWS = {"apt": _apt, "dnf": _dnf, "zypper": _zypper}


def _answered(run: Run, argv: list[str], fine: tuple[int, ...] = (0,)) -> None:
    rc, out, err = run(argv)
    if rc not in fine:
        said = addresses.masked(" ".join((err.strip() or out.strip()).split()))
        raise ViewError(
            f"The package repositories could not be looked into: {argv[0]} answered {rc}: {said} Check the addresses, "
            "the proxy and the network, or name a mirror."
        )


def _write(path: str, content: str | bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as handle:
        handle.write(data)


def _copy_lists(source: str, target: str) -> None:
    """Start from the lists that are there, so that only what has changed is fetched."""
    try:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("lock", "partial", "auxfiles"))
    except (OSError, shutil.Error):
        # All of it is fetched then, or what was not copied is.
        os.makedirs(target, exist_ok=True)
