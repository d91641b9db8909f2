# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's CUDA network repository on a host, the source of driver and toolkit packages.

Both roles add the repository with the same files. The record of each role shows whether it uses the repository, so that
removing one role keeps the repository for the other.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import key_trust
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record

ID = owned.REPOSITORY_ID
APT_PROXY_FILE = owned.APT_PROXY
APT_PREFERENCE_FILE = owned.TOOLKIT_APT_PREFERENCES
_ENTRY_FILES = owned.REPOSITORY_ENTRIES
_KEYRINGS = owned.REPOSITORY_KEYS
# The network repository, mirrors with its layout, and the local repositories of NVIDIA's installers.
_OF_NVIDIA = re.compile(
    r"/compute/cuda/repos/|/(debian|ubuntu)\d+/(x86_64|sbsa|arm64)/*$|/(cuda-repo|nvidia-driver-local-repo)-"
)
# The URL in an entry of any package manager.
_ADDRESS = r"^(?:URIs:|baseurl\s*=)\s*([^\s?]+)"
# Files with URLs that may contain a login.
WITH_ADDRESSES = (*_ENTRY_FILES.values(), APT_PROXY_FILE)
KEYRINGS = tuple(_KEYRINGS.values())
# All files of the repository on a host.
FILES = (*WITH_ADDRESSES, *KEYRINGS, *map(key_trust.note_path, KEYRINGS))


def describe(data: dict, names: dict, settings: dict) -> dict[str, Any]:
    """Return the requested repository from the platform's data and the user's settings.

    `fingerprint` is the trusted fingerprint of its key, or the digest of the key file.
    """
    url = f"{(settings['mirror'] or data['base']).rstrip('/')}/{data['path'].format(**names)}"
    repository = {
        "type": data["type"],
        "id": data["id"],
        "url": url,
        "key": settings["key_url"] or f"{url}/{data['key']}",
        "fingerprint": key_trust.normalized(settings["key_fingerprint"] or data["fingerprint"]),
        "proxy": settings["proxy"] or None,
        "legacy_files": [path.format(**names) for path in data["legacy_files"]],
        "legacy_packages": data["legacy_packages"],
    }
    return {**repository, "entry": entry(repository)}


def entries_of(host: dict, repository: dict) -> list[dict]:
    """Return the existing enabled entries with the same URL that are kept. With apt, they have the same key.

    Logins in URLs are ignored.
    """
    if repository["type"] == "apt":
        return _of_one_key(_apt_entries(host, repository), repository)
    url = addresses.plain(repository["url"]).rstrip("/")
    # zypper has the proxy as a parameter of the URL.
    same = [entry for entry in host["repositories"] if (entry["url"] or "").partition("?")[0].rstrip("/") == url]
    return [entry for entry in same if entry["enabled"]]


def mirror_on_host(host: dict, repository: dict) -> str | None:
    """Return the URL of a mirror of the repository that the host already uses, or None.

    The mirror is in our entry. Without our entry, it is in an entry of the user, unless the user also has one for the
    repository itself.
    """
    own = addresses.plain(repository["url"]).rstrip("/")
    entries = host["repositories"] if host["apt"] is None else host["apt"]["sources"]
    urls = [
        (entry["file"], (url or "").partition("?")[0].rstrip("/"))
        for entry in entries
        if entry["enabled"]
        for url in entry.get("uris") or [entry.get("url")]
    ]
    found = [url for file, url in urls if file == _ENTRY_FILES[repository["type"]]]
    if not found and own not in [url for _file, url in urls]:
        # Other repositories have the same paths, for example those of NVIDIA's machine learning packages.
        found = [url for _file, url in urls if "cuda" in url.lower()]
    # After an upgrade of the distribution, our entry may have the path of the former release.
    path = "/".join(own.split("/")[-2:])
    return next((url for url in found if url != own and url.endswith(f"/{path}")), None)


def _apt_entries(host: dict, repository: dict) -> list[dict]:
    return [entry for entry in host["apt"]["sources"] if any(_is_at(repository, entry)) and entry["enabled"]]


