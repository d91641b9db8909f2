# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The logins of NVIDIA's repository: which variables are valid, and what the package managers read."""

from __future__ import annotations

import base64
import http.server
import threading

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_download, key_trust
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import proxy_and_logins as repository_access
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.proxy_and_logins import RepositoryAccess

MIRROR, PROXY = "https://m.example/cuda", "http://p.example:3128"
LOGIN = {"repository_username": "robot", "repository_password": "s3cret"}
PROXY_LOGIN = {"proxy_username": "robot", "proxy_password": "s3cret"}
GOOD = [
    {},
    {"mirror": MIRROR, "proxy": PROXY},
    {"mirror": MIRROR, "proxy": PROXY, **LOGIN, **PROXY_LOGIN},
    {"mirror": "https://m.example/a@b", **LOGIN},
    {"mirror": MIRROR, "repository_username": "house\\robot", "repository_password": "a:b@c/%\"'$#"},
    {"mirror": MIRROR, "repository_username": 1001, "repository_password": 2468},
    {"runfile_url": "https://m.example/x.run", **LOGIN},
]


@pytest.mark.parametrize("settings", GOOD)
def test_valid_logins(settings):
    assert repository_access.problem("nvidia_driver", settings) is None


REPOSITORY_VARIABLES = "set nvidia_driver_repository_username and nvidia_driver_repository_password."
BAD = [
    ({"mirror": "https://robot:s3cret@m.example/cuda"},
     "nvidia_driver_mirror is https://...@m.example/cuda, but a URL must not contain a login. Remove the login from "
     f"the URL, and {REPOSITORY_VARIABLES}"),
    ({"mirror": "https://s3cret@m.example/cuda"}, REPOSITORY_VARIABLES),
    ({"key_url": "https://robot:s3cret@m.example/x.pub"}, REPOSITORY_VARIABLES),
    ({"runfile_url": "https://robot:s3cret@m.example/x.run"}, REPOSITORY_VARIABLES),
    ({"proxy": "http://robot:s3cret@p.example:3128"},
     "nvidia_driver_proxy is http://...@p.example:3128, but a URL must not contain a login. Remove the login from the "
     "URL, and set nvidia_driver_proxy_username and nvidia_driver_proxy_password."),
    ({"mirror": MIRROR, "repository_username": "robot"},
     "nvidia_driver_repository_username is set, but nvidia_driver_repository_password is not."),
    ({"mirror": MIRROR, "repository_password": "s3cret"},
     "nvidia_driver_repository_password is set, but nvidia_driver_repository_username is not."),
    ({"proxy": PROXY, "proxy_password": "s3cret"},
     "nvidia_driver_proxy_password is set, but nvidia_driver_proxy_username is not."),
    ({"mirror": "", "runfile_url": "", **LOGIN}, "Set nvidia_driver_mirror or nvidia_driver_runfile_url,"),
    ({"mirror": "file:///srv/cuda", **LOGIN}, "without the URL of a server. Set nvidia_driver_mirror,"),
    ({"proxy": None, **PROXY_LOGIN}, "proxy_username is set without the URL of a server."),
    ({"mirror": MIRROR, **LOGIN, "repository_username": "s3cret:b"}, "_repository_username contains"),
    ({"mirror": MIRROR, **LOGIN, "repository_password": "s3cret x"}, "_password contains a space"),
    ({"mirror": MIRROR, **LOGIN, "repository_password": "s3cret\nx"}, "_password contains a space"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "words"), BAD)
def test_invalid_logins_are_refused_without_showing_them(settings, words):
    problem = repository_access.problem("nvidia_driver", settings)
    assert words in problem
    assert "s3cret" not in problem


@pytest.mark.parametrize(
    ("url", "other", "same"),
    [
        ("https://m.example/a", "https://M.example:443/b", True),
        ("http://m.example:80", "http://m.example/b", True),
        ("https://m.example/a", "http://m.example/a", False),
        ("https://m.example:8443/a", "https://m.example/a", False),
        ("https://m.example/a", "https://m.example.org/a", False),
        ("http://[::1]:80/a", "http://[::1]/b", True),
    ],
)
def test_same_server(url, other, same):
    assert repository_access.is_same_server(url, other) is same


