# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read apt's sources and mirror lists, and add components to the entries of the distribution's archive.

The functions read and return the text of files in the one-line format (``*.list``) or the deb822 format
(``*.sources``). They change only the components, and keep comments, options, order, spacing and line ends.
"""

from __future__ import annotations

import os
import re
from typing import Callable, NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import (
    login_digests,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import apt_list_names

# The pockets of a release: suffixes of the codename in a suite.
_POCKETS = ("", "-updates", "-security", "/updates", "-backports", "-backports-sloppy", "-proposed-updates")
_ALIASES = ("stable", "oldstable", "oldoldstable", "testing")
_FILE_NAME = re.compile(r"^[A-Za-z0-9_.-]+$")
_ONE_LINE = re.compile(
    r"^(?P<indent>\s*)(?P<type>deb|deb-src)(?P<gap>\s+)(?:\[(?P<options>[^\]]*)\]\s*)?"
    r"(?P<uri>\S+)\s+(?P<suite>\S+)(?P<components>(?:[ \t]+[^\s#]+)*)(?P<rest>[ \t]*(?:#.*)?)$"
)
_FIELD = re.compile(r"^(?P<name>[!-9;-~]+)[ \t]*:(?P<value>.*)$")
# The URL at the beginning of a line in a mirror list.
_LIST_LINE = re.compile(r"^\s*([a-z][a-z0-9+.-]*:/[^\s#]*)", re.MULTILINE)

Origin = Callable[[str, str], "str | None"]


class Archive(NamedTuple):
    """How to recognize the entries of a distribution's archive."""

    name: str
    # `Origin` in its Release files, and a part of the path of its keys.
    origin: str
    keyring: str
    domain: str
    # The last parts of the URLs of its mirrors, proxy caches and mirror lists.
    folders: tuple[str, ...]


_ARCHIVES = {
    "debian": Archive("Debian", "Debian", "debian-archive", "debian.org", ("debian", "debian-security")),
    "ubuntu": Archive("Ubuntu", "Ubuntu", "ubuntu-archive", "ubuntu.com", ("ubuntu", "ubuntu-ports")),
}


class AptSourcesError(Exception):
    """The sources contain no usable entry."""


def read_files(root: str = "/") -> dict[str, str]:
    """Return the text of every source file that apt reads, by path."""
    base = os.path.join(root, "etc/apt")
    names = ["sources.list"]
    try:
        parts = sorted(os.listdir(os.path.join(base, "sources.list.d")))
    except OSError:
        parts = []
    names += [
        f"sources.list.d/{name}" for name in parts if name.endswith((".list", ".sources")) and _FILE_NAME.match(name)
    ]
    files = {f"/etc/apt/{name}": _read(os.path.join(base, name)) for name in names}
    return {path: text for path, text in files.items() if text is not None}


def restored(files: dict[str, str], changes: list[dict]) -> dict[str, str]:
    """Return the previous text of the files that still have the text of the change.

    In the changes, digests replace the logins. The logins come from the current files.
    """
    found = {}
    for change in changes:
        current = files.get(change["path"])
        if current is not None and change["after"] in (current, login_digests.sealed(current)):
            found[change["path"]] = login_digests.unsealed(change["before"], current)
    return {path: text for path, text in found.items() if text != files[path]}


def parse(path: str, text: str) -> list[dict]:
    """Return the entries of a file, with their line numbers."""
    return _parse_deb822(path, text) if path.endswith(".sources") else _parse_one_line(path, text)


def is_distribution(
    entry: dict, codename: str, arch: str | None = None, origin: Origin | None = None, *, family: str = "debian"
) -> bool:
    """Return whether an entry is an enabled binary entry of the archive of Debian or Ubuntu for this release.

    If apt has downloaded the entry, the recorded ``origin`` decides. Otherwise, the URL, the suite, the component
    ``main`` and the signing key must match.
    """
    if not entry["enabled"] or "deb" not in entry["types"] or "main" not in entry["components"]:
        return False
    architectures = entry["architectures"]
    if arch and architectures and arch not in architectures:
        return False
    suites = {f"{name}{pocket}" for name in (codename, *_ALIASES) for pocket in _POCKETS}
    if not entry["suites"] or not set(entry["suites"]) <= suites:
        return False
    recorded = {origin(uri, suite) for uri in entry["uris"] for suite in entry["suites"]} if origin else set()
    recorded.discard(None)
    if recorded:
        return recorded == {_ARCHIVES[family].origin}
    signed_by = entry["signed_by"]
    if signed_by and _ARCHIVES[family].keyring not in signed_by:
        return False
    return all(_looks_like(_ARCHIVES[family], uri) for uri in entry["uris"])


