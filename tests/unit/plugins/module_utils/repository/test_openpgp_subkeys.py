# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Subkeys that the trusted key did not sign. gpg made the keys of the samples."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import file_contents as repository_files
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust, openpgp, openpgp_subkeys
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.repository_options import Repository

# Keys that only certify. Each has an Ed25519 subkey that signs, and ED25519 also has a subkey for encryption.
ED25519 = base64.b64decode(
    "mDMEawqMTRYJKwYBBAHaRw8BAQdA38gJIDZCnx6N/Kro67AbwDABUV60Tv7dChdLroA+iNe0B0VEMjU1MTmIkAQTFggAOBYhBNs74mgxYCEwG7"
    "C83UrlKMCWU8qFBQJrCoxNAhsBBQsJCAcCBhUKCQgLAgQWAgMBAh4BAheAAAoJEErlKMCWU8qFEYEA/ihRN85zn1nr5tRlJfHRtSb6Lnjb7DVx"
    "p7sm/cacpS6BAP497v+FwA4B+DsaBDg0DQb8mdRWgcsw9kV6AcXBqmJNCbgzBGsKjE0WCSsGAQQB2kcPAQEHQGhzdOROR/U0d1e9/csDmKbJD2"
    "m8wTgq0OQm5IYZ6OH5iO8EGBYIACAWIQTbO+JoMWAhMBuwvN1K5SjAllPKhQUCawqMTQIbAgCBCRBK5SjAllPKhXYgBBkWCAAdFiEEbUsFKDvq"
    "drKK1UsjQSdIQtNNehQFAmsKjE0ACgkQQSdIQtNNehQGXQD/XPLQZTFQWyoUbrzL8Pkz/R2weiQgUzZfp/B9b8O4Y7cA/i3B03vaDW8Yznzh+a"
    "B2GUhUwCuHN6ATV5SePI7B5+IPy8sBAPwz3COXAjD8s9R3u8zP5KPnvvac/TxfNYLcvTfui69pAP9GZ82NPAJj4DYm0CiZBUml7gUC9rEaqI8u"
    "6Iku1yOHALg4BGsKjE0SCisGAQQBl1UBBQEBB0BYdwHTKYTjxgS3GPurre9DN0hd2jWn0yRygmmGW40LbAMBCAeIeAQYFggAIBYhBNs74mgxYC"
    "EwG7C83UrlKMCWU8qFBQJrCoxNAhsMAAoJEErlKMCWU8qFmx8A/jkiEJqHxhP/kifJeQxcn4XnuKhUnLVicqke1dcpSpiNAP4lod2cCAdm0jfZ"
    "TqD8rssJ5uNfxACiViMHwFwRtKjbBA=="
)
RSA = base64.b64decode(
    "mI0EawqMTQEEANM3pTth37vHeCh4lRKI6lG2J+S+2qM3FmOS/SxYDLHN2OWHt/15l2VK9iMn9t8IjsliMuL/W3ZVB+IouVJNVnzD/1YjdRVVAW"
    "okx/sSPjTyH2HrudoxhUIgOS7vvRgIIv7t0ToInrU2HTNuWgwjTSowBL836FkAf6q/L1cIVM5dABEBAAG0A1JTQYjOBBMBCgA4FiEEIGkNuuiT"
    "2DjThZMaOOTDn0NthOsFAmsKjE0CGwEFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQOOTDn0NthOtKGAQAzilFh5THqYQDtlncaOW7QxQU0F"
    "yAhta8ndCCw8HcVcBi1x3+xpkfRZsH8d5eubuArLL7OBs+finPJviJIIsHqHxGlHXh+dnwYYzviGXuNJdSEWnZ61g0R+ms4m/n8nOth6Da/ym3"
    "5nK/hZqqbuHrtFahYImdgJMKU20XHs4rt7m4MwRrCoxNFgkrBgEEAdpHDwEBB0BQejQvxN8wM2YTxaB7waOpir1nAAfkL1VUkp07vjL8ookBLQ"
    "QYAQoAIBYhBCBpDbrok9g404WTGjjkw59DbYTrBQJrCoxNAhsCAIEJEDjkw59DbYTrdiAEGRYIAB0WIQTPx1RHca6B3NX4ybkHUbubEjqufgUC"
    "awqMTQAKCRAHUbubEjqufvfHAP4qWccmMp8HFJdAlOzGmf+Va1Dk4XFhNjR7l/IgyHK0LAEAuEfBQ7Or10hJBYPim6jRkPqxpXFaAAlbZfFmZp"
    "0t3gchewP+PWWnqXpyap2ieRGVAXNe/meLQ74zoy5tw+Uafc/XbINhCe1kXm2v1QCjsMVrlILYzSHsp6tAap1iC0F52RYRkoNAWePfmS+Dgzhm"
    "1KzWvIj4BWGZQIih4Y+Zl5D67Xt4OjEDJbEpZDkBn6aoB/ZpQGjzd536hMFdB1uhkgxf/ug="
)
P256 = base64.b64decode(
    "mFIEawqMTRMIKoZIzj0DAQcCAwTpc8SYtxyegCcd9hWn6BJ/h9NVAYl369jkFsAHFV3GnzGqjyQg3oROZV7LQ8nCiGwCcYmPlhNo0I/pg6l6kY"
    "MCtARQMjU2iJAEExMIADgWIQQ7EZT4DUJ+FCPoOEA3bTuMbrgMJgUCawqMTQIbAQULCQgHAgYVCgkICwIEFgIDAQIeAQIXgAAKCRA3bTuMbrgM"
    "Jlq4AP9W/gwx+W3l4ilFEW8nGc9ifFO1glYJpK3JsX6tHYaZJgD+LqLVudNqEW365uqVOQDhjzO4CoU5NpWBtacetBJf9Ri4MwRrCoxNFgkrBg"
    "EEAdpHDwEBB0AaX5wM+SHOw3VQxeZL7OVsSNlc8FzWlmu/xWdYWJ1GeIjvBBgTCAAgFiEEOxGU+A1CfhQj6DhAN207jG64DCYFAmsKjE0CGwIA"
    "gQkQN207jG64DCZ2IAQZFggAHRYhBMcRx5akgpKu5rRQQ1+s09z8Vs/mBQJrCoxNAAoJEF+s09z8Vs/m6nQA/17m9WZ72sS5brt/sgxLqAjIw+"
    "ZXDHzVn60zEttA1BdmAQDLrDvIUWWObmvmn2VnKURlBiylDCkXlLZPD+55F+HsAGXqAQD0LN0tPspW2AF8By3alU4m73Z5PFpVaufSOa2afClY"
    "owD/bZ/rSz0BlFB594VupoZsuQW254Y8TwHpHYpBXzSl4rs="
)


