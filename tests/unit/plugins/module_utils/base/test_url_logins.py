# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages do not contain the logins of mirrors and proxies."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import offers as packages_offers
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_download

LOGIN = "https://user:s3cret@mirror.example/cuda"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LOGIN, "https://...@mirror.example/cuda"),
        (f"from {LOGIN} and http://t0ken@p.example: no",
         "from https://...@mirror.example/cuda and http://...@p.example: no"),
        ("http://u:a/b@c@p.example:3128/", "http://...@p.example:3128/"),
        ("https://m.example/x?proxy=http%3A%2F%2Fu%3As3cret%40p.example&a=1",
         "https://m.example/x?proxy=http%3A%2F%2F...%40p.example&a=1"),
        ("https://m.example/x?proxy=http%3A//u%3As3cret%40p.example&a=1",
         "https://m.example/x?proxy=http%3A//...%40p.example&a=1"),
        ("https://m.example/x?proxy=p.example&proxyuser=u&proxypass=s3cret&a=1",
         "https://m.example/x?proxy=p.example&proxyuser=...&proxypass=...&a=1"),
        ("https://m.example/%40scope", "https://m.example/%40scope"),
        ("https://mirror.example/cuda", "https://mirror.example/cuda"),
        ("systemd unit a@b.service of root@host", "systemd unit a@b.service of root@host"),
    ],
)  # fmt: skip
def test_logins_are_masked(text, expected):
    assert url_logins.masked(text) == expected


def test_errors_contain_no_login(monkeypatch):
    def run(_argv):
        return 1, "", f"E: Failed to fetch {LOGIN}/x"

    def open_url(url, **_more):
        raise OSError(f"no way to {url}")

    monkeypatch.setattr(key_download, "open_url", open_url)
    for call in (
        lambda: packages_offers.read("dnf", ["x"], run),
        lambda: key_download.fetch(LOGIN, "0" * 40),
    ):
        with pytest.raises(Exception, match=r"https://\.\.\.@mirror\.example/cuda") as raised:
            call()
        assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([LOGIN, None, ""], {"user:s3cret"}),
        ([LOGIN, "http://t0ken@p.example:3128"], {"user:s3cret", "t0ken"}),
        (["https://mirror.example/cuda", "http://@p.example", "https://p.example/a@b"], set()),
    ],
)
def test_logins_of_module_arguments(given, expected):
    assert url_logins.logins(*given) == expected
