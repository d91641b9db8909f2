# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A temporary preview of package repositories, which can include a repository that the host does not have yet.

The preview consists of copies of the host's repository entries, the entry and the key of the new repository, and the
fetched metadata. All files are in a directory that the caller creates and removes. dnf and zypper also refresh the
host's own caches.
"""

from __future__ import annotations

import glob
import os
import shutil
from typing import Callable, NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    apt_sources,
    nvidia_repository,
    openpgp,
    repository_access,
)

Run = Callable[["list[str]"], "tuple[int, str, str]"]

_ID = "gpufleet-preview"
_APT_LISTS = "/var/lib/apt/lists"
_APT_LOGINS = "/etc/apt/auth.conf.d"
_REPO_DIRECTORIES = {
    "dnf": ("/etc/yum.repos.d", "/etc/yum/repos.d", "/etc/distro.repos.d"),
    "zypper": ("/etc/zypp/repos.d",),
}


class PreviewError(Exception):
    """The metadata of a repository could not be read."""


class Repository(NamedTuple):
    """A repository that the host does not have: how it is reached, and its signing key."""

    access: repository_access.Access
    key: bytes


class Changes(NamedTuple):
    """The differences between the preview and the host's repositories."""

    # A repository to add.
    repository: Repository | None = None
    # Repository files to ignore.
    without: tuple[str, ...] = ()
    # A function that returns the new text of apt's source files, by path.
    enable: Callable[[dict[str, str]], dict[str, str]] | None = None


def prepare(manager: str, directory: str, changes: Changes, run: Run) -> list[list[str]]:
    """Create the preview in a directory.

    Return a list of command-line options for each query that the preview needs.
    """
    return _PREPARE[manager](directory, changes, run)


def _apt(directory: str, changes: Changes, run: Run) -> list[list[str]]:
    sources = {path: text for path, text in apt_sources.read_files().items() if path not in changes.without}
    sources.update(changes.enable(sources) if changes.enable else {})
    os.makedirs(f"{directory}/sources/sources.list.d", exist_ok=True)
    for path, text in apt_files(directory, sources, changes.repository).items():
        _write(path, text)
    if changes.repository:
        _write(f"{directory}/key.gpg", openpgp.binary(changes.repository.key))
        os.chmod(f"{directory}/key.gpg", 0o644)
        _copy_logins(f"{directory}/logins")
    os.makedirs(f"{directory}/cache", exist_ok=True)
    _copy_lists(_APT_LISTS, f"{directory}/lists")
    # apt downloads and verifies as its own user, which must not read the sources because they may contain passwords.
    for path in (directory, f"{directory}/lists"):
        os.chmod(path, 0o755)
    options = ["-c", f"{directory}/apt.conf"]
    _run_checked(run, ["apt-get", *options, "update"])
    return [options]


def apt_files(directory: str, sources: dict[str, str], repository: Repository | None) -> dict[str, str]:
    """Return the apt configuration and the source files of a preview, by path."""
    base = f"{directory}/sources"
    settings = [
        f'Dir::Etc::SourceList "{base}/sources.list";',
        f'Dir::Etc::SourceParts "{base}/sources.list.d";',
        f'Dir::State::Lists "{directory}/lists";',
        f'Dir::Cache "{directory}/cache";',
        'Acquire::Languages "none";',
        # Fail if a repository does not answer, like an installation does.
        'APT::Update::Error-Mode "any";',
        # The host's hooks expect the host's own lists.
        *(f"#clear APT::Update::{name};" for name in ("Pre-Invoke", "Post-Invoke", "Post-Invoke-Success")),
    ]
    files = {f"{base}/sources.list": ""}
    files.update({f"{base}/{path[len('/etc/apt/') :]}": text for path, text in sources.items()})
    if repository:
        files[f"{base}/sources.list.d/{_ID}.sources"] = (
            f"Types: deb\nURIs: {repository.access.url}\nSuites: /\nSigned-By: {directory}/key.gpg\n"
        )
        settings += [f'Dir::Etc::netrcparts "{directory}/logins";', repository_access.apt_proxy(repository.access)]
        files[f"{directory}/logins/{_ID}.conf"] = repository_access.apt_logins(repository.access)
    return {f"{directory}/apt.conf": "\n".join([*settings, ""]), **files}