def missing_components(
    entries: list[dict],
    wanted: list[str],
    codename: str,
    arch: str | None = None,
    origin: Origin | None = None,
    *,
    family: str = "debian",
) -> list[str]:
    """Return the wanted components that are missing in at least one suite of the archive, in the given order."""
    own = [entry for entry in entries if is_distribution(entry, codename, arch, origin, family=family)]
    present = _components_by_suite(own, entries)
    return [component for component in wanted if any(component not in names for names in present.values())]


def add_components(
    files: dict[str, str],
    wanted: list[str],
    codename: str,
    arch: str | None = None,
    origin: Origin | None = None,
    *,
    family: str = "debian",
) -> dict[str, str]:
    """Return the new text of each file that must change so that every entry of the archive has the wanted components.

    A component that another entry for the same archive and suite has is not added again, because apt would warn about a
    target that is configured twice.
    """
    entries = [entry for path, text in files.items() for entry in parse(path, text)]
    own = [entry for entry in entries if is_distribution(entry, codename, arch, origin, family=family)]
    if not own:
        archive, searched = _ARCHIVES[family], ", ".join(files) or "no source files"
        raise AptSourcesError(
            f"/etc/apt has no enabled entry of the {archive.name} archive for {codename} with the component main "
            f"(searched: {searched}). Add an entry, for example 'deb http://m.example.org/{archive.folders[0]} "
            f"{codename} main', or use another driver source."
        )
    present = _components_by_suite(own, entries)
    additions: dict[str, list[tuple[dict, list[str]]]] = {}
    for entry in own:
        targets = _targets(entry)
        missing = [name for name in wanted if any(name not in present[target] for target in targets)]
        if missing:
            additions.setdefault(entry["file"], []).append((entry, missing))
            for target in targets:
                present[target].update(missing)
    return {path: _insert(files[path], changes) for path, changes in additions.items()}


def recorded_origin(root: str = "/", run: apt_list_names.Run | None = None) -> Origin:
    """Return a function that returns the ``Origin`` in the Release file that apt downloaded for a URL and a suite.

    Before the first download, the URLs in a mirror list on the host count. `run` asks apt for the names of the files of
    sources without a web server, such as mirror lists and directories.
    """
    place = os.path.join(root, "var/lib/apt/lists")
    lists = apt_list_names.AptLists(run)

    def origin(uri: str, suite: str) -> str | None:
        stem = lists.stem(uri, suite)
        for name in (f"{stem}InRelease", f"{stem}Release"):
            try:
                with open(os.path.join(place, name), encoding="utf-8", errors="replace") as handle:
                    for line in handle:
                        if line.startswith("Origin:"):
                            return line.partition(":")[2].strip()
                        if line.startswith(("MD5Sum:", "SHA256:")):
                            break
            except OSError:
                continue
        return _origin_of(mirrors(uri, root))

    return origin


def mirrors(uri: str, root: str = "/") -> list[str]:
    """Return the URLs in a mirror list on the host. apt names them in its messages instead of the list."""
    path = re.sub(r"^mirror\+file:/+", "/", uri)
    text = read_text(root, path) if path != uri else ""
    return [found.rstrip("/") for found in _LIST_LINE.findall(text or "")]


def _origin_of(urls: list[str]) -> str | None:
    """Return the ``Origin`` of the archive that all URLs of a mirror list look like, or None."""
    return next((one.origin for one in _ARCHIVES.values() if urls and all(_looks_like(one, uri) for uri in urls)), None)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as handle:
            return handle.read()
    except OSError:
        return None


