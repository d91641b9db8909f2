# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Definitions of package repositories: the options of a module, and their validation before any change."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import (
    key_trust,
    repository_variables,
    role_file_paths,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import proxy_and_logins as repository_access

# The argument_spec of one repository.
OPTIONS: dict[str, dict[str, Any]] = {
    "name": {"type": "str", "required": True},
    "description": {"type": "str"},
    "url": {"type": "str", "required": True},
    "key": {"type": "str", "required": True, "no_log": False},
    "fingerprint": {"type": "str", "required": True, "no_log": False},
    "suite": {"type": "str"},
    "components": {"type": "list", "elements": "str"},
    "priority": {"type": "int"},
    "module_hotfixes": {"type": "bool"},
    "signed": {"type": "str", "choices": ["packages", "metadata"]},
    "username": {"type": "str"},
    "password": {"type": "str", "no_log": True},
    "proxy": {"type": "str"},
    "proxy_username": {"type": "str"},
    "proxy_password": {"type": "str", "no_log": True},
    "replaces": {"type": "list", "elements": "path"},
}
# The options that only some package managers know.
_ONLY = {"suite": ("apt",), "components": ("apt",), "module_hotfixes": ("dnf",), "signed": ("dnf",)}
_URLS = ("url", "key", "proxy")
_FORMS = {
    "name": (r"[A-Za-z0-9][A-Za-z0-9_.-]*", "Use letters, digits, -, _ and ., and start with a letter or a digit."),
    "description": (r"\S(?:.*\S)?", "Write one line of text."),
    "url": (
        repository_variables.URL,
        "Set an http, https, ftp or file URL without spaces, quotes or backslashes, for example "
        "https://mirror.example/cuda.",
    ),
    "key": (
        rf"{repository_variables.URL}|/[^/].*",
        "Set an http, https, ftp or file URL, or the absolute path of a file on the host.",
    ),
    "suite": (
        r"/|[A-Za-z0-9_.~+$()-][A-Za-z0-9_.~+$()/-]*",
        "Set a suite, for example stable, or a path that ends with a slash.",
    ),
    "proxy": (
        repository_variables.PROXY,
        "Set an http or https URL without a path, such as http://proxy.example:3128.",
    ),
}
_COMPONENT = r"[A-Za-z0-9][A-Za-z0-9_.+/-]*"
# apt reserves the limits of its range, and rejects 0.
_PRIORITIES = {"apt": (-32767, 32766), "dnf": (1, 2**31 - 1), "zypper": (1, 2**31 - 1)}
# `replaces` removes files, so it accepts only the usual files of a repository and its key.
_REPLACED = (".asc", ".gpg", ".list", ".repo", ".sources")


class RepositoryError(Exception):
    """A definition is not valid, or its files could not be read or written. The message contains no login."""


@dataclasses.dataclass(frozen=True)
class Repository:
    """A signed repository. `name` is the stem of its files and the ID of its entry.

    `key` is the URL or the absolute path of the file with its signing keys. `trust` is the key's full fingerprint, or
    `sha256:` with the digest of the key file. The login is used for the repository, and for a key on the same server.
    """

    name: str
    url: str
    key: str
    trust: str
    # dnf and zypper show the description. Empty: the name.
    description: str = ""
    # apt: the suite, or a path that ends with a slash. Components belong to a suite.
    suite: str = "/"
    components: tuple[str, ...] = ()
    # dnf and zypper: lower numbers come first. apt: higher numbers come first, for all repositories on the server.
    priority: int | None = None
    # dnf: packages of the repository are visible although a module has the same names.
    module_hotfixes: bool = False
    # dnf: what the key signs: every package, or the metadata, which contains the digests of all packages.
    signed: str = "packages"
    username: str = ""
    password: str = ""
    proxy: str = ""
    proxy_username: str = ""
    proxy_password: str = ""
    # Files of earlier setups of the repository, which are removed.
    replaces: tuple[str, ...] = ()

    @property
    def access(self) -> repository_access.RepositoryAccess:
        """How the repository is reached."""
        return repository_access.access(dataclasses.asdict(self))


def read(options: Sequence[Mapping[str, Any]], manager: str) -> list[Repository]:
    """Return the repositories that a module's options define. Raise RepositoryError for the first problem."""
    found = []
    for number, given in enumerate(options):
        place = f"repositories[{number}]"
        problem = _problem(given, manager, place)
        if problem:
            raise RepositoryError(problem)
        try:
            trust = key_trust.normalized(str(given["fingerprint"]))
        except key_trust.KeyTrustError as error:
            raise RepositoryError(f"{place}.{error}") from error
        found.append(_repository(given, trust))
    conflict = _conflict(found, manager)
    if conflict:
        raise RepositoryError(conflict)
    return found


def _repository(given: Mapping[str, Any], trust: str) -> Repository:
    values = {name: given[name] for name in OPTIONS if name != "fingerprint" and given.get(name)}
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return Repository(**{**values, **lists}, trust=trust)


# --- one definition ---------------------------------------------------------------------------------------------


def _problem(given: Mapping[str, Any], manager: str, place: str) -> str | None:
    """Return what is wrong with one definition, or None."""
    for name, option in OPTIONS.items():
        if option.get("required") and not given.get(name):
            return f"{place}.{name} is missing. Set name, url, key and fingerprint of every repository."
        if given.get(name) and manager not in _ONLY.get(name, (manager,)):
            return f"{place}.{name} is set, but {manager} does not support {name}. Omit it."
    return (
        _form_problem(given, place)
        or _login_problem(given, place)
        or (_suite_problem(given, place) if manager == "apt" else None)
        or _value_problem(given, manager, place)
    )


