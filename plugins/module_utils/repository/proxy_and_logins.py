# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the package managers reach a repository: its URL, its proxy, and the logins of both.

Logins are separate variables and never part of a URL, which messages, facts and diffs may show. Only root can read the
files that contain logins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import (
    login_digests,
    url_logins,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import role_file_paths

# The variables of a role, without its prefix.
URLS = ("mirror", "proxy", "key_url", "runfile_url")
_PORTS = {"http": 80, "https": 443}
# dnf's options for logins. dnf has no separate file for them.
_DNF_LOGIN = re.compile(r"^[ \t]*(?:proxy_)?(?:username|password)[ \t]*=.*\n?", re.MULTILINE)


class RepositoryAccess(NamedTuple):
    """How a repository is reached. Empty values stand for no proxy and no login."""

    url: str
    proxy: str = ""
    username: str = ""
    password: str = ""
    proxy_username: str = ""
    proxy_password: str = ""


def access(repository: Mapping[str, Any]) -> RepositoryAccess:
    """Return how a repository is reached from its description."""
    return RepositoryAccess(*(repository.get(name) or "" for name in RepositoryAccess._fields))


# --- the variables of a role --------------------------------------------------------------------------------------


def problem(role: str, settings: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the URLs and the logins of a role's variables, or None. The text has no login."""
    for name in URLS:
        url = str(settings.get(name) or "")
        login = f"{role}_{'proxy' if name == 'proxy' else 'repository'}"
        if url_logins.without_login(url) != url:
            return (
                f"{role}_{name} is {url_logins.refused(url)}, but a URL must not contain a login. Remove the login "
                f"from the URL, and set {login}_username and {login}_password."
            )
    for kind, urls in (("repository", ("mirror", "runfile_url")), ("proxy", ("proxy",))):
        username, password = (str(settings.get(f"{kind}_{part}") or "") for part in ("username", "password"))
        places = [name for name in urls if name in settings]
        found = login_problem(f"{role}_{kind}_", username, password)
        if not found and username and not any(_has_server(settings[name]) for name in places):
            known = " or ".join(f"{role}_{name}" for name in places)
            found = f"{role}_{kind}_username is set without the URL of a server. Set {known}, or remove the login."
        if found:
            return found
    return None


def login_problem(prefix: str, username: str, password: str) -> str | None:
    """Return what is wrong with a login, or None. `prefix` starts the names of its two variables."""
    for one, value, other, needed in (
        ("username", username, "password", password),
        ("password", password, "username", username),
    ):
        if value and not needed:
            return f"{prefix}{one} is set, but {prefix}{other} is not. Set both, or remove {prefix}{one}."
    # Package managers cannot read other values, and in HTTP, a colon ends the user name.
    if not re.fullmatch(r"[^\s:]*", username) or not username.isprintable():
        return f"{prefix}username contains a space, a colon or a control character. Use another user name."
    if not re.fullmatch(r"\S*", password) or not password.isprintable():
        return f"{prefix}password contains a space or a control character. Use another password."
    return None


def _has_server(url: str | None) -> bool:
    return bool(url) and not str(url).startswith("file:")


def is_same_server(url: str, other: str) -> bool:
    """Return whether two URLs have the same scheme, host and port."""
    return _server(url) == _server(other)


def _server(url: str) -> tuple[str, str]:
    scheme, _colon, rest = url.lower().partition("://")
    return scheme, re.sub(f":{_PORTS.get(scheme)}$", "", re.split("[/?#]", rest, maxsplit=1)[0])


def login_for(url: str, settings: Mapping[str, Any]) -> tuple[str, str]:
    """Return user name and password for a file beside the mirror: the mirror's login if it is on the same server.

    Without a mirror, the login belongs to the URL's own server.
    """
    mirror = settings.get("mirror") or url
    names = ("repository_username", "repository_password")
    username, password = (str(settings.get(name) or "") for name in names)
    return (username, password) if is_same_server(url, mirror) else ("", "")


def login_of_mirror(url: str, settings: Mapping[str, Any]) -> tuple[str, str]:
    """Return user name and password for a repository. Only a mirror that the user set gets them, and no directory."""
    is_server = settings["mirror"] and not url.startswith("file:")
    return login_for(url, settings) if is_server else ("", "")


def with_login(url: str, username: str, password: str) -> str:
    """Return a proxy's URL with its login, for programs that read the proxy from the environment."""
    if not url or not username:
        return url
    scheme, _colon, rest = url.partition("://")
    return f"{scheme}://{quote(username, safe='')}:{quote(password, safe='')}@{rest}"


# --- the files of the package managers ----------------------------------------------------------------------------


def apt_proxy(reached: RepositoryAccess) -> str:
    """Return apt's configuration of the proxy, or an empty text."""
    name = urlsplit(reached.url).hostname
    # A mirror on the host itself needs no proxy.
    if not reached.proxy or not name:
        return ""
    return "".join(f'Acquire::{scheme}::Proxy::{name} "{reached.proxy}";\n' for scheme in ("http", "https"))


def apt_logins(reached: RepositoryAccess) -> str:
    """Return the logins for a file in /etc/apt/auth.conf.d, or an empty text.

    Without the scheme, apt would use a login only for https.
    """
    logins = [(reached.url, reached.username, reached.password)]
    # apt uses the first matching line. The line of the repository has a path and does not match the proxy.
    if apt_proxy(reached):
        logins.append((reached.proxy, reached.proxy_username, reached.proxy_password))
    lines = (f"machine {_machine(url)} login {name} password {password}\n" for url, name, password in logins if name)
    return "".join(lines)


def _machine(url: str) -> str:
    # apt compares the address of a server without brackets.
    return url.rstrip("/").replace("[", "").replace("]", "")


def dnf_lines(reached: RepositoryAccess) -> list[str]:
    """Return the lines of an entry for dnf."""
    options = {
        "baseurl": reached.url,
        "username": reached.username,
        "password": reached.password,
        "proxy": reached.proxy,
        "proxy_username": reached.proxy and reached.proxy_username,
        "proxy_password": reached.proxy and reached.proxy_password,
    }
    return [f"{name}={value}" for name, value in options.items() if value]


def zypper_logins(reached: RepositoryAccess) -> str:
    """Return the login of the repository for a file in /etc/zypp/credentials.d, or an empty text."""
    return f"username = {reached.username}\npassword = {reached.password}\n" if reached.username else ""


def zypper_lines(reached: RepositoryAccess, credentials: str) -> list[str]:
    """Return the lines of an entry for zypper. `credentials` is the path or the name of the file with the login.

    zypper reads the proxy's login only from the URL, but shows no `proxypass`. It unquotes this login twice.
    """
    parameters = {"credentials": credentials if reached.username else ""}
    if reached.proxy:
        parameters["proxy"] = reached.proxy
        parameters["proxyuser"] = quote(reached.proxy_username, safe="")
        parameters["proxypass"] = quote(reached.proxy_password, safe="")
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items() if value)
    return ["type=rpm-md", f"baseurl={reached.url}{'?' if query else ''}{query}"]


def sealed_file(path: str, text: str) -> str:
    """Return the text of a repository's file with digests in place of the logins."""
    return login_digests.digest(text) if role_file_paths.is_login(path) else sealed_entry(text)


def sealed_entry(text: str) -> str:
    """Replace the logins in an entry with digests, so that a changed login still changes the text."""
    lines = "".join(found.group() for found in _DNF_LOGIN.finditer(text))
    rest = login_digests.sealed(_DNF_LOGIN.sub("", text))
    return f"{rest}# login: {login_digests.digest(lines)}\n" if lines else rest
