# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from urllib.error import HTTPError, URLError

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import (
    download_retries,
    key_download,
    key_trust,
    openpgp,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.transaction_samples import KEY

URL = "https://keys.example/key.asc"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # apt
        ("Err:1 http://m stable InRelease\n  Could not resolve 'm'\n", True),
        ("  Temporary failure resolving 'archive.example'\n", True),
        ("  Could not connect to m:80 (192.0.2.1). - connect (111: Connection refused)\n", True),
        ("  429  Too Many Requests [IP: 192.0.2.1 80]\n", True),
        ("  503  Service Unavailable [IP: 192.0.2.1 80]\n", True),
        ("E: Failed to fetch http://m/p.deb  503  Service Unavailable [IP: 192.0.2.1 80]\n", True),
        ("E: Failed to fetch http://m/p.deb  Hash Sum mismatch\n", True),
        ("  File has unexpected size (5 != 6). Mirror sync in progress? [IP: 192.0.2.1 80]\n", True),
        ("  Could not connect to m:80 (192.0.2.1), connection timed out\n", True),
        ("  Error reading from server. Remote end closed connection [IP: 192.0.2.1 80]\n", True),
        ("  Cannot initiate the connection to m:80 (::1). - connect (101: Network is unreachable)\n", True),
        ("  404  Not Found [IP: 192.0.2.1 503]\n", False),
        ("  403  Forbidden [IP: 192.0.2.1 80]\n", False),
        ("  401  Unauthorized [IP: 192.0.2.1 80]\n", False),
        ("W: GPG error: http://m stable InRelease: ... NO_PUBKEY 503ABC\n", False),
        ("E: The repository 'http://m stable InRelease' is not signed.\n", False),
        ("E: Unable to locate package tool503\n", False),
        ("E: Version '5.503' for 'tool' was not found\n", False),
        # dnf
        ("  - Curl error (6): Couldn't resolve host name for http://m/repomd.xml [Could not resolve host: m]\n", True),
        ("  - Curl error (7): Couldn't connect to server for http://m/repomd.xml [Connection refused]\n", True),
        ("  - Curl error (28): Timeout was reached for http://m/repomd.xml [Operation too slow.]\n", True),
        ("  - Curl error (56): Failure when receiving data from the peer for http://m/repomd.xml []\n", True),
        (
            "  - Curl error (6): Couldn't resolve host name for https://m:404/gpg [no host]\n",
            True,
        ),
        ("  - Status code: 503 for http://m/repodata/repomd.xml (IP: 192.0.2.1)\n", True),
        ("  - Status code: 429 for http://m/repodata/repomd.xml (IP: 192.0.2.1)\n", True),
        ("  - Downloading successful, but checksum doesn't match. Calculated: 1 Expected: 2\n", True),
        ("  - Status code: 404 for http://m/repodata/repomd.xml (IP: 192.0.2.1)\n", False),
        ("  - Status code: 403 for http://m/503/repomd.xml (IP: 192.0.2.1)\n", False),
        ("Error: Failed to download metadata for repo 'x': GPG verification is enabled, but GPG signature is", False),
        ("  - Curl error (60): SSL peer certificate or SSH remote key was not OK for https://m\n", False),
        # zypper
        ("   Error code: Connection failed\n   Error message: Could not resolve host: m\n", True),
        ("   Error code: HTTP response: 503\n", True),
        (" - Location 'http://m/repodata/repomd.xml' is temporarily unaccessible.\n", True),
        ("   Error message: The requested URL returned error: 502\n", True),
        ("   Error code: HTTP response: 404\n   Error message: The requested URL returned error: 404\n", False),
        ("Signature verification failed for file 'repomd.xml' from repository 'x'.\n", False),
        # Python
        (str(URLError("[Errno -2] Name or service not known")), True),
        (str(URLError("[Errno 111] Connection refused")), True),
        (str(HTTPError(URL, 503, "Service Unavailable", {}, None)), True),  # type: ignore[arg-type]
        (str(HTTPError(URL, 404, "Not Found", {}, None)), False),  # type: ignore[arg-type]
        (str(URLError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")), False),
        ("", False),
    ],
)
def test_what_can_pass_by_itself(text: str, expected: bool) -> None:
    assert download_retries.is_transient(text) is expected


class Clock:
    """A clock that only tries and pauses move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.mark.parametrize(
    ("results", "duration", "tries"),
    [
        (["ok"], 1, 1),
        (["Connection refused", "ok"], 1, 2),
        (["Connection refused"] * 9, 1, 3),
        (["Connection refused", "404  Not Found"], 1, 2),
        (["404  Not Found"], 1, 1),
        # The third try would begin after more than a minute.
        (["Connection refused"] * 9, 23, 3),
        (["Connection refused"] * 9, 24, 2),
        (["Connection refused"] * 9, 70, 1),
    ],
)
def test_three_tries_in_a_minute(results: list[str], duration: float, tries: int) -> None:
    clock, given = Clock(), iter(results)

    def attempt() -> str:
        clock.now += duration
        return next(given)

    result, number = download_retries.Retries(clock, clock.sleep).run(attempt, lambda text: text)
    assert (result, number) == (results[tries - 1], tries)
    assert len(clock.pauses) == tries - 1


def test_what_failed_three_times_is_not_tried_again() -> None:
    clock = Clock()
    tried = download_retries.Retries(clock, clock.sleep)
    dead = "Could not connect to dead:80. - connect (111: Connection refused) after 3 ms"
    assert tried.run(lambda: dead, str)[1] == 3
    # The next command reads the same repositories.
    assert tried.run(lambda: dead.replace("3 ms", "9 ms"), str)[1] == 1
    results = iter([f"{dead}\n503  Service Unavailable", dead])
    assert tried.run(lambda: next(results), str) == (dead, 2)


@pytest.mark.parametrize(
    ("failures", "asked", "end"),
    [
        ([URLError("[Errno -3] Temporary failure in name resolution")], 2, ""),
        ([HTTPError(URL, 503, "Service Unavailable", {}, None)] * 3, 3, "Service Unavailable. Tried 3 times."),  # type: ignore[arg-type]
        (
            [HTTPError(URL, 503, "Service Unavailable", {}, None), HTTPError(URL, 404, "Not Found", {}, None)],  # type: ignore[arg-type]
            2,
            "Not Found. Tried 2 times.",
        ),
        ([HTTPError(URL, 404, "Not Found", {}, None)], 1, "Not Found."),  # type: ignore[arg-type]
    ],
)
def test_the_download_of_a_key(monkeypatch, failures: list[Exception], asked: int, end: str) -> None:  # type: ignore[no-untyped-def]
    clock, left, urls = Clock(), list(failures), []

    def open_url(url: str, **_options: object) -> object:
        urls.append(url)
        if left:
            raise left.pop(0)
        return type("Response", (), {"read": lambda *_size: KEY})()

    monkeypatch.setattr(key_download, "open_url", open_url)
    tried = download_retries.Retries(clock, clock.sleep)
    if end:
        with pytest.raises(key_trust.SigningKeyError) as error:
            key_download.fetch(URL, openpgp.fingerprints(KEY)[0], retries=tried)
        assert f"{end} Nothing was changed." in str(error.value)
    else:
        assert key_download.fetch(URL, openpgp.fingerprints(KEY)[0], retries=tried)
    assert len(urls) == asked