def _form_problem(given: Mapping[str, Any], place: str) -> str | None:
    for name in _URLS:
        url = str(given.get(name) or "")
        if url_logins.without_login(url) != url:
            login = "proxy_username and proxy_password" if name == "proxy" else "username and password"
            return (
                f"{place}.{name} is {url_logins.refused(url)}, but a URL must not contain a login. Remove the login "
                f"from the URL, and set {login}."
            )
    for name, (form, remedy) in _FORMS.items():
        text = str(given.get(name) or "")
        if text and not (re.fullmatch(form, text) and text.isprintable() and (name not in _URLS or _is_url(text))):
            return f"{place}.{name} is {url_logins.refused(text)!r}, which is not valid. {remedy}"
    return None


def _is_url(text: str) -> bool:
    """Return whether the host and the port of a URL are valid."""
    try:
        return urlsplit(text).port != 0
    except ValueError:
        return False


def _login_problem(given: Mapping[str, Any], place: str) -> str | None:
    for kind, url in (("", "url"), ("proxy_", "proxy")):
        username, password = (str(given.get(f"{kind}{part}") or "") for part in ("username", "password"))
        problem = repository_access.login_problem(f"{place}.{kind}", username, password)
        if problem:
            return problem
        address = str(given.get(url) or "")
        if username and (not address or address.startswith("file:")):
            return (
                f"{place}.{kind}username is set, but {place}.{url} is {address or 'not set'}. Set the URL of a server, "
                "or remove the login."
            )
    return None


def _suite_problem(given: Mapping[str, Any], place: str) -> str | None:
    suite, components = str(given.get("suite") or "/"), given.get("components") or []
    wrong = next((name for name in components if not re.fullmatch(_COMPONENT, name)), None)
    if wrong is not None:
        return f"{place}.components contains {wrong!r}, which is not valid. Set names such as main."
    if suite.endswith("/") and components:
        return (
            f"{place}.components is {', '.join(components)}, but a suite that ends with a slash ({suite}) has no "
            "components. Set another suite, or remove the components."
        )
    if not suite.endswith("/") and not components:
        return (
            f"{place}.suite is {suite}, but {place}.components is not set. Set the components. If the suite is a "
            "path, end it with a slash."
        )
    return None


def _value_problem(given: Mapping[str, Any], manager: str, place: str) -> str | None:
    if manager != "dnf" and re.search("[?#]", given["url"]):
        # zypper's parameters follow a question mark, and apt appends its paths.
        shown = url_logins.plain(given["url"])
        return f"{place}.url is {shown}, but {manager} does not support a URL with ? or #. Remove this part."
    priority = given.get("priority")
    lowest, highest = _PRIORITIES[manager]
    if priority is not None and (not lowest <= priority <= highest or priority == 0):
        zero = ", except 0" if lowest < 0 else ""
        return (
            f"{place}.priority is {priority}, which is not valid for {manager}. Set a number from {lowest} to "
            f"{highest}{zero}."
        )
    for path in given.get("replaces") or []:
        if not os.path.isabs(path) or os.path.normpath(path) != path or not path.endswith(_REPLACED):
            return (
                f"{place}.replaces contains {path!r}, which is not the absolute path of a repository or key file. Set "
                f"paths without .. that end with {', '.join(_REPLACED)}."
            )
    return None


# --- all definitions --------------------------------------------------------------------------------------------


def _conflict(found: list[Repository], manager: str) -> str | None:
    """Return which definitions conflict with each other, or None."""
    for number, repository in enumerate(found):
        place = f"repositories[{number}]"
        for earlier, other in enumerate(found[:number]):
            first = f"repositories[{earlier}]"
            if repository.name == other.name:
                return f"{place}.name is {other.name}, like that of {first}. Set another name, or remove one of them."
            if _location(repository) == _location(other):
                return (
                    f"{place}.url is {url_logins.plain(repository.url)}, like that of {first} ({other.name}). Define "
                    "each repository once."
                )
            shared = _shared(repository, other) if manager == "apt" else None
            if shared:
                return (
                    f"{place} ({repository.name}) and {first} ({other.name}) have different values of {shared}, but "
                    "apt supports only one for each server. Set the same values."
                )
    written = {
        path(one.name, manager)
        for one in found
        for path in (role_file_paths.repository_entry, role_file_paths.repository_key)
    }
    for number, repository in enumerate(found):
        clash = next((path for path in repository.replaces if path in written), None)
        if clash:
            return (
                f"repositories[{number}].replaces contains {clash}, which a defined repository uses. Remove this path."
            )
    return None


def _location(repository: Repository) -> tuple[str, str]:
    # apt: the suites of an archive have one URL.
    return repository.url.rstrip("/"), repository.suite


def _shared(one: Repository, other: Repository) -> str | None:
    """Return the options that must be equal because apt applies them to a server, but differ. None if none differ."""
    server = urlsplit(one.url).hostname
    if server != urlsplit(other.url).hostname:
        return None
    if one.priority != other.priority:
        return "priority"
    # A repository on the host itself uses no proxy.
    if server and one.proxy != other.proxy:
        return "proxy"
    return None
