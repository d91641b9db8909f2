# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A private view of apt's repositories, with the files that a transaction will write or remove.

The view has a copy of /etc/apt and of the package lists. The caller creates and removes the directory of the view.
"""

from __future__ import annotations

import os
import re
import shutil

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError, View
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import apt_sources
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile

_APT = "/etc/apt"
_LISTS = "/var/lib/apt/lists"


def create(root: str, directory: str, files: list[RepositoryFile]) -> View:
    """Create the view without fetching metadata."""
    place = copied_root(directory)
    try:
        _copy_configuration(_below(root, _APT), f"{place}{_APT}")
        for file in files:
            _overlay(place, file)
        _use_copies(place, files)
    except (OSError, shutil.Error) as error:
        raise PackageManagerError(
            f"apt's configuration in {_APT} could not be copied: {error}. Nothing was changed. "
            "Make these files readable."
        ) from error
    # apt downloads and verifies as its own user. Until here, files with logins may have the wrong mode.
    os.chmod(directory, 0o755)
    _copy_lists(_below(root, _LISTS), f"{directory}/lists")
    os.makedirs(f"{directory}/cache", exist_ok=True)
    for path, text in settings(directory).items():
        _write(path, text.encode(), 0o600)
    return View(("-c", f"{directory}/apt.conf"))


def settings(directory: str) -> dict[str, str]:
    """Return apt's settings for a view, by path. apt reads the first file before and the second after all others."""
    etc = f"{copied_root(directory)}{_APT}"
    last = [
        f'Dir::Etc "{etc}";',
        f'Dir::State::Lists "{directory}/lists";',
        f'Dir::Cache "{directory}/cache";',
        'Acquire::Languages "none";',
        # Report each repository that does not answer.
        'APT::Update::Error-Mode "any";',
        # `repository/download_retries.py` tries again.
        'Acquire::Retries "0";',
        # The host's hooks expect the host's own lists.
        *(f"#clear APT::Update::{name};" for name in ("Pre-Invoke", "Post-Invoke", "Post-Invoke-Success")),
    ]
    return {
        f"{directory}/first.conf": f'Dir::Etc::Parts "{etc}/apt.conf.d";\nDir::Etc::Main "{etc}/apt.conf";\n',
        f"{directory}/apt.conf": "\n".join([*last, ""]),
    }


def environment(view: View) -> dict[str, str]:
    """Return the variables that make apt read the configuration of a view instead of the host's."""
    if not view.options:
        return {}
    return {"APT_CONFIG": f"{os.path.dirname(view.options[1])}/first.conf"}


def copied_root(directory: str) -> str:
    """Return the directory that has the configuration of a view."""
    return f"{directory}/root"


def _below(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))


def _copy_configuration(source: str, target: str) -> None:
    if os.path.isdir(source):
        shutil.copytree(source, target, ignore_dangling_symlinks=True)
    for name in ("apt.conf.d", "sources.list.d", "preferences.d", "auth.conf.d", "trusted.gpg.d"):
        os.makedirs(f"{target}/{name}", exist_ok=True)


def _overlay(place: str, file: RepositoryFile) -> None:
    path = f"{place}{file.path}"
    if file.content is not None:
        _write(path, file.content, file.mode)
    elif os.path.lexists(path):
        os.unlink(path)


def _use_copies(place: str, files: list[RepositoryFile]) -> None:
    """Make the sources use the keys that only the view has."""
    paths = [
        re.escape(file.path) for file in files if file.content is not None and not apt_sources.is_source(file.path)
    ]
    if not paths:
        return
    new = re.compile(rf"(?<![\w./-])(?:{'|'.join(paths)})(?![\w/-]|\.\w)")
    for path, text in apt_sources.read_files(place).items():
        changed = new.sub(lambda found: place + found.group(), text)
        if changed != text:
            copy = f"{place}{path}"
            _write(copy, changed.encode("utf-8", "surrogateescape"), os.stat(copy).st_mode & 0o777)


def _write(path: str, content: bytes, mode: int) -> None:
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as handle:
        handle.write(content)
    os.chmod(path, mode)


def _copy_lists(source: str, target: str) -> None:
    """Copy the host's package lists, so that apt downloads only the lists that changed."""
    try:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("lock", "partial", "auxfiles"))
    except (OSError, shutil.Error):
        # apt downloads the lists that were not copied.
        os.makedirs(target, exist_ok=True)
    os.chmod(target, 0o755)