def encoded(packets: list[tuple[int, bytes]]) -> bytes:
    return b"".join(bytes([0xC0 | tag, 255]) + len(body).to_bytes(4, "big") + body for tag, body in packets)


def subkeys(key: bytes) -> list[tuple[int, bytes]]:
    """Return the packets from the first subkey on."""
    found = openpgp.packets_of(key)
    return found[[tag for tag, _body in found].index(openpgp.SUBKEY) :]


def changed(key: bytes, offset: int) -> bytes:
    """Return a key with one changed bit in each signature."""
    return encoded(
        [
            (tag, bytes(octet ^ (index == len(body) + offset) for index, octet in enumerate(body)))
            if tag == openpgp.SIGNATURE
            else (tag, body)
            for tag, body in openpgp.packets_of(key)
        ]
    )


def signer(key: bytes) -> str:
    return openpgp.fingerprint(subkeys(key)[0][1])


UNSIGNED = encoded([packet for packet in openpgp.packets_of(RSA) if packet[0] != openpgp.SIGNATURE])
CASES = [
    (ED25519, None),
    (RSA, None),
    (ED25519 + RSA, None),
    # The subkey of another key, with the signature of that key, and with the trusted key's signature of its own subkey.
    (RSA + encoded(subkeys(ED25519)), ED25519),
    (ED25519 + encoded(subkeys(RSA)), RSA),
    (RSA + encoded([subkeys(ED25519)[0], *subkeys(RSA)[1:]]), ED25519),
    (UNSIGNED, RSA),
    (changed(RSA, -3), RSA),
    (changed(ED25519, -3), ED25519),
    (changed(ED25519, -40), ED25519),
    # The signature covers its own creation time.
    (changed(RSA, 10 - len(subkeys(RSA)[1][1])), RSA),
    # Keys of this curve cannot be verified.
    (P256, P256),
    (encoded(openpgp.packets_of(RSA)[:-1]), RSA),
]


@pytest.mark.parametrize(("key", "of"), CASES)
def test_a_subkey_without_the_signature_of_its_key_is_found(key: bytes, of: bytes | None) -> None:
    assert openpgp_subkeys.unverified(key) == ([] if of is None else [signer(of)])


def test_a_shortened_signature_is_no_signature() -> None:
    *packets, (tag, body) = openpgp.packets_of(RSA)
    for size in range(len(body)):
        assert openpgp_subkeys.unverified(encoded([*packets, (tag, body[:size])])) == [signer(RSA)]


def test_a_key_file_with_a_foreign_subkey_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.asc"
    path.write_bytes(openpgp.armored(RSA + encoded(subkeys(ED25519))))
    wanted = Repository("x", "https://m.example/x", str(path), openpgp.fingerprints(RSA)[0])
    with pytest.raises(key_trust.SigningKeyError, match=f"contains the subkeys {signer(ED25519)} without"):
        repository_files.fetch_key(wanted)
    path.write_bytes(RSA)
    assert repository_files.fetch_key(wanted) == RSA
