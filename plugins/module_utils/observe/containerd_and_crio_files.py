# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the configuration files of containerd and CRI-O. Hosts may lack a TOML parser, so the controller parses them."""

from __future__ import annotations

import fnmatch
import os
import posixpath
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import toml_reader, url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists, listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.secret_masking import SECRET_NAMES
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import distribution_paths

CONTAINERD = "/etc/containerd/config.toml"
# Without a root file, containerd imports these files since 2.2.0: containerd/containerd, v2.2.0.
_DEFAULT_IMPORT = "/etc/containerd/conf.d/*.toml"
_CRIO, _CRIO_DIRECTORY = "/etc/crio/crio.conf", "/etc/crio/crio.conf.d"
# Files that show who else writes the configuration, and drop-ins that no engine reads.
_OTHERS = (
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/etc/containerd/config.d/99-nvidia.toml",
    "/etc/crio/conf.d/99-nvidia.toml",
    *distribution_paths.EXISTING,
)
# A text of TOML: on several lines, or on one.
_LONG = r'"{3}(?:[^\\"]|\\.|"(?!""))*"{3,5}|' + r"'{3}(?:[^']|'(?!''))*'{3,5}"
_SHORT = r'(?!"{3})"(?:[^"\\\n]|\\.)*"|' + r"(?!'{3})'[^'\n]*'"
_LIST = rf"""\[(?:{_LONG}|{_SHORT}|#[^\n]*|[^\]"'#])*\]"""
_SECRET = re.compile(rf"""(?is)(\b[\w-]*(?:{SECRET_NAMES})["']?[ \t]*=[ \t]*)({_LIST}|{_LONG}|{_SHORT})""")
# A part that can contain the login of a URL: a text on one line, or a word of a comment or of a longer text.
_PART = re.compile(rf"""{_SHORT}|[^\s"']+""")
# For a text that the reader of a Python without tomllib rejects. The plan finds what this expression does not.
_IMPORTS = re.compile(rf"""(?ms)^[ \t]*["']?imports["']?[ \t]*=[ \t]*({_LIST})""")
_MASK = r'\1"********"'
_LARGEST = 256 * 1024


def read(root: str) -> dict:
    """Return the files by engine, in the order in which the engine reads them.

    `containerd` and `crio`: texts by path, without logins. `masked`: the files with logins. `mode`: the permissions of
    containerd's root file. `others`: which files exist that show other owners, and drop-ins that no engine reads.
    `nodes`: the texts of the files that distributions of Kubernetes generate, or that are registered with them.
    `unread`: the files of containerd that exist but cannot be read, or whose imports are uncertain.
    `ignored`: the settings of k3s and RKE2 that are older than the configuration that these have generated at a start.
    """
    masked: list[str] = []
    unread: list[str] = []
    containerd: dict[str, str] = {}
    pending = [CONTAINERD] if exists(root, CONTAINERD) else _found(root, _DEFAULT_IMPORT)
    while pending:
        path = pending.pop(0)
        if path not in containerd:
            text = _text(root, path, masked)
            if text is not None:
                containerd[path] = text
                pending += _imported(root, path, text, unread)
            elif exists(root, path):
                unread.append(path)
    crio = [_CRIO, *(f"{_CRIO_DIRECTORY}/{name}" for name in sorted(listing(root, _CRIO_DIRECTORY)))]
    texts = {path: _text(root, path, masked) for path in crio}
    nodes = {path: _text(root, path, masked) for path in distribution_paths.TEXTS}
    return {
        "containerd": containerd,
        "crio": {path: text for path, text in texts.items() if text is not None},
        "masked": masked,
        "unread": unread,
        "ignored": [
            path
            for name, path in distribution_paths.SETTINGS.items()
            if _is_older(root, path, distribution_paths.GENERATED[name])
        ],
        "mode": _mode(root),
        "others": [path for path in _OTHERS if exists(root, path)],
        "nodes": {path: text for path, text in nodes.items() if text is not None},
    }


def _is_older(root: str, path: str, other: str) -> bool:
    try:
        one, two = (os.stat(os.path.join(root, name.lstrip("/"))).st_mtime_ns for name in (path, other))
    except OSError:
        return False
    return one < two


def _mode(root: str) -> str | None:
    try:
        return f"{os.stat(os.path.join(root, CONTAINERD.lstrip('/'))).st_mode & 0o7777:04o}"
    except OSError:
        return None


def _imported(root: str, path: str, text: str, unread: list[str]) -> list[str]:
    try:
        patterns = toml_reader.read(text).get("imports")
    except toml_reader.TomlValueError:
        unread.append(path)
        patterns = _likely_imports(text)
    directory = posixpath.dirname(path)
    # The plan reports an entry that is no text.
    names = [pattern for pattern in patterns if isinstance(pattern, str)] if isinstance(patterns, list) else []
    return [name for pattern in names for name in _found(root, posixpath.join(directory, pattern))]


def _likely_imports(text: str) -> list:
    found = _IMPORTS.search(text)
    try:
        return toml_reader.read(f"imports = {found.group(1)}")["imports"] if found else []
    except toml_reader.TomlValueError:
        return []


def _found(root: str, pattern: str) -> list[str]:
    """Return the files of an import. Only with a star, it is a pattern, which finds hidden files too."""
    found = [""]
    for part in posixpath.normpath(pattern).lstrip("/").split("/"):
        if "*" in pattern:
            found = [
                f"{path}/{name}" for path in found for name in listing(root, path) if fnmatch.fnmatchcase(name, part)
            ]
        else:
            found = [f"{path}/{part}" for path in found]
    return found


def _text(root: str, path: str, masked: list[str]) -> str | None:
    text = read_text(root, path, _LARGEST, newline="")  # the plan keeps the line ends
    if text is None:
        return None
    hidden = _SECRET.sub(_MASK, text)
    hidden = _PART.sub(lambda part: url_logins.masked(part.group()), hidden) if "://" in hidden else hidden
    if hidden != text:
        masked.append(path)
    return hidden