def _dnf(directory: str, changes: Changes, run: Run) -> list[list[str]]:
    previews = [_others("dnf", directory, changes, "--setopt=reposdir={}")]
    _run_checked(run, ["dnf", *previews[0], "--quiet", "makecache", "--refresh"])
    if changes.repository:
        _rpm_entry("dnf", directory, f"{directory}/own", changes.repository)
        previews.append([f"--setopt=reposdir={directory}/own", f"--setopt=cachedir={directory}/cache"])
    return previews


def _zypper(directory: str, changes: Changes, run: Run) -> list[list[str]]:
    previews = [_others("zypper", directory, changes, "--reposd-dir={}")]
    # Exit status 6: no repositories are defined.
    _run_checked(run, ["zypper", *previews[0], "--non-interactive", "--quiet", "refresh"], (0, 6))
    if changes.repository:
        # A separate root directory has a separate list of trusted keys.
        root = f"{directory}/root"
        key = _rpm_entry("zypper", directory, f"{root}/etc/zypp/repos.d", changes.repository)
        _run_checked(run, ["rpm", "--root", root, "--import", key])
        previews.append([f"--root={root}"])
        _run_checked(run, ["zypper", *previews[1], "--non-interactive", "--quiet", "refresh"])
    return previews


def _others(manager: str, directory: str, changes: Changes, option: str) -> list[str]:
    """Return the option that hides the ignored repository files, or no option if none of them exists."""
    paths = [path for place in _REPO_DIRECTORIES[manager] for path in sorted(glob.glob(f"{place}/*.repo"))]
    if not set(paths) & set(changes.without):
        return []
    os.makedirs(f"{directory}/others", exist_ok=True)
    for path in paths:
        if path not in changes.without:
            shutil.copy(path, f"{directory}/others")
    return [option.format(f"{directory}/others")]


def _rpm_entry(manager: str, directory: str, place: str, repository: Repository) -> str:
    key = f"{directory}/key.asc"
    _write(key, openpgp.armored(repository.key))
    _write(f"{directory}/{_ID}.login", repository_access.zypper_logins(repository.access))
    _write(f"{place}/{_ID}.repo", rpm_entry(manager, repository, key))
    return key


def rpm_entry(manager: str, repository: Repository, key: str) -> str:
    """Return the repository file for dnf or zypper. `key` is the path of the signing key."""
    reached = repository.access
    lines = [f"[{_ID}]", f"name={reached.url}", "enabled=1", "gpgcheck=1", f"gpgkey=file://{key}"]
    if manager == "zypper":
        lines += repository_access.zypper_lines(reached, f"{os.path.dirname(key)}/{_ID}.login")
    else:
        lines += ["skip_if_unavailable=0", *repository_access.dnf_lines(reached)]
    return "\n".join([*lines, ""])


_PREPARE = {"apt": _apt, "dnf": _dnf, "zypper": _zypper}


def _run_checked(run: Run, argv: list[str], allowed: tuple[int, ...] = (0,)) -> None:
    rc, out, err = run(argv)
    if rc not in allowed:
        output = addresses.masked(" ".join((err.strip() or out.strip()).split()))
        raise PreviewError(
            f"The package repositories could not be read: {argv[0]} failed with exit status {rc}: {output} Check the "
            "URLs, the proxy and the network, or set a mirror."
        )


def _write(path: str, content: str | bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as handle:
        handle.write(data)


def _copy_lists(source: str, target: str) -> None:
    """Copy the host's package lists, so that apt downloads only the lists that changed."""
    try:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("lock", "partial", "auxfiles"))
    except (OSError, shutil.Error):
        # apt downloads the lists that were not copied.
        os.makedirs(target, exist_ok=True)


def _copy_logins(target: str) -> None:
    """Copy the host's logins for apt, except the login that the preview replaces."""
    os.makedirs(target, exist_ok=True)
    for path in glob.glob(f"{_APT_LOGINS}/*.conf"):
        # apt also ignores files that it cannot read.
        if path != nvidia_repository.APT_LOGIN_FILE and os.access(path, os.R_OK):
            shutil.copy(path, target)
