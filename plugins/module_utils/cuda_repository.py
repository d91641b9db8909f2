# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's CUDA network repository on a host, which driver and toolkit are had from.

Both roles add it by the same files, whichever comes first. The record of each tells whether it uses the repository, so
that the one that goes leaves it to the other.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from ansible_collections.gpufleet.hosts.plugins.module_utils import install_record

ID = "gpufleet-nvidia-cuda"
APT_PROXY_FILE = f"/etc/apt/apt.conf.d/53{ID}"
_ENTRY_FILES = {
    "apt": f"/etc/apt/sources.list.d/{ID}.sources",
    "dnf": f"/etc/yum.repos.d/{ID}.repo",
    "zypper": f"/etc/zypp/repos.d/{ID}.repo",
}
_KEYRINGS = {
    "apt": f"/usr/share/keyrings/{ID}.gpg",
    "dnf": f"/etc/pki/rpm-gpg/RPM-GPG-KEY-{ID}",
    "zypper": f"/usr/share/pki/{ID}.asc",
}
# The network repository, mirrors of its layout, and the local ones that NVIDIA's installers leave.
_OF_NVIDIA = re.compile(
    r"/compute/cuda/repos/|/(debian|ubuntu)\d+/(x86_64|sbsa|arm64)/*$|/(cuda-repo|nvidia-driver-local-repo)-"
)
# All that the repository can leave on a host.
FILES = (*_ENTRY_FILES.values(), APT_PROXY_FILE, *_KEYRINGS.values())


def describe(data: dict, names: dict, mirror: str | None, proxy: str | None, fingerprint: str | None) -> dict[str, Any]:
    """Return the repository as a host is to have it, from the platform's data and what a user asks for instead."""
    url = f"{(mirror or data['base']).rstrip('/')}/{data['path'].format(**names)}"
    return {
        "type": data["type"],
        "id": data["id"],
        "url": url,
        "key": f"{url}/{data['key']}",
        "fingerprint": fingerprint or data["fingerprint"],
        "proxy": proxy or None,
        "legacy_files": [path.format(**names) for path in data["legacy_files"]],
        "legacy_packages": data["legacy_packages"],
    }


def entries_of(host: dict, repository: dict) -> list[dict]:
    """Return the enabled entries of the same address that are there, with a key of their own where apt wants that."""
    url = repository["url"].rstrip("/")
    if repository["type"] == "apt":
        same = [entry for entry in host["apt"]["sources"] if url in [uri.rstrip("/") for uri in entry["uris"]]]
        return [entry for entry in same if entry["enabled"] and entry["signed_by"]]
    # zypper is told of a proxy behind the address.
    same = [entry for entry in host["repositories"] if (entry["url"] or "").partition("?")[0].rstrip("/") == url]
    return [entry for entry in same if entry["enabled"]]


def apt_files(host: dict) -> list[str]:
    """Name apt's source files that have NVIDIA's repositories, or mirrors of them, and nothing else."""
    by_file: dict[str, list[dict]] = {}
    for entry in host["apt"]["sources"] if host["apt"] is not None else []:
        if entry["enabled"]:
            by_file.setdefault(entry["file"], []).append(entry)
    ours = _ENTRY_FILES["apt"]
    return sorted(
        path
        for path, entries in by_file.items()
        if path == ours or all(_OF_NVIDIA.search(uri) for entry in entries for uri in entry["uris"])
    )


def is_reached_otherwise(host: dict, repository: dict) -> bool:
    """Tell whether our own entry of dnf's or zypper's goes through another proxy than is asked for."""
    content = _content(host, _ENTRY_FILES[repository["type"]]) if repository["type"] != "apt" else None
    if not content:
        return False
    pattern = r"[?&]proxy=([^&\s]+)" if repository["type"] == "zypper" else r"^proxy\s*=\s*(\S+)"
    found = re.search(pattern, content, re.MULTILINE)
    return unquote(found.group(1) if found else "") != (repository["proxy"] or "")


def replaced_files(repository: dict) -> list[str]:
    """Return the files of entries whose place ours takes."""
    return [_ENTRY_FILES[repository["type"]], *repository["legacy_files"]]


def is_ours_elsewhere(host: dict, repository: dict) -> bool:
    """Tell whether our own entry is there and leads to another address."""
    there = _content(host, _ENTRY_FILES[repository["type"]]) is not None
    return there and not any(item["file"] == _ENTRY_FILES[repository["type"]] for item in entries_of(host, repository))


def is_used_by(host: dict, record: str) -> bool:
    """Tell whether the role that this record is of has its packages from the repository."""
    return bool(install_record.read(host, record)["key"])


def superseded(host: dict, repository: dict) -> tuple[list[str], list[str]]:
    """Name the files and packages by which older ways added the same repository. What is kept lies in none of them."""
    kept = {entry["file"] for entry in entries_of(host, repository)}
    listed = {entry["file"] for entry in (host["apt"]["sources"] if host["apt"] is not None else host["repositories"])}
    files = [path for path in repository["legacy_files"] if path in listed and path not in kept]
    return files, [] if kept else [name for name in repository["legacy_packages"] if name in host["packages"]]


def apt_proxy(repository: dict | None) -> str | None:
    """Return the text that has apt reach the repository through a proxy; nothing where it needs none."""
    name = urlsplit(repository["url"]).hostname if repository else None
    # A mirror on the host itself is reached through nothing.
    if repository is None or not repository["proxy"] or not name:
        return None
    lines = [f'Acquire::{scheme}::Proxy::{name} "{repository["proxy"]}";\n' for scheme in ("http", "https")]
    return f"// Written by Ansible collection gpufleet.hosts.\n{''.join(lines)}"


def has_apt_proxy(host: dict) -> bool:
    """Tell whether apt is told how to reach the repository."""
    return _content(host, APT_PROXY_FILE) is not None


def keyring(repository: dict) -> str:
    """Return the file that the repository's key lies in."""
    return _KEYRINGS[repository["type"]]


def entry(repository: dict) -> dict[str, str]:
    """Return path and content of the file that names the repository to the package manager."""
    kind, url, proxy = repository["type"], repository["url"], repository["proxy"]
    if kind == "apt":
        text = f"Types: deb\nURIs: {url}\nSuites: /\nSigned-By: {keyring(repository)}\n"
    else:
        lines = [f"[{repository['id']}]", "name=NVIDIA CUDA", "enabled=1"]
        if kind == "zypper":
            behind = f"?proxy={quote(proxy, safe='')}" if proxy else ""
            lines += ["autorefresh=1", "type=rpm-md", f"baseurl={url}{behind}"]
        else:
            lines += [f"baseurl={url}", *([f"proxy={proxy}"] if proxy else [])]
        text = "\n".join([*lines, "gpgcheck=1", f"gpgkey=file://{keyring(repository)}", ""])
    return {"path": _ENTRY_FILES[kind], "content": f"# Written by Ansible collection gpufleet.hosts.\n{text}"}


def _content(host: dict, path: str) -> str | None:
    return (host["files"].get(path) or {}).get("content")
