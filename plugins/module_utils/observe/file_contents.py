# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an observed file becomes: its text, a digest, or a text without passwords."""

from __future__ import annotations

import functools
import hashlib
import os

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_bytes, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import secret_masking
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import container_engines as observe_engines
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_files
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import proxy_and_logins, role_file_paths

_LARGEST_PROGRAM = 8 * 1024 * 1024


def mask(files: dict[str, dict], names: list[str]) -> None:
    """Mask the passwords in the contents of files."""
    masks = {
        observe_engines.DAEMON_JSON: secret_masking.masked_file,
        observe_engines.DAEMON_JSON_RECORD: observe_engines.masked_record,
        **dict.fromkeys(filter(owned.is_record, files), record_files.without_former_files),
        # A digest in place of the login, so that a changed password is detected.
        **{
            path: functools.partial(proxy_and_logins.sealed_file, path)
            for name in names
            for path in role_file_paths.with_logins(name)
            if path in files
        },
    }
    for path, masked in masks.items():
        content = files[path]["content"]
        files[path] = {**files[path], "content": masked(content) if content else content}


def of_file(root: str, path: str) -> dict:
    full = os.path.join(root, path.lstrip("/"))
    try:
        found = os.stat(full)
        size, mode = found.st_size, found.st_mode
    except OSError:
        return {"exists": os.path.lexists(full), "content": None, "mode": None}
    if path in (owned.CDI_PROGRAM, *owned.ACCELERATOR_CDI_PROGRAMS.values()):
        # The file is large, and only its digest matters.
        digest = hashlib.sha256(read_bytes(root, path, _LARGEST_PROGRAM) or b"").hexdigest()
        return {"exists": True, "content": digest, "mode": f"{mode & 0o7777:04o}"}
    if path == owned.WRAPPER:
        return {"exists": True, "content": _own_program(root, path, found.st_uid), "mode": f"{mode & 0o7777:04o}"}
    is_text = size <= observe_engines.LARGEST_FILE and not path.endswith(".gpg")
    # The plan changes single lines of a TOML file and keeps all others.
    content = read_text(root, path, newline="" if path.endswith(".toml") else None) if is_text else None
    return {"exists": True, "content": content, "mode": f"{mode & 0o7777:04o}"}


def _own_program(root: str, path: str, owner: int) -> str | None:
    """Return the digest of a program that the role wrote, or None for a file of somebody else.

    The digest is empty if root does not own the file any more, so that the role writes it again.
    """
    is_link = os.path.islink(os.path.join(root, path.lstrip("/")))
    content = None if is_link else read_bytes(root, path, _LARGEST_PROGRAM)
    if content is None or owned.WRAPPER_MARK.encode() not in content.splitlines()[1:2]:
        return None
    return hashlib.sha256(content).hexdigest() if owner in (0, os.stat(root).st_uid) else ""