APT = [
    (RepositoryAccess(MIRROR), ""),
    (RepositoryAccess(MIRROR, username="a", password="b"), f"machine {MIRROR} login a password b\n"),
    (RepositoryAccess("http://[2001:db8::1]:8080/x/", username="a", password="b"),
     "machine http://2001:db8::1:8080/x login a password b\n"),
    (RepositoryAccess(MIRROR, f"{PROXY}/", "a", "b", "c", "d"),
     f"machine {MIRROR} login a password b\nmachine {PROXY} login c password d\n"),
    # A mirror on the host itself needs no proxy.
    (RepositoryAccess("file:///srv/cuda", PROXY, proxy_username="c", proxy_password="d"), ""),
]  # fmt: skip


@pytest.mark.parametrize(("reached", "text"), APT)
def test_logins_for_apt(reached, text):
    assert repository_access.apt_logins(reached) == text


ZYPPER = [
    (RepositoryAccess(MIRROR), MIRROR),
    (RepositoryAccess(MIRROR, username="a", password="b"), f"{MIRROR}?credentials=x"),
    (RepositoryAccess(MIRROR, PROXY, "a", "b"), f"{MIRROR}?credentials=x&proxy=http%3A%2F%2Fp.example%3A3128"),
    # zypper unquotes the login of the proxy twice.
    (RepositoryAccess(MIRROR, PROXY, proxy_username="c", proxy_password="d@%"),
     f"{MIRROR}?proxy=http%3A%2F%2Fp.example%3A3128&proxyuser=c&proxypass=d%2540%2525"),
]  # fmt: skip


@pytest.mark.parametrize(("reached", "url"), ZYPPER)
def test_url_for_zypper(reached, url):
    assert f"baseurl={url}" in repository_access.zypper_lines(reached, "x")


def test_a_sealed_entry_has_no_login_and_changes_with_each_part_of_it():
    first = RepositoryAccess(MIRROR, PROXY, "robot", "s3cret", "agent", "pr0xy")
    changes = [
        {},
        {"username": "other"},
        {"password": "other"},
        {"proxy_username": "other"},
        {"proxy_password": "other"},
    ]
    texts = ["\n".join([*repository_access.dnf_lines(first._replace(**change)), ""]) for change in changes]
    sealed = {repository_access.sealed_entry(text) for text in texts}
    assert len(sealed) == len(changes)
    assert not [word for word in ("robot", "s3cret", "agent", "pr0xy") if word in str(sealed)]


@pytest.fixture(name="servers")
def _servers():
    """Start a server that redirects, and one that it redirects to. Return its URL and the headers of both servers."""
    seen = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # pylint: disable=invalid-name
            seen.append({name: self.headers.get(name) for name in ("Authorization", "Proxy-Authorization")})
            if self.path == "/first":
                self.send_response(302)
                self.send_header("Location", f"http://localhost:{other.server_address[1]}/second")
            else:
                self.send_response(404)
            self.end_headers()

        def log_message(self, *_arguments):
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as other:
            for one in (server, other):
                threading.Thread(target=one.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_address[1]}", seen
            other.shutdown()
        server.shutdown()


def basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def test_only_the_server_of_the_key_receives_its_login(servers):
    address, seen = servers
    with pytest.raises(key_trust.SigningKeyError):
        key_download.fetch(f"{address}/first", "0" * 40, login=("robot", "s3:cret@"))
    assert [headers["Authorization"] for headers in seen] == [basic("robot:s3:cret@"), None]


def test_the_proxy_receives_its_login(servers):
    address, seen = servers
    proxy = repository_access.with_login(address, "robot", "s3:/cret@")
    with pytest.raises(key_trust.SigningKeyError) as raised:
        key_download.fetch("http://m.example/x.pub", "0" * 40, proxy)
    assert seen == [{"Authorization": None, "Proxy-Authorization": basic("robot:s3:/cret@")}]
    assert "cret" not in str(raised.value)
