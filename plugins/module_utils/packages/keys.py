# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetch a repository's signing key, and trust it by its fingerprint alone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from ansible.module_utils.urls import open_url

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import openpgp

LARGEST = 1024 * 1024
_PROXIES = ("http_proxy", "https_proxy")


class SigningKeyError(Exception):
    """The key cannot be had, or is not the expected one."""


def normalised(fingerprint: str) -> str:
    """Return a fingerprint as it is compared: in capitals, without blanks. One that is not whole is refused."""
    digits = re.sub(r"\s", "", fingerprint).upper()
    if not re.fullmatch(r"[0-9A-F]{40}|[0-9A-F]{64}", digits):
        raise SigningKeyError(
            f"fingerprint: {digits!r} is not the fingerprint of a key in full, which has 40 or 64 hexadecimal "
            "digits. 'gpg --show-keys' shows it."
        )
    return digits


def fetch(url: str, fingerprint: str, proxy: str | None = None, timeout: int = 30) -> bytes:
    """Return the file at an address if the key with that fingerprint, and no other, is in it."""
    wanted, shown = normalised(fingerprint), addresses.masked(url)
    try:
        with _through(proxy):
            data = open_url(url, timeout=timeout).read(LARGEST)
    except Exception as error:  # urllib has many, and each is the same to the user
        raise SigningKeyError(
            f"The repository's key could not be fetched from {shown}: {addresses.masked(str(error))}. "
            "Check the address, the proxy and the network, or name a mirror."
        ) from error
    try:
        found = openpgp.fingerprints(data)
    except openpgp.KeyFileError as error:
        raise SigningKeyError(f"{shown} is no public key: {error}.") from error
    if found != [wanted]:
        raise SigningKeyError(
            f"The key at {shown} has the fingerprint {', '.join(found)} and not {wanted}. It is not trusted and was "
            "not written. Find out who changed it before you change the fingerprint."
        )
    return data


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
