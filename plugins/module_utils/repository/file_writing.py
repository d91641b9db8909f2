# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare, show and write the files of repositories on a host."""

from __future__ import annotations

import dataclasses
import os
import stat

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import (
    atomic_file,
    login_digests,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import openpgp, role_file_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import proxy_and_logins as repository_access
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.repository_options import RepositoryError

# A file in these directories contains only logins.
_LOGIN_DIRECTORIES = {os.path.dirname(path("x")) for path in (role_file_paths.apt_login, role_file_paths.zypper_login)}


@dataclasses.dataclass(frozen=True)
class RepositoryFile:
    """A file to write or, with `content` None, to remove. A file with a login has the mode 0600."""

    path: str
    content: bytes | None
    mode: int = 0o644


def current(path: str, root: str = "/") -> RepositoryFile:
    """Return a file of the host with its mode. The content is None if it does not exist."""
    try:
        with open(_below(root, path), "rb") as handle:
            return RepositoryFile(path, handle.read(), stat.S_IMODE(os.fstat(handle.fileno()).st_mode))
    except FileNotFoundError:
        return RepositoryFile(path, None)
    except OSError as error:
        raise _failure("read", path, error) from error


def outdated(wanted: list[RepositoryFile], root: str = "/") -> list[RepositoryFile]:
    """Return the files whose content or mode on the host differs, once for each path."""
    by_path = {file.path: file for file in wanted}
    return [file for file in by_path.values() if _differs(file, root)]


def _differs(file: RepositoryFile, root: str) -> bool:
    if file.content is None:
        return os.path.lexists(_below(root, file.path))
    return current(file.path, root) != file


def diff(before: RepositoryFile, file: RepositoryFile) -> dict[str, str]:
    """Return an entry of Ansible's diff, without logins. Digests replace them, and fingerprints replace keys."""
    is_secret = not all(one.mode & 0o044 for one in (before, file) if one.content is not None)
    return {
        "before_header": file.path,
        "after_header": file.path,
        "before": _shown(file.path, before.content, is_secret),
        "after": _shown(file.path, file.content, is_secret),
    }


def _shown(path: str, content: bytes | None, is_secret: bool) -> str:
    if content is None:
        return ""
    try:
        return "".join(f"fingerprint: {fingerprint}\n" for fingerprint in openpgp.fingerprints(content))
    except openpgp.KeyFileError:
        pass
    text = content.decode("utf-8", "surrogateescape")
    # A diff can only contain valid text.
    sealed = repository_access.sealed_entry(text)
    # A secret file without a known login is in another format.
    is_unknown = is_secret and sealed == text
    if is_unknown or os.path.dirname(path) in _LOGIN_DIRECTORIES or not _is_valid(text):
        return f"digest: {login_digests.digest(text)}\n"
    return sealed


def _is_valid(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def write(file: RepositoryFile, root: str = "/") -> bytes | None:
    """Write or remove a file, and return its previous content. None: it did not exist.

    A reader never sees a part of the file. For a symlink, its target is written, but the symlink itself is removed.
    """
    before = current(file.path, root).content
    path = _below(root, file.path)
    remove_temporary(file.path, root)
    try:
        if file.content is not None:
            _put(os.path.realpath(path), file.content, file.mode)
        elif os.path.lexists(path):
            os.unlink(path)
            atomic_file.sync(os.path.dirname(path))
    except OSError as error:
        raise _failure("removed" if file.content is None else "written", file.path, error) from error
    return before


def remove_temporary(path: str, root: str = "/") -> None:
    """Remove what a killed run left while it wrote the file."""
    atomic_file.remove_temporary(os.path.realpath(_below(root, path)))


def _put(path: str, content: bytes, mode: int) -> None:
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    atomic_file.put(path, content, lambda temporary: os.chmod(temporary, mode))


def _below(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))


def _failure(done: str, path: str, error: OSError) -> RepositoryError:
    remedy = (
        "Remove the directory." if isinstance(error, IsADirectoryError) else "Set become: true, or free disk space."
    )
    return RepositoryError(f"{path} could not be {done}: {error.strerror or error}. {remedy}")
