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

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import key_trust
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record

ID = "gpufleet-nvidia-cuda"
APT_PROXY_FILE = f"/etc/apt/apt.conf.d/53{ID}"
# What has the repository come last for a driver that is not from it. Of several preferences the first that fits a
# package counts, and by its name this one comes after role nvidia_driver's.
APT_PREFERENCE_FILE = "/etc/apt/preferences.d/gpufleet-nvidia-toolkit"
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
# In an entry of whichever package manager.
_ADDRESS = r"^(?:URIs:|baseurl\s*=)\s*([^\s?]+)"
# Files with addresses, which may have a login.
WITH_ADDRESSES = (*_ENTRY_FILES.values(), APT_PROXY_FILE)
KEYRINGS = tuple(_KEYRINGS.values())
# All that the repository can leave on a host.
FILES = (*WITH_ADDRESSES, *KEYRINGS, *map(key_trust.note_path, KEYRINGS))


def describe(data: dict, names: dict, wish: dict) -> dict[str, Any]:
    """Return the repository as a host is to have it, from the platform's data and what a user asks for instead.

    `fingerprint` is what its key is trusted by: a fingerprint, or the digest of the key file.
    """
    url = f"{(wish['mirror'] or data['base']).rstrip('/')}/{data['path'].format(**names)}"
    repository = {
        "type": data["type"],
        "id": data["id"],
        "url": url,
        "key": wish["key_url"] or f"{url}/{data['key']}",
        "fingerprint": key_trust.normalized(wish["key_fingerprint"] or data["fingerprint"]),
        "proxy": wish["proxy"] or None,
        "legacy_files": [path.format(**names) for path in data["legacy_files"]],
        "legacy_packages": data["legacy_packages"],
    }
    return {**repository, "entry": entry(repository)}


def entries_of(host: dict, repository: dict) -> list[dict]:
    """Return the enabled entries of the same address that are there and stay; with apt they are of one key.

    An address is the same by whichever login it is reached.
    """
    if repository["type"] == "apt":
        return _of_one_key(_apt_entries(host, repository), repository)
    url = addresses.plain(repository["url"]).rstrip("/")
    # zypper is told of a proxy behind the address.
    same = [entry for entry in host["repositories"] if (entry["url"] or "").partition("?")[0].rstrip("/") == url]
    return [entry for entry in same if entry["enabled"]]


def _apt_entries(host: dict, repository: dict) -> list[dict]:
    return [entry for entry in host["apt"]["sources"] if any(_is_at(repository, entry)) and entry["enabled"]]


def _is_at(repository: dict, entry: dict) -> list[bool]:
    """Tell of each address of an entry of apt's whether it is the repository's."""
    url = addresses.plain(repository["url"]).rstrip("/")
    return [uri.rstrip("/") == url for uri in entry["uris"]]


def _of_one_key(entries: list[dict], repository: dict) -> list[dict]:
    """Choose the key that stays: our entry's, else the first of somebody's own, else what older ways agree on."""
    keyed = [entry for entry in entries if entry["signed_by"]]
    older = [entry for entry in keyed if entry["file"] in repository["legacy_files"]]
    own = [entry for entry in keyed if entry not in older]
    own.sort(key=lambda entry: entry["file"] != _ENTRY_FILES["apt"])
    if own:
        return [entry for entry in own if entry["signed_by"] == own[0]["signed_by"]]
    return older if len({entry["signed_by"] for entry in older}) == 1 else []


def _clashing(host: dict, repository: dict) -> tuple[list[str], list[str]]:
    """Name the files of apt's with the address and another key than the one that stays, or none.

    The second list is of those that cannot go, because they have something else as well.
    """
    if repository["type"] != "apt":
        return [], []
    kept = entries_of(host, repository)
    leaving = set(repository["legacy_files"]) - {entry["file"] for entry in kept}
    others = [entry for entry in _apt_entries(host, repository) if entry not in kept]
    paths = sorted({entry["file"] for entry in others} - leaving)
    there = [entry for entry in host["apt"]["sources"] if entry["file"] in paths]
    mixed = {entry["file"] for entry in there if entry in kept or not all(_is_at(repository, entry))}
    return [path for path in paths if path not in mixed], sorted(mixed)


