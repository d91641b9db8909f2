# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that configure a repository: its entry, its key, its proxy, its logins and its priority."""

from __future__ import annotations

from urllib.parse import urlsplit

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_bytes
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import (
    key_download,
    key_trust,
    openpgp,
    openpgp_subkeys,
    role_file_paths,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import proxy_and_logins as repository_access
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.repository_options import (
    Repository,
    RepositoryError,
)

_HEADER = "Written by Ansible collection gpufleet.hosts."


def files(repository: Repository, manager: str, key: bytes) -> list[RepositoryFile]:
    """Return the files of a repository. Files without a use have no content and must not exist.

    The entry is last, so that its key and its logins exist before it.
    """
    return [*_key_files(repository, manager, key), *without_key(repository, manager)]


def without_key(repository: Repository, manager: str) -> list[RepositoryFile]:
    """Return the files of a repository besides its key and the note of the key. The entry is last."""
    return [
        *_access_files(repository, manager),
        *(RepositoryFile(path, None) for path in repository.replaces),
        _entry(repository, manager),
    ]


def _key_files(repository: Repository, manager: str, key: bytes) -> list[RepositoryFile]:
    path = role_file_paths.repository_key(repository.name, manager)
    data = openpgp.binary(key) if manager == "apt" else openpgp.armored(key)
    note = key_trust.note(data, repository.trust)
    return [RepositoryFile(path, data), RepositoryFile(role_file_paths.key_note(path), note.encode() if note else None)]


def _access_files(repository: Repository, manager: str) -> list[RepositoryFile]:
    name, reached = repository.name, repository.access
    if manager == "apt":
        return [
            RepositoryFile(role_file_paths.apt_proxy(name), _noted("//", repository_access.apt_proxy(reached))),
            RepositoryFile(role_file_paths.apt_login(name), _noted("#", repository_access.apt_logins(reached)), 0o600),
            RepositoryFile(role_file_paths.apt_preferences(name), _noted("#", _apt_priority(repository))),
        ]
    if manager == "zypper":
        return [
            RepositoryFile(
                role_file_paths.zypper_login(name), _noted("#", repository_access.zypper_logins(reached)), 0o600
            )
        ]
    return []


def _noted(comment: str, text: str) -> bytes | None:
    return f"{comment} {_HEADER}\n{text}".encode() if text else None


def _apt_priority(repository: Repository) -> str:
    """Return apt's preference for the server of the repository. A directory on the host has the origin ""."""
    if repository.priority is None:
        return ""
    server = urlsplit(repository.url).hostname or ""
    return f'Package: *\nPin: origin "{server}"\nPin-Priority: {repository.priority}\n'


def _entry(repository: Repository, manager: str) -> RepositoryFile:
    lines, secret = {"apt": _apt_lines, "dnf": _dnf_lines, "zypper": _zypper_lines}[manager](repository)
    content = "\n".join([f"# {_HEADER}", *lines, ""]).encode()
    return RepositoryFile(
        role_file_paths.repository_entry(repository.name, manager), content, 0o600 if secret else 0o644
    )


def _apt_lines(repository: Repository) -> tuple[list[str], bool]:
    """Return the lines of the entry for apt, and whether they contain a password."""
    lines = ["Types: deb", f"URIs: {repository.url}", f"Suites: {repository.suite}"]
    if repository.components:
        lines.append(f"Components: {' '.join(repository.components)}")
    return [*lines, f"Signed-By: {role_file_paths.repository_key(repository.name, 'apt')}"], False


def _dnf_lines(repository: Repository) -> tuple[list[str], bool]:
    reached = repository.access
    lines = _rpm_lines(repository, "dnf", repository_access.dnf_lines(reached))
    return lines, bool(reached.password or reached.proxy_password)


def _zypper_lines(repository: Repository) -> tuple[list[str], bool]:
    reached = repository.access
    lines = ["autorefresh=1", *repository_access.zypper_lines(reached, repository.name)]
    return _rpm_lines(repository, "zypper", lines), bool(reached.proxy_password)


def _rpm_lines(repository: Repository, manager: str, lines: list[str]) -> list[str]:
    return [
        f"[{repository.name}]",
        f"name={repository.description or repository.name}",
        "enabled=1",
        *lines,
        *([] if repository.priority is None else [f"priority={repository.priority}"]),
        *(["module_hotfixes=1"] if repository.module_hotfixes else []),
        *(["gpgcheck=0", "repo_gpgcheck=1"] if repository.signed == "metadata" else ["gpgcheck=1"]),
        f"gpgkey=file://{role_file_paths.repository_key(repository.name, manager)}",
    ]


def key_path(repository: Repository, manager: str) -> str:
    """Return the path of the repository's key."""
    return role_file_paths.repository_key(repository.name, manager)


# --- the key ----------------------------------------------------------------------------------------------------


def needs_key(repository: Repository, manager: str, root: str = "/") -> bool:
    """Return whether the host has no trusted key of the repository. Uses no network."""
    key = key_trust.read(root, role_file_paths.repository_key(repository.name, manager))
    return not key_trust.is_trusted(key, repository.trust)


def kept_key(repository: Repository, manager: str, root: str = "/") -> bytes:
    """Return the trusted key that the host has."""
    path = role_file_paths.repository_key(repository.name, manager)
    data = read_bytes(root, path, key_trust.LARGEST)
    if data is None or needs_key(repository, manager, root):
        raise RepositoryError(f"{path} is not the trusted key of repository {repository.name}. Fetch the key first.")
    return data


def fetch_key(repository: Repository, timeout: int = 30) -> bytes:
    """Return the trusted part of the key file at the URL or the path.

    Raise KeyTrustError if it contains another key, and RepositoryError if the path cannot be read.
    """
    key = _trusted_key(repository, timeout)
    foreign = [] if key_trust.is_digest(repository.trust) else openpgp_subkeys.unverified(openpgp.binary(key))
    if foreign:
        raise key_trust.SigningKeyError(
            f"The key file at {url_logins.masked(repository.key)} contains the subkeys {', '.join(foreign)} without a "
            f"verifiable signature of the key {repository.trust}. The key was not written. If you trust the whole "
            "file, set its digest (sha256:...) instead of a fingerprint."
        )
    return key


def _trusted_key(repository: Repository, timeout: int) -> bytes:
    if repository.key.startswith("/"):
        return key_trust.trusted_part(_local_key(repository), repository.trust, repository.key)
    reached = repository.access
    login = (reached.username, reached.password)
    return key_download.fetch(
        repository.key,
        repository.trust,
        repository_access.with_login(reached.proxy, reached.proxy_username, reached.proxy_password) or None,
        timeout,
        login=login if repository_access.is_same_server(repository.key, reached.url) else None,
    )


def _local_key(repository: Repository) -> bytes:
    try:
        with open(repository.key, "rb") as handle:
            return handle.read(key_trust.LARGEST)
    except OSError as error:
        raise RepositoryError(
            f"The key of repository {repository.name} could not be read from {repository.key}: {error.strerror}. Copy "
            "the key file to the host, or set the URL of the key."
        ) from error