def _is_at(repository: dict, entry: dict) -> list[bool]:
    """Return for each URL of an apt entry whether it is the URL of the repository."""
    url = addresses.plain(repository["url"]).rstrip("/")
    return [uri.rstrip("/") == url for uri in entry["uris"]]


def _of_one_key(entries: list[dict], repository: dict) -> list[dict]:
    """Keep the entries of one key: that of our entry, else the first of the user's, else the only legacy key."""
    keyed = [entry for entry in entries if entry["signed_by"]]
    older = [entry for entry in keyed if entry["file"] in repository["legacy_files"]]
    own = [entry for entry in keyed if entry not in older]
    own.sort(key=lambda entry: entry["file"] != _ENTRY_FILES["apt"])
    if own:
        return [entry for entry in own if entry["signed_by"] == own[0]["signed_by"]]
    return older if len({entry["signed_by"] for entry in older}) == 1 else []


def _clashing(host: dict, repository: dict) -> tuple[list[str], list[str]]:
    """Return apt's files with the same URL and another key or none.

    The second list has the files that cannot be removed, because they have other entries, too.
    """
    if repository["type"] != "apt":
        return [], []
    kept = entries_of(host, repository)
    leaving = set(repository["legacy_files"]) - {entry["file"] for entry in kept}
    others = [entry for entry in _apt_entries(host, repository) if entry not in kept]
    paths = sorted({entry["file"] for entry in others} - leaving)
    entries = [entry for entry in host["apt"]["sources"] if entry["file"] in paths]
    mixed = {entry["file"] for entry in entries if entry in kept or not all(_is_at(repository, entry))}
    return [path for path in paths if path not in mixed], sorted(mixed)


def clash(host: dict, repository: dict) -> str | None:
    """Return a message about files that must be fixed by hand before the repository can be used, or None."""
    _removable, mixed = _clashing(host, repository)
    if not mixed:
        return None
    return (
        f"{', '.join(mixed)} has an entry for NVIDIA's repository {addresses.masked(repository['url'])} and other "
        "entries. apt rejects a repository that is listed with two different keys, or with and without a key. Remove "
        "that entry: the role writes its own file for the repository."
    )


def apt_files(host: dict) -> list[str]:
    """Return apt's source files that only have NVIDIA's repositories or mirrors of them."""
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
    """Return whether our entry has another login or another proxy than requested.

    apt has the proxy in another file. The observed entry has digests in place of logins.
    """
    content = _content(host, _ENTRY_FILES[repository["type"]])
    if not content:
        return False
    current, requested = (url.rstrip("/") for url in (_first(_ADDRESS, content), addresses.sealed(repository["url"])))
    if current != requested and addresses.plain(current) == addresses.plain(requested):
        return True
    if repository["type"] == "apt":
        return False
    proxy = _first(r"[?&]proxy=([^&\s]+)" if repository["type"] == "zypper" else r"^proxy\s*=\s*(\S+)", content)
    return unquote(proxy) != addresses.sealed(repository["proxy"] or "")


def is_outdated(host: dict, repository: dict) -> bool:
    """Return whether our entry or its key differs from the request."""
    return is_reached_otherwise(host, repository) or _has_another_key(host, repository)


def _has_another_key(host: dict, repository: dict) -> bool:
    """Return whether the key file of our entry for this URL is missing or not trusted."""
    ours = _ENTRY_FILES[repository["type"]]
    if not is_ours(host, repository) or ours not in [item["file"] for item in entries_of(host, repository)]:
        return False
    return not key_trust.is_trusted(host["keyrings"].get(keyring(repository)), repository["fingerprint"])


def replaced_files(repository: dict) -> list[str]:
    """Return the files of entries that our entry replaces."""
    return [_ENTRY_FILES[repository["type"]], *repository["legacy_files"]]


