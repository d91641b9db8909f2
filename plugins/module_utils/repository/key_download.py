# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Download the signing key of a repository and check its fingerprint or the digest of its file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ansible.module_utils.urls import open_url

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust, openpgp

_PROXIES = ("http_proxy", "https_proxy")


class SigningKeyError(key_trust.KeyTrustError):
    """The key could not be downloaded, or is not the expected key."""


def fetch(
    url: str, trust: str, proxy: str | None = None, timeout: int = 30, *, login: tuple[str, str] | None = None
) -> bytes:
    """Download a key file and return its trusted part. Raise an error for any other file.

    `login` has the user name and the password for the URL. The URL of the proxy may contain a login.
    """
    username, password = login if login and login[0] else (None, None)
    expected, shown = key_trust.normalized(trust), addresses.masked(url)
    try:
        with _through(proxy):
            data = open_url(
                url,
                timeout=timeout,
                url_username=username,
                url_password=password,
                force_basic_auth=True,
                # A redirect to another server must not receive the login.
                unredirected_headers=["Authorization"],
            ).read(key_trust.LARGEST)
    except Exception as error:  # urllib raises many types, which mean the same to the user.
        raise SigningKeyError(
            f"The key of the repository could not be downloaded from {shown}: {addresses.masked(str(error))}. "
            "Nothing was changed. Check the URL, the proxy and the network, or set another URL."
        ) from error
    return trusted_part(data, expected, shown)


def trusted_part(data: bytes, expected: str, shown: str) -> bytes:
    """Return the trusted part of a key file. Raise an error for any other file.

    `expected` is a normalized fingerprint or digest. `shown` is the place of the file for messages, without a login.
    """
    try:
        trusted = key_trust.covered(data, expected)
        found = openpgp.fingerprints(data if trusted is None else trusted)
    except openpgp.KeyFileError as error:
        raise SigningKeyError(f"{shown} is not a public key: {error}.") from error
    if trusted is None:
        raise SigningKeyError(_refusal(data, expected, shown, found))
    return trusted


def _refusal(data: bytes, expected: str, shown: str, found: list[str]) -> str:
    """Return the message for a key file that is not the expected one."""
    served, bare = key_trust.digest(data), key_trust.digest(key_trust.without_version(data))
    end = "The key was not written. Find out why it has changed before you change the expected"
    if key_trust.is_digest(expected):
        seen = served if served == bare else f"{served}, without its Version lines {bare},"
        return (
            f"The key file at {shown} has the digest {seen} instead of {expected}. It contains the key with the "
            f"fingerprint {', '.join(found)}. {end} digest."
        )
    if f"sha256:{expected.lower()}" in (served, bare):
        return (
            f"{expected} is the digest of the file at {shown}, not the fingerprint of its key. Set it as "
            f"sha256:{expected.lower()}."
        )
    if expected in found:
        return (
            f"The key file at {shown} contains the keys {', '.join(found)} instead of only {expected}. The key was not "
            f"written. If you trust all of these keys, set the digest of the file instead of a fingerprint: {served}."
        )
    return f"The key at {shown} has the fingerprint {', '.join(found)} instead of {expected}. {end} fingerprint."


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