def _looks_like(archive: Archive, uri: str) -> bool:
    host = re.match(r"^[a-z+]+://(?:[^/@]*@)?([^/:]+)", uri)
    if host and f".{host.group(1)}".endswith(f".{archive.domain}"):
        # Other archives of the same organization have other folders, for example esm.ubuntu.com/apps/ubuntu.
        return archive.name == "Debian" or re.search(r"//[^/]+/(ubuntu|ubuntu-ports)/*$", uri) is not None
    # A mirror, a proxy cache or a mirror list: .../debian, .../debian-security, mirror+file:///etc/apt/mirrors/debian.list
    last = uri.rstrip("/").rpartition("/")[2]
    # PPAs end with the same folder.
    return "launchpad" not in uri and last.removesuffix(".list") in archive.folders


def _targets(entry: dict) -> list[tuple[str, str]]:
    return [(uri.rstrip("/"), suite) for uri in entry["uris"] for suite in entry["suites"]]


def _components_by_suite(own: list[dict], entries: list[dict]) -> dict[tuple[str, str], set[str]]:
    """Return the components of each archive and suite in ``own``. All entries for the same suite count."""
    components: dict[tuple[str, str], set[str]] = {target: set() for entry in own for target in _targets(entry)}
    for entry in entries:
        if entry["enabled"] and "deb" in entry["types"]:
            for target in _targets(entry):
                if target in components:
                    components[target].update(entry["components"])
    return components


def _parse_one_line(path: str, text: str) -> list[dict]:
    entries = []
    for number, raw in enumerate(text.splitlines(), start=1):
        match = _ONE_LINE.match(raw)
        if not match:
            continue
        options = {}
        for option in (match["options"] or "").split():
            name, _sign, value = option.partition("=")
            options[name.rstrip("+-").lower()] = value
        entries.append(
            {
                "file": path,
                "line": number,
                "form": "one-line",
                "enabled": True,
                "types": [match["type"]],
                "uris": [match["uri"]],
                "suites": [match["suite"]],
                "components": match["components"].split(),
                "architectures": [name for name in options.get("arch", "").split(",") if name],
                "signed_by": options.get("signed-by", ""),
            }
        )
    return entries


def _parse_deb822(path: str, text: str) -> list[dict]:
    entries = []
    stanza: dict[str, dict] = {}
    start = 0
    last = None
    lines = text.splitlines()
    for number, raw in enumerate([*lines, ""], start=1):
        if raw.startswith("#"):
            continue
        if not raw.strip():
            if stanza:
                entries.append(_deb822_entry(path, start, stanza))
            stanza, last = {}, None
            continue
        if raw[0] in " \t":
            if last is not None:
                stanza[last]["value"] += " " + raw.strip()
                stanza[last]["last_line"] = number
            continue
        field = _FIELD.match(raw)
        if not field:
            last = None
            continue
        start = number if not stanza else start
        last = field["name"].lower()
        stanza[last] = {"value": field["value"].strip(), "last_line": number}
    return entries


def _deb822_entry(path: str, start: int, stanza: dict[str, dict]) -> dict:
    def words(name: str) -> list[str]:
        return stanza.get(name, {}).get("value", "").split()

    return {
        "file": path,
        "line": start,
        "form": "deb822",
        "enabled": stanza.get("enabled", {}).get("value", "yes").lower() not in ("no", "false", "0", "off", "without"),
        "types": words("types"),
        "uris": words("uris"),
        "suites": words("suites"),
        "components": words("components"),
        "components_line": stanza.get("components", {}).get("last_line", 0),
        "architectures": words("architectures"),
        "signed_by": stanza.get("signed-by", {}).get("value", ""),
    }


def _insert(text: str, changes: list[tuple[dict, list[str]]]) -> str:
    lines = text.splitlines(keepends=True)
    for entry, components in changes:
        index = (entry["components_line"] if entry["form"] == "deb822" else entry["line"]) - 1
        body = lines[index].rstrip("\r\n")
        end = lines[index][len(body) :]
        if entry["form"] == "deb822":
            kept, rest = body.rstrip(), ""
        else:
            match = _ONE_LINE.match(body)
            rest = match["rest"]
            kept = body[: len(body) - len(rest)] if rest else body
            kept, rest = (kept, rest) if rest.strip() else (kept.rstrip(), "")
        lines[index] = f"{kept} {' '.join(components)}{rest}{end}"
    return "".join(lines)


def is_source(path: str) -> bool:
    """Return whether apt reads a file as sources."""
    return path == "/etc/apt/sources.list" or (
        os.path.dirname(path) == "/etc/apt/sources.list.d" and path.endswith((".list", ".sources"))
    )