def is_ours_elsewhere(host: dict, repository: dict) -> bool:
    """Return whether our entry exists and has another URL."""
    return is_ours(host, repository) and not any(
        item["file"] == _ENTRY_FILES[repository["type"]] for item in entries_of(host, repository)
    )


def is_used_by(host: dict, record: str) -> bool:
    """Return whether the role of this record uses the repository."""
    return bool(packages_record.read(host, record)["key"])


def superseded(host: dict, repository: dict) -> tuple[list[str], list[str]]:
    """Return the files and packages of older methods that added the same repository. Kept entries are excluded."""
    entries = host["apt"]["sources"] if host["apt"] is not None else host["repositories"]
    kept = {entry["file"] for entry in entries_of(host, repository)}
    listed = {entry["file"] for entry in entries}
    files = [path for path in repository["legacy_files"] if path in listed and path not in kept]
    files += _clashing(host, repository)[0]
    # The kept entry of the user may use a key of these packages.
    if kept - {_ENTRY_FILES[repository["type"]]}:
        return files, []
    names = [rf"{re.escape(name)}(-\d.*)?" for name in repository["legacy_packages"]]
    packages = sorted(package for package in host["packages"] if any(re.fullmatch(name, package) for name in names))
    return files + [path for path in _sources_inside(packages, entries) if path not in files], packages


def _sources_inside(packages: list[str], entries: list[dict]) -> list[str]:
    """Return the source files that only have repositories inside these packages."""
    inside = tuple(f"file:///var/{name}" for name in packages) or ("nowhere",)
    urls = [(entry["file"], url or "") for entry in entries for url in entry.get("uris") or [entry.get("url")]]
    others = {path for path, url in urls if not url.startswith(inside)}
    return sorted({path for path, _url in urls} - others)


def apt_proxy(repository: dict | None) -> str | None:
    """Return apt's proxy configuration for the repository, or None."""
    name = urlsplit(repository["url"]).hostname if repository else None
    # A mirror on the host itself needs no proxy.
    if repository is None or not repository["proxy"] or not name:
        return None
    lines = [f'Acquire::{scheme}::Proxy::{name} "{repository["proxy"]}";\n' for scheme in ("http", "https")]
    return f"// Written by Ansible collection gpufleet.hosts.\n{''.join(lines)}"


def apt_last(names: list[str]) -> str:
    """Return an apt preference that gives the repository the lowest priority for these packages."""
    return f"Package: {' '.join(names)}\nPin: release o=NVIDIA\nPin-Priority: 100\n"


def is_ours(host: dict, repository: dict) -> bool:
    """Return whether our entry exists."""
    return _content(host, _ENTRY_FILES[repository["type"]]) is not None


def has_apt_proxy(host: dict) -> bool:
    """Return whether apt has a proxy configuration for the repository."""
    return _content(host, APT_PROXY_FILE) is not None


def keyring(repository: dict) -> str:
    """Return the path of the repository's key."""
    return _KEYRINGS[repository["type"]]


def entry(repository: dict) -> dict[str, str]:
    """Return path and content of the repository's entry for the package manager."""
    kind, url, proxy = repository["type"], repository["url"], repository["proxy"]
    if kind == "apt":
        text = f"Types: deb\nURIs: {url}\nSuites: /\nSigned-By: {keyring(repository)}\n"
    else:
        lines = [f"[{repository['id']}]", "name=NVIDIA CUDA", "enabled=1"]
        if kind == "zypper":
            parameter = f"?proxy={quote(proxy, safe='')}" if proxy else ""
            lines += ["autorefresh=1", "type=rpm-md", f"baseurl={url}{parameter}"]
        else:
            lines += [f"baseurl={url}", *([f"proxy={proxy}"] if proxy else [])]
        text = "\n".join([*lines, "gpgcheck=1", f"gpgkey=file://{keyring(repository)}", ""])
    return {"path": _ENTRY_FILES[kind], "content": f"# Written by Ansible collection gpufleet.hosts.\n{text}"}


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1) if found else ""


def _content(host: dict, path: str) -> str | None:
    return (host["files"].get(path) or {}).get("content")
