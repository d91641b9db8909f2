# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Download the signing key of a repository."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ansible.module_utils.urls import open_url

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.download_retries import Retries, note

_PROXIES = ("http_proxy", "https_proxy")


def fetch(
    url: str,
    trust: str,
    proxy: str | None = None,
    timeout: int = 30,
    *,
    login: tuple[str, str] | None = None,
    retries: Retries | None = None,
) -> bytes:
    """Download a key file and return its trusted part. Raise an error for any other file.

    `login` has the user name and the password for the URL. The URL of the proxy may contain a login.
    """
    username, password = login if login and login[0] else (None, None)
    expected, shown = key_trust.normalized(trust), url_logins.masked(url)

    def attempt() -> bytes | Exception:
        try:
            with _through(proxy):
                return open_url(
                    url,
                    timeout=timeout,
                    url_username=username,
                    url_password=password,
                    force_basic_auth=True,
                    # A redirect to another server must not receive the login.
                    unredirected_headers=["Authorization"],
                ).read(key_trust.LARGEST)
        except Exception as error:  # urllib raises many types, which mean the same to the user.
            return error

    data, tries = (retries or Retries()).run(attempt, lambda found: str(found) if isinstance(found, Exception) else "")
    if isinstance(data, Exception):
        about = ". ".join(filter(None, [url_logins.masked(str(data)), note(tries)])).rstrip(".")
        raise key_trust.SigningKeyError(
            f"The key of the repository could not be downloaded from {shown}: {about}. "
            "Nothing was changed. Check the URL, the proxy and the network, or set another URL."
        ) from data
    return key_trust.trusted_part(data, expected, shown)


@contextmanager
def _through(proxy: str | None) -> Iterator[None]:
    """Set the proxy for one request, without an effect on programs that the process starts later."""
    before = {name: os.environ.get(name) for name in _PROXIES}
    if proxy:
        os.environ.update(dict.fromkeys(_PROXIES, proxy))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
