# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the configuration files of containerd and CRI-O. Hosts may lack a TOML parser, so the controller parses them."""

from __future__ import annotations

import glob
import os
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import exists, listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import paths

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
    *paths.EXISTING,
)
_IMPORTS = re.compile(r"^[ \t]*imports[ \t]*=[ \t]*\[(.*?)\]", re.MULTILINE | re.DOTALL)
_STRING = re.compile(r"""["']([^"'\n]+)["']""")
_SECRET = re.compile(
    r"""(?i)(\b[\w-]*(?:password|passwd|secret|token|auth|authorization)["']?\s*=\s*)(\[[^\]]*\]|"(?:[^"\\]|\\.)*"|'[^']*')"""
)
_MASK = r'\1"********"'
_LARGEST = 256 * 1024


def read(root: str) -> dict:
    """Return the files by engine, in the order in which the engine reads them.

    `containerd` and `crio`: texts by path, without logins. `masked`: the files with logins. `mode`: the permissions of
    containerd's root file. `others`: which files exist that show other owners, and drop-ins that no engine reads.
    `nodes`: the texts of the files that distributions of Kubernetes generate, or that are registered with them.
    """
    masked: list[str] = []
    containerd: dict[str, str] = {}
    pending = [CONTAINERD] if exists(root, CONTAINERD) else _found(root, _DEFAULT_IMPORT)
    while pending:
        path = pending.pop(0)
        if path not in containerd:
            text = _text(root, path, masked)
            if text is not None:
                containerd[path] = text
                pending += _imported(root, path, text)
    crio = [_CRIO, *(f"{_CRIO_DIRECTORY}/{name}" for name in sorted(listing(root, _CRIO_DIRECTORY)))]
    texts = {path: _text(root, path, masked) for path in crio}
    nodes = {path: _text(root, path, masked) for path in paths.TEXTS}
    return {
        "containerd": containerd,
        "crio": {path: text for path, text in texts.items() if text is not None},
        "masked": masked,
        "mode": _mode(root),
        "others": [path for path in _OTHERS if exists(root, path)],
        "nodes": {path: text for path, text in nodes.items() if text is not None},
    }


def _mode(root: str) -> str | None:
    try:
        return f"{os.stat(os.path.join(root, CONTAINERD.lstrip('/'))).st_mode & 0o7777:04o}"
    except OSError:
        return None


def _imported(root: str, path: str, text: str) -> list[str]:
    found = _IMPORTS.search(text)
    patterns = _STRING.findall(found.group(1)) if found else []
    directory = os.path.dirname(path)
    return [name for pattern in patterns for name in _found(root, os.path.join(directory, pattern))]


def _found(root: str, pattern: str) -> list[str]:
    base = root.rstrip("/")
    return [path[len(base) :] for path in sorted(glob.glob(base + os.path.normpath(pattern)))]


def _text(root: str, path: str, masked: list[str]) -> str | None:
    text = read_text(root, path, _LARGEST, newline="")  # the plan keeps the line ends
    if text is None:
        return None
    hidden = _SECRET.sub(_MASK, text)
    if hidden != text:
        masked.append(path)
    return hidden
