# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetch a repository's signing key, and accept it only by its fingerprint or by the digest of its file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ansible.module_utils.urls import open_url

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import key_trust, openpgp

_PROXIES = ("http_proxy", "https_proxy")


class SigningKeyError(key_trust.KeyTrustError):
    """The key could not be fetched, or is not the expected one."""


def fetch(url: str, trust: str, proxy: str | None = None, timeout: int = 30) -> bytes:
    """Return what is trusted of the key file at an address; refuse any other file."""
    wanted, shown = key_trust.normalized(trust), addresses.masked(url)
    try:
        with _through(proxy):
            data = open_url(url, timeout=timeout).read(key_trust.LARGEST)
    except Exception as error:  # urllib has many, and each is the same to the user
        raise SigningKeyError(
            f"The repository's key could not be fetched from {shown}: {addresses.masked(str(error))}. "
            "Check the address, the proxy and the network, or name a mirror."
        ) from error
    try:
        trusted = key_trust.covered(data, wanted)
        found = openpgp.fingerprints(data if trusted is None else trusted)
    except openpgp.KeyFileError as error:
        raise SigningKeyError(f"{shown} is no public key: {error}.") from error
    if trusted is None:
        raise SigningKeyError(_refusal(data, wanted, shown, found))
    return trusted


def _refusal(data: bytes, wanted: str, shown: str, found: list[str]) -> str:
    """Say why a key is not trusted, with everything that helps to find out who changed it."""
    served, bare = key_trust.digest(data), key_trust.digest(key_trust.without_version(data))
    end = "It is not trusted and was not written. Find out who changed it before you change the"
    if key_trust.is_digest(wanted):
        seen = served if served == bare else f"{served}, without its Version lines {bare},"
        return (
            f"The key file at {shown} has the digest {seen} and not {wanted}. It holds the key with the fingerprint "
            f"{', '.join(found)}. {end} digest."
        )
    if f"sha256:{wanted.lower()}" in (served, bare):
        return (
            f"{wanted} is not the fingerprint of the key at {shown} but the digest of its file. Write it as "
            f"sha256:{wanted.lower()}."
        )
    return f"The key at {shown} has the fingerprint {', '.join(found)} and not {wanted}. {end} fingerprint."


@contextmanager
def _through(proxy: str | None) -> Iterator[None]:
    """Set the proxy for the time of one request: what the process starts later reaches its servers as ever."""
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