def clash(host: dict, repository: dict) -> str | None:
    """Say which files have to be mended by hand before the repository can be used; nothing where none has."""
    _removable, mixed = _clashing(host, repository)
    if not mixed:
        return None
    return (
        f"{', '.join(mixed)} names NVIDIA's repository {addresses.masked(repository['url'])} beside others, and apt "
        "refuses an address that has two keys, or one entry with a key and one without. Take that entry out of the "
        "file: the repository gets a file of its own."
    )


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
    """Tell whether our own entry goes by another login, or through another proxy, than is asked for.

    apt is told of a proxy in another file. What was seen of the entry has digests in the place of logins.
    """
    content = _content(host, _ENTRY_FILES[repository["type"]])
    if not content:
        return False
    there, wanted = (url.rstrip("/") for url in (_first(_ADDRESS, content), addresses.sealed(repository["url"])))
    if there != wanted and addresses.plain(there) == addresses.plain(wanted):
        return True
    if repository["type"] == "apt":
        return False
    proxy = _first(r"[?&]proxy=([^&\s]+)" if repository["type"] == "zypper" else r"^proxy\s*=\s*(\S+)", content)
    return unquote(proxy) != addresses.sealed(repository["proxy"] or "")


def is_outdated(host: dict, repository: dict) -> bool:
    """Tell whether our own entry, or the key that it names, is not what is asked for now."""
    return is_reached_otherwise(host, repository) or _has_another_key(host, repository)


def _has_another_key(host: dict, repository: dict) -> bool:
    """Tell whether our own entry of this address names a key file that is missing or is not the trusted one."""
    ours = _ENTRY_FILES[repository["type"]]
    if not is_ours(host, repository) or ours not in [item["file"] for item in entries_of(host, repository)]:
        return False
    return not key_trust.is_trusted(host["keyrings"].get(keyring(repository)), repository["fingerprint"])


def replaced_files(repository: dict) -> list[str]:
    """Return the files of entries whose place ours takes."""
    return [_ENTRY_FILES[repository["type"]], *repository["legacy_files"]]


def is_ours_elsewhere(host: dict, repository: dict) -> bool:
    """Tell whether our own entry is there and leads to another address."""
    return is_ours(host, repository) and not any(
        item["file"] == _ENTRY_FILES[repository["type"]] for item in entries_of(host, repository)
    )


def is_used_by(host: dict, record: str) -> bool:
    """Tell whether the role that this record is of has its packages from the repository."""
    return bool(packages_record.read(host, record)["key"])


def superseded(host: dict, repository: dict) -> tuple[list[str], list[str]]:
    """Name the files and packages by which older ways added the same repository. What is kept lies in none of them."""
    entries = host["apt"]["sources"] if host["apt"] is not None else host["repositories"]
    kept = {entry["file"] for entry in entries_of(host, repository)}
    listed = {entry["file"] for entry in entries}
    files = [path for path in repository["legacy_files"] if path in listed and path not in kept]
    files += _clashing(host, repository)[0]
    # The key of somebody else's entry may be one of theirs.
    if kept - {_ENTRY_FILES[repository["type"]]}:
        return files, []
    names = [rf"{re.escape(name)}(-\d.*)?" for name in repository["legacy_packages"]]
    packages = sorted(package for package in host["packages"] if any(re.fullmatch(name, package) for name in names))
    return files + [path for path in _brought_by(packages, entries) if path not in files], packages


def _brought_by(packages: list[str], entries: list[dict]) -> list[str]:
    """Name the source files that have nothing but repositories which lie in these packages themselves."""
    inside = tuple(f"file:///var/{name}" for name in packages) or ("nowhere",)
    urls = [(entry["file"], url or "") for entry in entries for url in entry.get("uris") or [entry.get("url")]]
    others = {path for path, url in urls if not url.startswith(inside)}
    return sorted({path for path, _url in urls} - others)


def apt_proxy(repository: dict | None) -> str | None:
    """Return the text that has apt reach the repository through a proxy; nothing where it needs none."""
    name = urlsplit(repository["url"]).hostname if repository else None
    # A mirror on the host itself is reached through nothing.
    if repository is None or not repository["proxy"] or not name:
        return None
    lines = [f'Acquire::{scheme}::Proxy::{name} "{repository["proxy"]}";\n' for scheme in ("http", "https")]
    return f"// Written by Ansible collection gpufleet.hosts.\n{''.join(lines)}"


def apt_last(names: list[str]) -> str:
    """Return the preference of apt's by which the repository comes last for packages of these names."""
    return f"Package: {' '.join(names)}\nPin: release o=NVIDIA\nPin-Priority: 100\n"


def is_ours(host: dict, repository: dict) -> bool:
    """Tell whether our own entry is there."""
    return _content(host, _ENTRY_FILES[repository["type"]]) is not None


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


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1) if found else ""


def _content(host: dict, path: str) -> str | None:
    return (host["files"].get(path) or {}).get("content")
